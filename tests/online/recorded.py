"""What is recorded in the reference folder, whatever that is on this machine."""
import gzip
import json


def recorded_seeds(path):
    """Seeds of a file of recorded arrivals, ascending."""
    with gzip.open(path) as file:
        return sorted(int(seed) for seed in json.load(file)["seeds"])
