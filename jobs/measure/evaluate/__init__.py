"""Retrieval quality against relevance judgements."""
