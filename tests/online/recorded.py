"""What is recorded in the reference folder, whatever that is on this machine."""
import gzip
import json

# policies of the authors' records, and our names for them
NAMES = {"FGD": "fgd", "PWR": "pwr", "PWR50": "pwr-fgd:0.05", "PWR100": "pwr-fgd:0.1", "PWR200": "pwr-fgd:0.2",
         "PWR500": "pwr-fgd:0.5", "BestFit": "bestfit", "DotProd": "dotprod", "GpuPacking": "gpu-packing",
         "GpuClustering": "gpu-clustering"}


def recorded_seeds(path):
    """Seeds of a file of recorded arrivals, ascending."""
    with gzip.open(path) as file:
        return sorted(int(seed) for seed in json.load(file)["seeds"])
