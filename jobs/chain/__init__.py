"""The chain that shards go through: its order, its stages, what they look up before they compute, what they count."""
