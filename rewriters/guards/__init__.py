"""Guards: what is checked, repaired, left out or masked around the LLM. `Guards` of `guards.py` applies them."""
