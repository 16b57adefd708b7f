"""Instances of ANDREAS: the authors' generator to the last bit, their tables, and laws of what is drawn."""
import json
from typing import Any

import numpy as np
import pytest

from sched_lab.andreas.instances import (
    ARMIDA_NODES,
    NODE_POWER_W,
    PRICE_EUR_PER_KWH,
    PRIORITIES,
    PUE,
    armida,
    arrival_times_s,
    cost_table,
    generate,
    profiles,
    run_times_s,
)
from sched_lab.lab.frames import InputError
from sched_lab.traces import find_data, find_reference

SIMULATED = find_reference("andreas/golden_sim.json")
REAL = find_reference("andreas/armida.json")
MEASURED = find_data("andreas/profiles.json")
CASES: list[dict[str, Any]] = json.loads(SIMULATED.read_text())["cases"] if SIMULATED else []
simulated = pytest.mark.skipif(SIMULATED is None, reason="../shared/reference/andreas/golden_sim.json is absent")
real = pytest.mark.skipif(REAL is None, reason="../shared/reference/andreas/armida.json is absent")
measured = pytest.mark.skipif(MEASURED is None, reason="../shared/data/andreas/profiles.json is absent")


def same_price(ours: float, theirs: float) -> bool:
    """Whether they are equal to 15 digits; one of the six differs in the last two bits."""
    return bool(abs(ours - theirs) <= 2 * np.spacing(theirs))


# --- the authors' generator ------------------------------------------------------------------------------------------

@simulated
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_jobs_are_the_authors_to_the_last_bit_and_prices_to_15_digits(case):
    known = profiles()
    scenario = {"21": 1, "42": 2}[case["scenario"]]
    ours = generate(case["seed"], case["N"], case["mult"], scenario=scenario)
    names = [ours.configuration_name(c) for c in range(len(ours.fleet.configuration_gpus))]
    assert names == [f"{gpu},{count}" for gpu, count in case["configs"]]
    assert len(case["jobs"]) == len(ours.job_name) == 10 * case["N"] + 1
    for name, kind, submission_s, due_s, weight, times_s in case["jobs"]:
        job = ours.job_name.index(name)
        assert (ours.jobs.submission_s[job], ours.jobs.due_s[job], ours.jobs.weight_eur_per_s[job],
                ours.jobs.times_s[job].tolist(), ours.epochs[job]) \
            == (submission_s, due_s, weight, times_s, known[kind]["epochs"])
    assert {name: (ours.type_name[kind], count) for name, kind, count in
            zip(ours.node_name, ours.fleet.node_type, ours.fleet.node_gpus, strict=True)} \
        == {node["id"]: (node["gpu"], node["ngpus"]) for node in case["nodes"]}
    assert cost_table(scenario).keys() == case["cost"].keys()
    assert all(same_price(price, case["cost"][name]) for name, price in cost_table(scenario).items())


