"""What is fixed when a job is planned: its shards."""
