"""What a comparison gives to other tools: LaTeX, CSV, Parquet, TREC files, lists."""
