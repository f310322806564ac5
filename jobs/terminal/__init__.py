"""What is shown and logged while a job works."""
