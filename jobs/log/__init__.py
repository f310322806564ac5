"""The query log: its files, its rows and its distinct queries."""
