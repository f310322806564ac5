"""Answers in files for others: TREC RAG, RAGAS, and rows with all that is known of a query."""
