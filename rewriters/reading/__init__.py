"""Parsing of LLM answers: four readers, one per answer format, and the checks of the values that they read."""
