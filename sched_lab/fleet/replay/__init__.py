"""A cluster in time: what would have happened under another policy."""
