"""Comparison of arms over several data sets: tests over all of them, wins and losses, ranks."""
