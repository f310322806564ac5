"""The stages after retrieval that ask an LLM: further rounds, answers, judgements."""
