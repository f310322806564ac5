"""Measures runs: their quality and how sure it is, their comparison, and their list."""
