"""Rewrites of search queries by an LLM: prompts, engines and the parsing of answers; without Ray and without retrieval."""
