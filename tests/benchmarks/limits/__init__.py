"""A file for each thing that a stage is held against, which `all.py` runs; each measures ours and the bare loop in turns."""
