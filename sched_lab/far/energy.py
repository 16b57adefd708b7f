"""A task holds a share of its GPU; the meter does the rest."""

# A module, written by hand.

from __future__ import annotations

import numpy as np

from ..cluster import Cluster
from ..hardware import Hardware, default_hardware
from ..bill import Bill, bill_of, gpus_alone, tariff_of
from ..holdings import Holdings
from ..power import power_of
from .mig import Mig, Schedule
from .profiles import ProfileMig, table_of
from .tasks import Batch, no_terms


def holdings_of(mig: Mig, batch: Batch, schedule: Schedule) -> tuple[Cluster, Holdings]:
    """The GPUs as a cluster, and who holds what share of them when.

    Parameters
    ----------
    mig, batch : the problem
    schedule : of the batch
    """
    zeros = np.zeros(mig.num_gpus, np.int64)
    if isinstance(mig, ProfileMig):
        models = [one.name for one in mig.gpus]
        slices = np.array([table_of(one).slices[0] for one in mig.gpus])
    else:
        models = [mig.model] * mig.num_gpus
        slices = zeros + mig.num_slices
    name = np.array([f"GPU {g}" for g in range(mig.num_gpus)], object)
    cluster = Cluster(name, zeros, zeros, zeros + 1, np.array(models, object),
                      np.full(len(name), "", object))
    terms = batch.terms or no_terms(len(batch))
    runs = terms.until_s > 0
    instance = np.append(schedule.instance, terms.instance[runs])
    end_s = np.append(schedule.end_s, terms.until_s[runs])
    gpu = mig.tree.gpu[instance]
    start_s = np.append(schedule.start_s, np.zeros(runs.sum()))
    share_milli = 1000 * mig.tree.size[instance] // slices[gpu]
    return cluster, Holdings(gpu, np.ones_like(gpu), share_milli, np.zeros_like(gpu),
                             start_s.round(9), end_s.round(9))  # so that ends meet starts


WORDS = ("Each GPU is on until the last task ends, and draws between idle and full watts, by the "
         "share of its compute slices in use; CPUs are left out.")


def energy_of(mig: Mig, batch: Batch, schedule: Schedule, hardware: Hardware | None = None,
              price: str = "", carbon: str = "") -> Bill | None:
    """What a schedule draws, costs and emits; None if the watts of a GPU model are not known.

    Parameters
    ----------
    mig, batch : the problem
    schedule : of the batch
    hardware : the catalogue; the one that comes with the package if not given
    price, carbon : of energy, as `tariff_of` takes them

    Raises
    ------
    InputError : if price or intensity cannot be used
    """
    watts = (hardware or default_hardware()).gpu_power_w()
    cluster, holdings = holdings_of(mig, batch, schedule)
    if not all(name in watts for name in cluster.gpu_model) or not schedule.makespan_s:
        return None
    horizon = (0.0, schedule.makespan_s)
    tariff = tariff_of(price, carbon, None, horizon)
    power = power_of(cluster, "eq1", watts, None, "linear")
    return bill_of(cluster, holdings, gpus_alone(power), tariff, horizon=horizon, words=WORDS)
