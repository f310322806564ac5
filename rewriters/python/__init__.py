"""Strategies that are Python code: what they are given, how they are named, and how their texts are read."""
