"""The strategies, one file each; `rewriters/strategy.py` finds them by file name."""
