"""What a run's metrics are computed from: blocks, and what the driver knows."""
