"""What becomes of a finished run: versions of look-up rows in a folder or in Elasticsearch, promoted or rolled back."""
