"""The comparison of two runs: differences in input and in output."""
