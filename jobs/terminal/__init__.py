"""Display and log of a job at work."""
