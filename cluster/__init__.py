"""Where the job runs and what it costs: session, stages, shards, storage. Knows nothing of queries."""


class ClusterError(Exception):
    """Something outside the program is not as it must be; the text is one line for the person who reads it."""
