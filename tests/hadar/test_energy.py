"""What runs draw: parts and whole, the shared meter, bounds that nobody lies below, and who pays for energy."""
import numpy as np
import pytest

from sched_lab.bill import gpus_alone, tariff_of
from sched_lab.hadar.command import hadar_command
from sched_lab.hadar.energy import (
    AWAKE,
    OFF,
    Account,
    Draw,
    EnergyFirst,
    GreenHadar,
    GreenPlanned,
    Sleep,
    TypeWatts,
    bill_run,
    draw_of,
    energy_bound_wh,
    energy_of,
    holdings_of,
    watts_of,
    window_of,
)
from sched_lab.hadar.model import check_simulation, toy_workload
from sched_lab.hadar.policies import policy_of, record_of, simulate
from sched_lab.hadar.primal_dual import Hadar
from sched_lab.hadar.report import report_of
from sched_lab.hadar.simulation import HadarE, run_copies, run_rounds
from sched_lab.holdings import check_holdings
from sched_lab.lab.frames import InputError, read_json
from sched_lab.meter import meter
from sched_lab.power import power_of
from studies.hadar_energy import check_energy, line_s
from studies.testbed import node_workload
from tests.hadar.cases import jobs_of, named, nodes_of, random_workload

WATTS = {1: ([20], [100]), 2: ([20, 30], [100, 250]), 3: ([20, 30, 25], [100, 250, 150])}
GREEN = ["hadar-green:0", "hadar-green:2", "planned-green:0.2", "energy-first:1.3"]
SLEEPS = [AWAKE, Sleep(400.0, 15.0), OFF]


def watts_for(work):
    idle_w, full_w = WATTS[len(work.type_name)]
    return TypeWatts(work.type_name, np.array(idle_w, float), np.array(full_w, float))


def two_jobs():
    """Make a fast and a slow GPU, and two jobs of 3600 steps."""
    work = named(nodes_of([1, 1], [0, 1]), jobs_of([[2, 1], [2, 1]], 3600), ("fast", "slow"))
    return work, TypeWatts(work.type_name, np.array([40.0, 40.0]), np.array([240.0, 160.0]))


@pytest.mark.parametrize("policy", ["hadar", "gavel-maxmin", "tiresias", "yarn-cs", "planned", *GREEN])
@pytest.mark.parametrize("seed", range(3))
def test_parts_are_the_whole_and_what_the_meter_measures(policy, seed):
    work = random_workload(seed)
    try:
        run = simulate(work, policy)
    except InputError as error:
        assert "fits on no single GPU type" in str(error)
        return
    check_simulation(work, run)
    watts = watts_for(work)
    check_energy(run, watts, energy_of(run, watts))
    cluster, held = holdings_of(run, watts)
    check_holdings(cluster, held)
    table = {name: (int(idle_w), int(full_w)) for name, idle_w, full_w in zip(*watts, strict=True)}
    power = gpus_alone(power_of(cluster, gpu_power_w=table))
    hours = (run.end_s.max() - work.jobs.arrival_s.min()) / 3600
    for sleep in SLEEPS:
        frame = meter(cluster, held, power, np.array(window_of(run)), asleep_after_s=sleep.after_s,
                      asleep_w=sleep.draws_w)
        whole_w = frame["power_w" if sleep is AWAKE else "asleep_w"].iloc[0]
        assert np.isclose(whole_w * hours, energy_of(run, watts, sleep).whole_wh)
    energies = [energy_of(run, watts, sleep).whole_wh for sleep in SLEEPS]
    assert energies == sorted(energies, reverse=True)


def test_copies_are_metered_by_the_time_that_they_run():
    work = node_workload("aws", "M-4")
    run = run_copies(work, HadarE(slot_s=90.0))
    watts = watts_of(work.type_name)
    account = energy_of(run, watts)
    check_energy(run, watts, account)
    assert (run.history["ran_s"] <= 90 + 1e-9).all() and (run.history["ran_s"] < 89).any()
    bill = bill_run(run, watts, tariff_of())
    assert np.isclose(bill.energy_kwh * 1000, account.whole_wh)
    draw = draw_of(work.cluster, watts)
    bound_wh = energy_bound_wh(work, draw, run.ttd_s, is_forked=True)
    assert bound_wh <= account.whole_wh < 3 * bound_wh
    together = energy_bound_wh(work, draw, 0.8 * run.ttd_s, is_forked=True)
    assert together <= energy_bound_wh(work, draw, 0.8 * run.ttd_s)


@pytest.mark.parametrize("broken", ["part", "engine", "full"])
def test_the_validator_sees_what_is_wrong(broken):
    work, watts = two_jobs()
    run = run_rounds(work, Hadar())
    account = energy_of(run, watts)
    check_energy(run, watts, account)
    if broken == "part":
        account = Account(0.99 * account.jobs_wh, account.idle_wh, account.asleep_wh)
    elif broken == "engine":
        run.intervals["busy_gpu_s"] *= 1.01
    else:
        run.history["node"] = 0
    message = {"part": "parts are", "engine": "engine counted", "full": "the node has no such GPU"}[broken]
    with pytest.raises(ValueError, match=message):
        check_energy(run, watts, account)


