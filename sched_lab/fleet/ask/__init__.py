"""What is asked about a cluster: why, where next, which moves, how to cut."""
