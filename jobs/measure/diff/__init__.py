"""The comparison of two runs: what differs in what they were given, and what differs in what came out."""
