"""The verbs that bring a finished run to a search: review, export, promote, rollback."""
