"""The models of the config, and the loader from YAML."""
