"""The four gates before a promotion: error rate, coverage, changed first documents, quality."""
