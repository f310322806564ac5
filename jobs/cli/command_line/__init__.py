"""The words of the command line: verbs and their arguments."""
