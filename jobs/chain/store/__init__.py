"""The store: facts that any job may use again."""
