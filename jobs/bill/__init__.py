"""The bill of a run: what its drivers, nodes and workers spend, by start."""
