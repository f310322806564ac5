"""Code of the user in the place of a model: it makes the texts of a strategy itself."""
