"""The verb index, and opening of local and S3 indexes."""
