"""Steps after retrieval that an LLM does, such as answering: a prompt each, as YAML, and how its answer is read."""
