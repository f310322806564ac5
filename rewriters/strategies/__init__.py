"""One file per strategy, found by its name; see `rewriters/strategy.py`. Nothing is registered here."""
