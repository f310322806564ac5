"""What a judge, an LLM, says of a run's results and answers, as judgements that measures are computed by."""
