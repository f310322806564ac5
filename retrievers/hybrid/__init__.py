"""Several retrievers as one: their lists of a text are fused into one list."""