def test_the_line_is_the_least_over_all_orders_and_types():
    """Two jobs: all orders and types by hand."""
    need_s = np.array([[10.0, 40.0], [30.0, 30.0]])
    price, draw = np.array([0.25, 0.125]), Draw(np.array([300.0, 100.0]), 50.0)
    for theta in (0.0, 1.0, 30.0):
        joules = theta * (draw.busy_w + 50 * price) / 3600
        sums = [min(need_s[0] * (first * price + joules)) + min(need_s[1] * (second * price + joules))
                for first, second in ((1.0, 0.5), (0.5, 1.0))]
        assert np.isclose(line_s(need_s, price, draw, theta), min(sums))


@pytest.mark.parametrize("options", [{}, {"mixed": False}, {"sticky": True}, {"node_cost": 0.1}, {"utility": "inv"}])
def test_without_a_price_it_is_hadar_bit_for_bit(options):
    for seed in range(8):
        work = random_workload(seed)
        free = run_rounds(work, GreenHadar(gpu_w=tuple(watts_for(work).full_w), **options))
        plain = run_rounds(work, Hadar(**options))
        assert free.history.equals(plain.history) and free.intervals.equals(plain.intervals), seed
        assert (free.end_s == plain.end_s).all()


@pytest.mark.parametrize("price", [1.0, 1e3, 1e9])
def test_however_dear_energy_is_all_jobs_end(price):
    for seed in range(10):
        work = random_workload(seed)
        run = run_rounds(work, GreenHadar(gpu_w=tuple(watts_for(work).full_w), per_kwh=price))
        check_simulation(work, run)


def test_dear_energy_is_saved():
    work, watts = two_jobs()
    kj = {name: 3.6 * energy_of(run_rounds(work, how, restart_s=0.0), watts, OFF).whole_wh for name, how in (
        ("free", GreenHadar(restart_s=0.0, gpu_w=(240.0, 160.0))),
        ("dear", GreenHadar(restart_s=0.0, gpu_w=(240.0, 160.0), per_kwh=13.0)),
        ("late", GreenPlanned(restart_s=0.0, gpu_w=(240.0, 160.0), slack=0.5)),
        ("first", EnergyFirst((240.0, 160.0))))}
    assert np.isclose(kj["free"], 936) and all(np.isclose(kj[name], 864) for name in ("dear", "late", "first"))


@pytest.mark.parametrize("name", ["hadar-green", "hadar-green:", "hadar-green:x", "hadar-green:-1", "hadar-green:inf",
                                  "planned-green:nan", "energy-first:0.9"])
def test_a_number_that_makes_no_sense_is_refused(name):
    with pytest.raises(InputError, match="write|give 0 or more|give 1 or more"):
        record_of(name)
    with pytest.raises(InputError):
        report_of(toy_workload(), name)


def test_who_prices_energy_must_know_the_gpus():
    with pytest.raises(InputError, match="give the workload"):
        policy_of("hadar-green:1")
    assert policy_of("hadar-green:1", workload=toy_workload()).gpu_w == (270.0, 225.0, 122.0)
    work, _ = two_jobs()
    with pytest.raises(InputError, match="--hardware"):
        simulate(work, "hadar-green:1")


def test_a_report_says_energy_or_why_there_is_none():
    done = report_of(toy_workload(), "hadar")
    about = done.summary
    assert np.isclose(done.tables["jobs.csv"]["energy_kwh"].sum() + about["idle_kwh"], about["energy_kwh"])
    assert np.isclose(sum(about["jobs_kwh_by_type"].values()) + about["idle_kwh"], about["energy_kwh"])
    assert about["energy_bound_kwh"] <= about["energy_kwh"] and "asleep_kwh" not in about
    work, _ = two_jobs()
    unknown = report_of(work, "hadar")
    assert unknown.summary["energy_kwh"] is None and "energy_kwh" not in unknown.tables["jobs.csv"]
    assert any("no GPU model 'fast'" in sentence for sentence in unknown.answer())
    with pytest.raises(InputError, match="no GPU model 'fast'"):
        report_of(work, "hadar", price="1")


def test_the_command_takes_price_carbon_hardware_and_sleep(tmp_path):
    own = tmp_path / "own.toml"
    own.write_text('[gpu."K80"]\nidle_w = 100\nfull_w = 200\n')
    hadar_command(tmp_path / "a", no_charts=True)
    hadar_command(tmp_path / "b", price="1", carbon="1000", asleep_after=0.0, no_charts=True, hardware=own)
    before, after = (read_json(tmp_path / name / "summary.json") for name in "ab")
    assert after["energy_kwh"] > before["energy_kwh"] and "asleep_kwh" not in before
    assert np.isclose(after["energy_eur"], after["energy_kwh"]) and np.isclose(after["co2_kg"], after["energy_kwh"])
    assert after["asleep_kwh"] < after["energy_kwh"] and "K80 100/200 W" in after["energy_assumptions"]


@pytest.mark.parametrize("option", ["price", "carbon"])
def test_a_series_has_to_cover_the_run(option, tmp_path):
    short, long = tmp_path / "short.csv", tmp_path / "long.csv"
    short.write_text("time,value\n0,0.1\n10,0.2\n")
    long.write_text("time,value\n0,1\n1000000,1\n")
    with pytest.raises(InputError, match=r"short\.csv.*from 0 to 20 s.*add rows"):
        hadar_command(tmp_path / "short", **{option: str(short)}, no_charts=True)
    assert not (tmp_path / "short" / "summary.json").exists()
    hadar_command(tmp_path / "long", **{option: str(long)}, no_charts=True)
    about = read_json(tmp_path / "long" / "summary.json")
    paid = {"price": about["energy_eur"], "carbon": 1000 * about["co2_kg"]}[option]
    assert np.isclose(paid, about["energy_kwh"], rtol=1e-3)
