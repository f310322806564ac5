"""Lexical and dense retrieval, fusion of ranked lists, and reranking."""
