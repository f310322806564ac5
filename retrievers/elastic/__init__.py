"""Indexes in Elasticsearch: built behind an alias, searched by `_msearch`."""
