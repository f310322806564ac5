"""Keeps a store small and clean: it is counted, compacted, collected, and queries are forgotten."""
