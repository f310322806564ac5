"""The verb index: builds the indexes that a config names."""
