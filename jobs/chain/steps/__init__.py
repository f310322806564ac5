"""Steps that ask an LLM: its answers to requests, and what it is shown."""
