"""Several indexes as one: their lists of a text are merged into one list, and the ids of documents are qualified."""
