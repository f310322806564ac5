"""Guards of a job: those that need vectors, and those that look over all queries."""
