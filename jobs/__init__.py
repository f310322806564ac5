"""The verbs of dmqr, and the order in which its stages follow each other."""
