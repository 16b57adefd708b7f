"""Hadar, HadarE and their baselines: training jobs on a cluster of several GPU types, in rounds."""
