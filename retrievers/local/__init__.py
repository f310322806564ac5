"""Indexes in a folder: BM25 and exact dense search over memory-mapped files."""
