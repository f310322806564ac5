"""Training rows for a small rewriter: which queries and rewrites, how they are asked and answered, what they have gained."""
