"""What is fixed when a job is planned: its shards, and thresholds that are taken from a sample of its queries."""
