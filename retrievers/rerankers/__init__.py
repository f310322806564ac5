"""The rerankers: cross-encoders, and LLM-based ones."""
