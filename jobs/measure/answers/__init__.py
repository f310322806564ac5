"""Answers against gold answers: exact match and F1."""
