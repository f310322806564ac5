"""Servers that speak OpenAI's Chat Completions."""
