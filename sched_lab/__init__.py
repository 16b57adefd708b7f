"""sched_lab: GPU-cluster scheduling, paper by paper."""

__version__ = "0.1.0"
