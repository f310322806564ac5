"""The verbs of dmqr and the chain of its stages."""
