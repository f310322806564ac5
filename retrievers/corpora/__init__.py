"""The corpus: its files, its rows, and its duplicates."""
