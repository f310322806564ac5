"""A job on Kubernetes: the template of a RayJob, and the worker groups that hold its pools."""
