"""Batches that several tests of FAR draw."""
import numpy as np

from sched_lab.far.tasks import WIDTHS, Batch, generate_times


def mixed_times(mig, num_tasks, seed, super_share=0.5):
    """Draw times of as many tasks for each size, as the paper does."""
    shares = dict.fromkeys(mig.sizes, 1 / len(mig.sizes))
    return generate_times(mig, num_tasks, shares, WIDTHS["wide"], np.random.default_rng(seed), super_share=super_share)


def batch_of(times_s, terms=None, group=""):
    """Return tasks t0, t1, ... with these times."""
    names = np.array([f"t{k}" for k in range(len(times_s))], object)
    return Batch(names, np.asarray(times_s, float), np.resize(np.array(group, object), len(names)), terms)
