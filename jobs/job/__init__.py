"""A checked job: prepared, with its keys, its engines, its indexes and the worker pools that it requests."""
