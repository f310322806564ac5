"""Where the job runs and what it costs: session, stages, shards, storage. Knows nothing of queries."""


class ClusterError(Exception):
    """Something outside the program is not as it must be; the text is one line for the person who reads it."""


class UnavailableError(ConnectionError):
    """Storage gave no good answer for as long as it was asked, in one line: nothing is wrong with what was asked, and the same
    may work later. Whoever makes another error of an OSError lets this one (a ConnectionError, for those who do not know
    this package) pass as it is."""
