"""The chain of an ablation: gathers once what many arms need, then answers each arm by arithmetic."""
