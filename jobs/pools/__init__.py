"""The worker pools of a job: requested by the config, sized by the work, with their shares of requests."""
