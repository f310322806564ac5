"""Relevance judgements from clicks, corrected for the position at which documents were shown."""
