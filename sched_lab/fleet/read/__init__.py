"""From files of any kind to one checked pair of tables."""
