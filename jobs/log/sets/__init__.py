"""Data sets of the field, named where a path may stand: their queries, judgements and corpora."""
