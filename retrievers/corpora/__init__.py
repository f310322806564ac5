"""The corpus: its files, its rows, and documents with one text."""
