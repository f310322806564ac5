"""The verb plan: the work and the cost of a run, before it starts."""
