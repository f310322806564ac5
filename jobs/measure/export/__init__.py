"""What a comparison gives to other tools: CSV, Parquet, TREC files, lists."""
