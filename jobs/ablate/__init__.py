"""The verb ablate: gathers once what many arms need, then answers each arm by arithmetic."""
