"""Answers and judgements in files for others: TREC RAG, RAGAS, UMBRELA, nuggetizer, and rows with all that is known."""
