"""What scores of lists decide: which queries are rewritten at all, and which have a further round."""
