"""A query in, rewrites and usage out. Knows nothing of retrieval, of the cluster, or of jobs.

strategy.py   what a strategy is, and how one is found by its name
strategies/   one file per strategy
joint.py      the one prompt that asks for several strategies at once, put together from their own definitions
rewriter.py   query -> requests, and completions -> rewrites or failures
engines/      requests -> completions, with what they used
parse.py      what an answer says for each strategy: the ladder over rungs/, then checks.py
normalise.py  one spelling for one query
"""
