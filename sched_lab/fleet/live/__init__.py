"""A live scheduler is answered: decisions, journal, extender."""
