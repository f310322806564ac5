"""The verb run: checks before the run, the run itself, and its end."""
