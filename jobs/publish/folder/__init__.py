"""Versions in a folder, here or on S3."""