def test_a_seed_fixes_everything():
    first, again, other = (generate(seed, 4, 1.0) for seed in (5, 5, 6))
    for a, b in zip(first.jobs, again.jobs, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (first.jobs.weight_eur_per_s != other.jobs.weight_eur_per_s).all()


def test_the_global_stream_is_put_back_after_an_error(monkeypatch):
    def fail(*_: Any) -> None:
        raise RuntimeError("in the middle")

    monkeypatch.setattr("sched_lab.andreas.instances.arrival_times_s", fail)
    np.random.seed(7)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    with pytest.raises(RuntimeError):
        generate(5, 4, 1.0)
    assert np.random.random() == expected  # noqa: NPY002


@pytest.mark.parametrize(("seed", "num_nodes", "factor", "scenario"), [
    (-1, 4, 1.0, 1), (2**32, 4, 1.0, 1), (1, 0, 1.0, 1), (1, 4, 0.0, 1), (1, 4, -1.0, 1), (1, 4, float("nan"), 1),
    (1, 4, float("inf"), 1), (1, 4, 1.0, 3), (1, 4, 1.0, 0)])
def test_impossible_arguments_are_refused(seed, num_nodes, factor, scenario):
    with pytest.raises(InputError, match="give scenario 1 or 2, a seed from 0 to"):
        generate(seed, num_nodes, factor, scenario=scenario)


# --- arrivals, with gaps that are not random -------------------------------------------------------------------------

@pytest.fixture
def mean_gaps(monkeypatch):
    """Every gap is its mean."""
    monkeypatch.setattr(np.random, "exponential", lambda scale: scale)


@pytest.mark.usefixtures("mean_gaps")
@pytest.mark.parametrize(("num_jobs", "num_clusters"), [(1, 1), (4, 1), (14, 1), (15, 2), (24, 2), (25, 3), (101, 10)])
def test_clusters_are_about_ten_jobs_and_half_is_rounded_up(num_jobs, num_clusters):
    arrival_s = arrival_times_s({f"j{i:03d}": {"TESLA,1": 100.0} for i in range(num_jobs)}, 1, 1.0)
    gaps = np.diff(list(arrival_s.values()))
    assert np.count_nonzero(np.abs(np.diff(gaps)) > 1) == num_clusters - 1


# --- tables ----------------------------------------------------------------------------------------------------------

@measured
def test_profiles_are_the_measured_ones():
    rows = json.loads(MEASURED.read_text())["profile_ARMIDA"]["rows"]  # type: ignore[union-attr]
    assert len(rows) == sum(len(profile["epoch_s"]) for profile in profiles().values()) == 30
    for name, application, epochs, batch, gpu, count, epoch_s, total_s in rows:
        profile = profiles()[name]
        assert (profile["application"], profile["epochs"], profile["batch"]) == (application, epochs, batch)
        assert profile["epoch_s"][f"{gpu},{count}"] == epoch_s
        assert run_times_s(profile)[f"{gpu},{count}"] == pytest.approx(total_s, rel=1e-15)


@measured
def test_prices_are_the_authors():
    rows = json.loads(MEASURED.read_text())["cost_ARMIDA"]["rows"]  # type: ignore[union-attr]
    table = {f"{gpu},{count}": eur_per_h for gpu, count, _, _, _, eur_per_h in rows}
    assert cost_table(2).keys() == table.keys()
    assert all(same_price(price, table[name]) for name, price in cost_table(2).items())
    power_w = {f"{gpu},{count}": watts for gpu, count, watts, *_ in rows}
    # 470 W there, beside the price of 480 W
    assert {name for name in power_w if power_w[name] != NODE_POWER_W[name]} == {"TURING,2"}
    assert {(price, pue) for _, _, _, price, pue, _ in rows} == {(PRICE_EUR_PER_KWH, PUE)}


@measured
def test_priorities_are_the_authors_weights():
    values = json.loads(MEASURED.read_text())["priority_weights_eur_per_s"]["values"]  # type: ignore[union-attr]
    assert PRIORITIES == {int(priority): weight for priority, weight in values.items()}


@real
def test_armida_is_table_5_on_the_nodes_of_table_2():
    tables = json.loads(REAL.read_text())  # type: ignore[union-attr]
    instance = armida()
    applications = {"EfficientNet": "efficientNet", "ConvNet": "convolutionNet", "LSTM-big": "LSTMbig",
                    "LSTM-small": "LSTMsmall"}
    assert len(tables["table_V"]) == len(instance.job_name) == 8
    for job, (name, application, epochs, submission_s, printed_s, priority) in enumerate(tables["table_V"]):
        profile = profiles()[name]
        assert profile["application"] == applications[application] and profile["epochs"] == 2 * epochs
        assert (instance.job_name[job], instance.epochs[job]) == (name, epochs)
        assert (instance.jobs.submission_s[job], instance.jobs.due_s[job]) == (submission_s, printed_s + 3600)
        assert instance.jobs.weight_eur_per_s[job] == tables["weights_by_priority"][str(priority)]
        assert {instance.configuration_name(c): time_s for c, time_s in enumerate(instance.jobs.times_s[job])} \
            == {key: epochs * epoch_s for key, epoch_s in profile["epoch_s"].items()}
    assert {node["id"]: (node["gpu"], node["ngpus"]) for node in tables["nodes"]} == ARMIDA_NODES
    assert cost_table(1).keys() == tables["cost_eur_per_h"].keys()
    assert all(same_price(price, tables["cost_eur_per_h"][name]) for name, price in cost_table(1).items())
