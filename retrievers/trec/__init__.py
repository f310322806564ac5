"""Lists that another system made: a run file of TREC."""
