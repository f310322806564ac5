"""What came of a run: whether rewriting helps, in words; quality by traffic; the queries that find nothing."""
