"""The web in the chain: searches, answers as facts, and whose text a page has."""
