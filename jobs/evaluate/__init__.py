"""The verb evaluate: retrieval quality against relevance judgements."""
