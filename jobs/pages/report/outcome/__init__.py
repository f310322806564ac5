"""What came of a run: whether rewriting helps, in words; quality by traffic; queries that find nothing; latencies."""
