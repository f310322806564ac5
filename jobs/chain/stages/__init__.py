"""The workers of the stages; each is called with a block (a table) and returns a block."""
