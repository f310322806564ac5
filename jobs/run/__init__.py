"""The verb run: the driver, what it spends and shows, and the run's end; its work may be a run's or an ablation's."""
