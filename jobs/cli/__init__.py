"""The command line: arguments, verbs, refusals."""
