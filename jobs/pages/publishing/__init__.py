"""What the verbs show that bring a finished run to a search."""
