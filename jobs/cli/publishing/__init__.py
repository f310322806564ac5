"""The verbs that bring a finished run to a search: export, promote, rollback."""
