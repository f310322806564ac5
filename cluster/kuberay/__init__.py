"""Manifests for Kubernetes: RayJobs of KubeRay, with or without Kueue, and the CronJob that creates one every night."""
