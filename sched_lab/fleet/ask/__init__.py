"""What is asked about a cluster: why, where next, which moves, how to cut, what each idea is worth."""
