"""Event by event: the authors' own program, the curves that the FGD authors published, and our stored frames."""
import gzip
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.cluster import read_nodes
from sched_lab.lab.frames import read_frame
from sched_lab.online.inflation import inflate, mean_curve, on_grid
from sched_lab.online.policies import policy_of
from sched_lab.traces import data_folders, find_data, find_reference, read_arrivals, read_tasks
from tests.online.recorded import NAMES, recorded_seeds

TRACES = ("default", "gpushare40", "gpushare60", "gpushare80", "gpushare100", "gpuspec10", "gpuspec20", "gpuspec25",
          "gpuspec33", "multigpu20", "multigpu30", "multigpu40", "multigpu50")
STORED = Path(__file__).parents[2] / "data" / "results" / "pwr"
# columns of the authors' curves, our name for each, and the rounding of theirs (half a unit of the last digit)
COLUMNS = {"arrived_gpu_demand_ratio": ("x", 5e-7), "eopc_w": ("eopc_w", 0), "cpu_w": ("cpu_w", 0),
           "gpu_w": ("gpu_w", 0), "used_gpu_milli": ("used_gpu_milli", 0), "frag_milli": ("frag_milli", 0.005),
           "failed_pods": ("failed", 0)}


def reference(name):
    path = find_reference(f"pwr/{name}")
    return path if path is not None else pytest.skip(f"no reference file pwr/{name}")


def openb(name):
    path = find_data(f"openb/{name}.csv")
    return path if path is not None else pytest.skip(f"no data file openb/{name}.csv")


@cache
def recorded(trace):
    return (read_nodes(openb("openb_node_list_gpu_node")), read_tasks(openb(f"openb_pod_list_{trace}")),
            reference(f"arrivals/{trace}.json.gz"))


@cache
def run_of(trace, policy, seed):
    cluster, tasks, arrivals = recorded(trace)
    return inflate(cluster, tasks, policy_of(NAMES[policy], "reference"), power="package",
                   arrivals=read_arrivals(arrivals, seed, cluster, tasks))


def placed():
    """Trace, policy and seed of each file of placements that is there and concerns us."""
    folders = (folder.absolute().parent / "reference" / "pwr" / "assignments" for folder in data_folders(None))
    files = next((found for folder in folders if (found := sorted(folder.glob("*.*.*.csv.gz")))), [])
    cells = [file.name.split(".")[:3] for file in files]
    return [(trace, policy, int(seed)) for trace, policy, seed in cells if policy in NAMES]


@pytest.mark.parametrize(("trace", "policy", "seed"), placed())
def test_every_placement_is_the_authors(trace, policy, seed):
    path = reference(f"assignments/{trace}.{policy}.{seed}.csv.gz")
    theirs = pd.read_csv(path, dtype=str, keep_default_na=False)
    ours = run_of(trace, policy, seed).assignments
    assert len(ours) == len(theirs) > 0
    assert ours["task_row"].tolist() == theirs["trace_row"].astype(int).tolist()
    for column, name in (("node", "node"), ("gpu_list", "gpus")):
        differs = ours[column].to_numpy() != theirs[name].to_numpy()
        assert not differs.any(), f"{column}: {differs.sum()} events, first {differs.argmax()}"


@cache
def reference_curves():
    with gzip.open(reference("reference_runs.csv.gz")) as file:
        return pd.read_csv(file)


def curves():
    """Trace, policy and seed of the first three curves of each policy whose placements and arrivals are there, too."""
    if find_reference("pwr/reference_runs.csv.gz") is None:
        return []
    cells = reference_curves()[["trace", "policy", "seed"]].drop_duplicates()
    pairs = {(trace, policy) for trace, policy, _ in placed()}
    paths = {trace: find_reference(f"pwr/arrivals/{trace}.json.gz") for trace, _ in pairs}
    seeds = {trace: recorded_seeds(path) for trace, path in paths.items() if path}
    kept = cells[[(trace, policy) in pairs and seed in seeds.get(trace, ())
                  for trace, policy, seed in cells.itertuples(index=False, name=None)]]
    return list(kept.groupby(["trace", "policy"]).head(3).itertuples(index=False, name=None))


@pytest.mark.parametrize(("trace", "policy", "seed"), curves())
def test_curves_equal_the_authors_to_rounding(trace, policy, seed):
    theirs = reference_curves().query("trace == @trace and policy == @policy and seed == @seed")
    curve = run_of(trace, policy, seed).curve
    assert len(theirs) > 0 and theirs["event"].max() == len(curve) - 1
    for column, (name, rounding) in COLUMNS.items():
        apart = np.abs(curve[name].to_numpy()[theirs["event"]] - theirs[column].to_numpy()).max()
        assert apart <= rounding + 1e-9, f"{column}: {apart}"


@cache
def published(name):
    with gzip.open(reference(f"fgd_expected/analysis_{name}_discrete.csv.gz")) as file:
        return pd.read_csv(file).set_index(["workload", "sc_policy", "seed"]).sort_index()


def largest_difference(name, trace, column):
    """Our column in % of the capacity against a published curve of FGD, the first of the seeds with our arrivals.

    Column p of the published table is the mean over the events with round(100 x) = p, rounded to two digits.
    """
    workload = f"openb_pod_list_{trace}"
    runs = published(name).query("workload == @workload and sc_policy == '06-FGD'")
    seeds = [seed for seed in runs.index.get_level_values("seed") if seed in recorded_seeds(recorded(trace)[2])]
    if not seeds:
        pytest.skip(f"no published curve of FGD has recorded arrivals of {trace}")
    theirs = runs.loc[(workload, "06-FGD", seeds[0])]
    curve = run_of(trace, "FGD", int(seeds[0])).curve
    capacity = recorded(trace)[0].gpu_capacity_milli
    percent = curve[column] / capacity * 100
    if name == "allo":
        percent = percent.round(2)  # their log had two digits already
    ours = percent.groupby(np.round(100 * curve["x"]).astype(int)).mean()
    both = pd.DataFrame({"ours": ours, "theirs": [float(theirs[str(p)]) for p in ours.index]}).dropna()
    assert len(both) > 0
    return (both["ours"] - both["theirs"]).abs().max()


@pytest.mark.parametrize("trace", TRACES)
def test_fragmentation_of_fgd_is_the_published_curve(trace):
    assert largest_difference("frag", trace, "frag_milli") < 0.0051


@pytest.mark.parametrize("trace", TRACES)
def test_allocation_of_fgd_is_the_published_curve(trace):
    assert largest_difference("allo", trace, "used_gpu_milli") < 0.0101  # rounded twice: two halves of the last digit


# --- the frames of the results chapter


@cache
def stored():
    frame = read_frame(STORED / "evaluation_mean.csv.gz")
    return frame[frame["trace"] == "default"].set_index(["policy", "x"]).sort_index()


@pytest.mark.parametrize("policy", ["FGD", "PWR"])
def test_stored_means_are_what_the_code_computes_today(policy):
    seeds = range(42, 52)  # of the stored frames
    if not set(seeds) <= set(recorded_seeds(recorded("default")[2])):
        pytest.skip("the arrivals of the stored frames are not here")
    mean = mean_curve([on_grid(run_of("default", policy, seed).curve) for seed in seeds]).set_index("x")
    ours = stored().loc[NAMES[policy]]
    assert np.abs(ours["eopc_w"] - mean["eopc_w"]).max() <= 0.0051
    assert np.abs((ours["grar"] - mean["grar"]).iloc[1:]).max() <= 5.1e-8
    assert np.abs(ours["frag_milli"] - mean["frag_milli"]).max() <= 0.051
