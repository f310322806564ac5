"""Plans a job: its shards."""
