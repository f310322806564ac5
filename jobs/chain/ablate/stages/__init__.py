"""The stages of an ablation: the union of what its arms need, then each arm's answer."""
