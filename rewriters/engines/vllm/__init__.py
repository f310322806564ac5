"""vLLM inside the worker."""
