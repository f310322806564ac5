"""Versions in Elasticsearch: an index each, and an alias that stands for the promoted one."""
