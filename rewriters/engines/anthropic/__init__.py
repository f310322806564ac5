"""The engine `anthropic`: Anthropic's Messages API."""
