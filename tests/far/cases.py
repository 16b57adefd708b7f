"""Batches that several tests of FAR draw."""
import numpy as np

from sched_lab.far.tasks import WIDTHS, Batch, generate_times


def mixed_times(mig, num_tasks, seed, super_share=0.5):
    """Draw times of as many tasks for each size, as the paper does."""
    shares = dict.fromkeys(mig.sizes, 1 / len(mig.sizes))
    return generate_times(mig, num_tasks, shares, WIDTHS["wide"], np.random.default_rng(seed), super_share=super_share)


def any_times(rng, mig, num_tasks=0):
    """Draw times of so many tasks, or of 1 to 12: whole (many ties) or not, falling with the size or not, with gaps."""
    shape = num_tasks or int(rng.integers(1, 13)), len(mig.sizes)
    times_s = rng.integers(1, 30, shape).astype(float) if rng.random() < 0.4 else rng.uniform(0.05, 30, shape)
    if rng.random() < 0.7:
        times_s = np.ascontiguousarray(-np.sort(-times_s, axis=1))
    if rng.random() < 0.3:
        times_s[rng.random(shape) < 0.4] = np.inf
        times_s[~np.isfinite(times_s).any(axis=1), rng.integers(len(mig.sizes))] = 7
    return times_s


def batch_of(times_s, terms=None, group=""):
    """Return tasks t0, t1, ... with these times."""
    names = np.array([f"t{k}" for k in range(len(times_s))], object)
    return Batch(names, np.asarray(times_s, float), np.resize(np.array(group, object), len(names)), terms)
