"""Instances on cut GPUs: where one goes, which layout serves most, who must end first, and what cannot be read."""

import json
from collections import Counter

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.fleet.ask import mig_nodes
from sched_lab.fleet.read.tables import Source, profile_named, sources_of
from sched_lab.hardware import default_hardware, read_hardware
from sched_lab.lab.frames import InputError
from sched_lab.traces import find_reference
from tests.command_line import assert_concluded, call

MIGS = default_hardware().migs
A100 = mig_nodes.cuts_of_table(MIGS["A100-40GB"])
RECORDED = [find_reference(f"kubernetes/dra_{kind}.json") for kind in ("slices", "claims", "pods")]
needs_samples = pytest.mark.skipif(None in RECORDED, reason="the recorded ResourceSlices are not on this machine")
PRODUCT = "nvidia.com/gpu.product"


def node(name, product="NVIDIA-A100-SXM4-40GB", labels=None, **amounts):
    allocatable = {"cpu": "8", "memory": "32Gi"} | {f"nvidia.com/{key}": str(n) for key, n in amounts.items()}
    return {"kind": "Node", "metadata": {"name": name, "labels": {PRODUCT: product} | (labels or {})},
            "status": {"allocatable": allocatable}}


def pod(name, at="", phase="", created="2026-01-01T00:00:00Z", priority=0, claims=(), **limits):
    limits = {key if "/" in key else f"nvidia.com/{key}": str(n) for key, n in limits.items()}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "t", "creationTimestamp": created},
            "spec": {"nodeName": at, "priority": priority, "containers": [{"resources": {"limits": limits}}],
                     "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims]},
            "status": {"phase": phase or ("Running" if at else "Pending")}}


def read(*objects):
    return mig_nodes.read_mig([Source("all.json", json.dumps({"items": objects}).encode())])


def configuration(plan):
    return yaml.safe_load("\n".join(mig_nodes.mig_parted(plan)))["mig-configs"]["sched-lab-n"]


def place_of(profile, start, cuts=A100):
    return next(k for k, one in enumerate(cuts.placements) if one[:2] == (profile, start))


def gpu(*held, cuts=A100, name="0"):
    """Return a GPU on which pods p0, p1, ... have instances."""
    made = [mig_nodes.Instance(place_of(*one, cuts), f"t/p{k}") for k, one in enumerate(held)]
    return mig_nodes.MigGpu("n", name, cuts, tuple(made))


# --- table and trees

@pytest.mark.parametrize("table", MIGS.values(), ids=MIGS)
def test_counters_allow_as_many_instances_as_the_table_says(table):
    cuts = mig_nodes.cuts_of_table(table)
    assert dict(zip(cuts.profiles, mig_nodes.most_of(cuts, cuts.capacity), strict=True)) == {
        one.name: one.most for one in table.profiles if not one.name.endswith("+me.all")}


def test_a_catalogue_of_ones_own_says_what_a_gpu_can_be_cut_into(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text("""[mig."B300-268GB".profiles]
"1g.34gb" = { compute = 1, memory = 1, memory_mib = 33000, starts = [0, 1, 2, 3, 4, 5, 6], most = 7 }
"7g.268gb" = { compute = 7, memory = 8, memory_mib = 270000, starts = [0], most = 1 }
""")
    objects = [node("n", "NVIDIA-B300-SXM6-AC", gpu=1), pod("a", **{"mig-1g.34gb": 2})]
    source = [Source("all.json", json.dumps({"items": objects}).encode())]
    with pytest.raises(InputError, match="no node has a GPU that can be cut"):
        mig_nodes.read_mig(source)
    plan = mig_nodes.recommend_mig(mig_nodes.read_mig(source, read_hardware(path).migs))
    assert len(plan.served) == 1 and plan.table["profile"].tolist() == ["1g.34gb", "1g.34gb"]


@pytest.mark.parametrize(("product", "memory", "profiles", "model"), [
    ("NVIDIA-A100-SXM4-40GB", None, (), "A100-40GB"), ("A100-PCIE-80GB", None, (), "A100-80GB"),
    ("NVIDIA-H100-80GB-HBM3", 81559, (), "H100-80GB"), ("NVIDIA-H100-NVL", 95830, (), "H100-94GB"),
    ("NVIDIA-H200", 143771, (), "H200-141GB"), ("NVIDIA-A30", None, (), "A30-24GB"), ("A100", 40960, (), "A100-40GB"),
    ("A100", None, ("3g.20gb",), "A100-40GB"), ("A100", None, ("1g.10gb",), ""), ("A100", None, (), ""),
    ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 97887, (), "RTX-PRO-6000-96GB"),
    ("NVIDIA-GB200", 189471, (), "GB200-186GB"), ("NVIDIA-B200", 183359, (), "B200-180GB"),
    ("NVIDIA-RTX-6000-Ada-Generation", 49140, (), ""), ("Tesla-T4", 15360, (), ""),
    ("NVIDIA-A100-SXM4-40GB", None, ("3g.40gb",), ""), ("NVIDIA-A3000", None, (), "")])
def test_a_gpu_is_found_in_the_table(product, memory, profiles, model):
    assert mig_nodes.model_named(product, memory, set(profiles), MIGS) == model


@pytest.mark.parametrize("written", ["nvidia.com/mig-1g.10gb.me", "mig-1g.10gb+me", "1G.10GB+ME", "1g.10gb.me.shared"])
def test_a_profile_has_one_name(written):
    assert profile_named(written) == "1g.10gb+me"


# --- one instance

def chosen(gpus, profile, **weights):
    """Return GPU and start of the place that is found."""
    found = mig_nodes.find_place(gpus, [one.left for one in gpus], range(len(gpus)), profile,
                       tuple((f"{name[1:]}.20gb", n) for name, n in weights.items()))
    return found and (found.gpu, gpus[found.gpu].cuts.placements[found.placement].start)


@pytest.mark.parametrize(("gpus", "profile", "weights", "place"), [
    ([gpu()], "3g.20gb", {}, (0, 4)), ([gpu()], "3g.20gb", {"_4g": 1}, (0, 4)),  # where four still fit
    ([gpu(), gpu(("4g.20gb", 0)), gpu()], "1g.5gb", {}, (1, 6)),  # broken already
    ([gpu(("3g.20gb", 0)), gpu(("3g.20gb", 4))], "2g.10gb", {"_4g": 1}, (0, 4)),
    # a 1g beside a 2g at 4: slice 6 is all that is left on the right; without demand any place is as good
    ([gpu()], "2g.10gb", {"_3g": 1}, (0, 0)), ([gpu()], "2g.10gb", {"_3g": 1, "_4g": 1}, (0, 4)),
    # an instance that exists is taken before one that is as good
    ([mig_nodes.MigGpu("n", "0", A100, (mig_nodes.Instance(place_of("2g.10gb", 2)),))], "2g.10gb", {"_7g": 1}, (0, 2)),
    ([gpu(("1g.5gb+me", 6))], "1g.5gb+me", {}, None), ([gpu(("1g.5gb+me", 6))], "1g.5gb", {}, (0, 4)),
    ([gpu(("7g.40gb", 0))], "1g.5gb", {}, None), ([gpu()], "1g.10gb.xl", {}, None), ([], "1g.5gb", {}, None),
    ([mig_nodes.MigGpu("n", "0", A100, (mig_nodes.Instance(mig_nodes.WHOLE, "t/p"),))], "1g.5gb", {}, None)])
def test_an_instance_goes_where_least_is_lost(gpus, profile, weights, place):
    assert chosen(gpus, profile, **weights) == place


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_is_chosen_fits_and_no_place_loses_less(data):
    model = data.draw(st.sampled_from(["A30-24GB", "A100-40GB", "H200-141GB"]))
    cuts = mig_nodes.cuts_of_table(MIGS[model])
    held = []
    left = cuts.capacity
    for number in data.draw(st.lists(st.integers(0, len(cuts.placements) - 1), max_size=6)):
        if mig_nodes.has_room(cuts.placements[number].needs, left):
            left = mig_nodes.less(left, cuts.placements[number].needs)
            held.append(mig_nodes.Instance(number, f"t/p{len(held)}"))
    profile = data.draw(st.sampled_from(cuts.profiles))
    found = chosen([mig_nodes.MigGpu("n", "0", cuts, tuple(held))], profile)
    after = {one.start: mig_nodes.less(left, one.needs) for one in cuts.placements
             if one.profile == profile and mig_nodes.has_room(one.needs, left)}
    assert (found is None) == (not after)
    if found is not None:
        assert min(after[found[1]]) >= 0

        def useful(rest):  # shares by hand: what of the GPU's slices and engines an instance takes
            return sum(n * sum(next(one.needs for one in cuts.placements if one.profile == name))
                       for name, n in zip(cuts.profiles, mig_nodes.most_of(cuts, rest), strict=True))
        assert useful(after[found[1]]) == max(map(useful, after.values()))


# --- layouts

@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([f"mig-{name}" for name in A100.profiles]), max_size=14),
       st.lists(st.sampled_from([f"mig-{name}" for name in A100.profiles]), max_size=5), st.integers(1, 3))
def test_a_layout_holds(asks, running, number):
    """No counter is taken twice, what runs stays, each pod that waits is told one thing, and the YAML says the same."""
    shown = Counter(running)
    running = [pod(f"r{k}", "n", **{name.replace("+", "."): 1}) for k, name in enumerate(running)]
    objects = [node("n", **{name.replace("+", "."): count for name, count in shown.items()}, gpu=number),
               *running, *(pod(f"w{k}", **{name.replace("+", "."): 1}) for k, name in enumerate(asks))]
    cluster = read(*objects)
    plan = mig_nodes.recommend_mig(cluster)
    rows = plan.table
    for one in cluster.gpus:
        here = rows[(rows["gpu"] == one.name) & rows["state"].isin(["in use", "idle", "ready", "new"])]
        left = one.cuts.capacity
        for row in here.itertuples():
            left = mig_nodes.less(left, one.cuts.placements[place_of(row.profile, row.start)].needs)
        assert min(left) >= 0
    assert sorted(rows.loc[rows["state"] == "in use", "pod"]) == sorted(f"t/r{k}" for k in range(len(running)))
    waiting = rows[rows["state"].isin(["ready", "new", "later", "nowhere"])]
    assert sorted(waiting["pod"]) == sorted(f"t/w{k}" for k in range(len(asks)))
    assert (rows.loc[rows["state"] == "later", "after"] != "").all()
    config = configuration(plan)
    stated = sum((Counter(one.get("mig-devices", {})) for one in config), Counter())
    assert stated == Counter(rows.loc[rows["state"].isin(["in use", "idle", "ready", "new"]), "profile"])
    assert [one["devices"] for one in config] == [[int(one.name)] for one in cluster.gpus]


def test_older_and_more_urgent_pods_are_served_first():
    cluster = read(node("n", **{"mig-7g.40gb": 1}), pod("late", created="2026-01-03T00:00:00Z", **{"mig-4g.20gb": 1}),
                   pod("old", created="2026-01-02T00:00:00Z", **{"mig-4g.20gb": 1}),
                   pod("urgent", created="2026-01-09T00:00:00Z", priority=5, **{"mig-4g.20gb": 1}))
    rows = mig_nodes.recommend_mig(cluster).table.set_index("pod")
    assert rows.loc["t/urgent", "state"] == "new"
    assert rows.loc["t/old", "after"] == "t/urgent" and rows.loc["t/late", "after"] == "t/old"


def test_a_pod_that_asks_for_several_instances_has_them_on_one_node():
    nodes = [node(name, **{"mig-4g.20gb": 1}) for name in "ab"]
    busy = pod("busy", "a", **{"mig-4g.20gb": 1})
    both = pod("both", **{"mig-3g.20gb": 2})
    rows = mig_nodes.recommend_mig(read(*nodes, busy, both)).table
    assert set(rows.loc[rows["pod"] == "t/both", "node"]) == {"b"}
    rows = mig_nodes.recommend_mig(read(*nodes, busy, pod("more", "b", **{"mig-4g.20gb": 1}), both)).table
    later = rows[rows["pod"] == "t/both"]
    assert list(later["state"]) == ["later"] * 2 and set(later["after"]) <= {"", "t/busy"}
    assert "t/busy" in set(later["after"]) and set(later["node"]) == {"a"}


def test_a_pod_that_has_to_end_anyway_makes_room_for_the_next():
    cluster = read(node("n", **{"mig-7g.40gb": 1, "mig-4g.20gb": 1, "mig-3g.20gb": 1}),
                   *(pod(f"has-{size}", "n", **{f"mig-{size}": 1}) for size in ("7g.40gb", "4g.20gb", "3g.20gb")),
                   *(pod(f"w{k}", **{"mig-2g.10gb": 1}) for k in range(3)))
    later = mig_nodes.recommend_mig(cluster).table.query("state == 'later'")
    assert set(later["after"]) == {"t/has-7g.40gb"} and sorted(later["start"]) == [0, 2, 4]


def part_of(group, name, least, **limits):
    one = pod(name, **limits)
    one["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io/name": group,
                                 "pod-group.scheduling.sigs.k8s.io/min-available": str(least)}
    return one


def test_pods_of_a_group_get_their_instances_together_or_not_at_all():
    """By hand: a GPU has room for one 4g and a 3g beside it, so that two 4g that start together get nothing."""
    pair = [part_of("g", f"g{k}", 2, **{"mig-4g.20gb": 1}) for k in range(2)]
    alone = pod("alone", **{"mig-4g.20gb": 1})
    plan = mig_nodes.recommend_mig(read(node("n", gpu=1), *pair, alone))
    assert plan.served == {"t/alone"} and plan.table.set_index("pod")["state"]["t/g1"] == "apart"
    assert plan.sentences()[1] == ("t/g0 (4g.20gb): its group scheduling.sigs.k8s.io t/g cannot start: "
                                   "not all of its pods that wait get instances")
    assert mig_nodes.recommend_mig(read(node("n", gpu=2), *pair)).served == {"t/g0", "t/g1"}
    plan = mig_nodes.recommend_mig(read(node("n", gpu=2), part_of("g", "g0", 3, **{"mig-1g.5gb": 1})))
    assert not plan.served and plan.sentences()[1].endswith("cannot start: it lacks 2 of its pods")


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb"]), st.sampled_from("abc-")),
                max_size=9))
def test_no_group_gets_a_part_whatever_is_asked_for(asks):
    size = Counter(group for _, group in asks)
    objects = [pod(f"{group}{k}", **{f"mig-{name}": 1}) if group == "-" or size[group] == 1 else
               part_of(group, f"{group}{k}", size[group], **{f"mig-{name}": 1}) for k, (name, group) in enumerate(asks)]
    plan = mig_nodes.recommend_mig(read(node("n", gpu=2), *objects))
    for job in {ask.job for ask in plan.cluster.asks} - {""}:
        parts = {ask.pod for ask in plan.cluster.asks if ask.job == job}
        assert parts & plan.served in (set(), parts) and (job in plan.apart) == (not parts & plan.served)
    assert len(plan.served) + plan.table["state"].isin(["later", "apart"]).sum() == len(asks)


def test_pods_end_where_they_overlap():
    holds = [(False, 4, "small", (1, 1, 0, 0)), (False, 8, "other", (0, 0, 1, 1))]
    assert mig_nodes.ends_for((1, 0, 0, 0), (1, 1, 1, 1), holds) == ("small",)
    assert mig_nodes.ends_for((0, 1, 1, 0), (1, 1, 1, 1), holds) == ("other", "small")
    assert mig_nodes.ends_for((0, 0, 0, 2), (1, 1, 1, 1), holds) is None
    assert mig_nodes.ends_for((3,), (7,), [(False, 4, "four", (4,)), (False, 3, "three", (3,))]) == ("four",)


# --- what is read

def test_counts_that_divide_are_cut_alike():
    cluster = read(node("n", labels={"nvidia.com/gpu.count": "2"}, **{"mig-3g.20gb": 2, "mig-1g.5gb": 8}))
    assert [sorted(A100.placements[one.placement].profile for one in each.instances) for each in cluster.gpus] == [
        ["1g.5gb"] * 4 + ["3g.20gb"]] * 2


def test_a_node_that_shows_instances_as_gpus():
    cluster = read(node("n", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", {"nvidia.com/mig.strategy": "single"}, gpu=14),
                   pod("runs", "n", gpu=1), pod("waits", gpu=1))
    held = [(one.pod, gpu.cuts.placements[one.placement].profile) for gpu in cluster.gpus for one in gpu.instances]
    assert len(cluster.gpus) == 2 and held.count(("t/runs", "1g.5gb")) == 1 and {name for _, name in held} == {"1g.5gb"}
    assert [ask.profiles for ask in cluster.asks] == [("1g.5gb",)]


def test_gpus_that_are_not_cut_can_be():
    cluster = read(node("n", gpu=2), pod("runs", "n", gpu=1), pod("waits", **{"mig-3g.20gb": 1}))
    plan = mig_nodes.recommend_mig(cluster)
    assert plan.table[["gpu", "profile", "state", "pod"]].to_numpy().tolist() == [
        ["0", "whole", "in use", "t/runs"], ["1", "3g.20gb", "new", "t/waits"]]
    config = configuration(plan)
    assert config[0] == {"devices": [0], "mig-enabled": False} and config[1]["mig-devices"] == {"3g.20gb": 1}


def test_what_cannot_be_used_is_in_the_ledger():
    cluster = read(node("good", gpu=1), node("odd", **{"mig-1g.7gb": 1}), node("many", **{"mig-4g.20gb": 1000}),
                   pod("ghost", "good", **{"mig-1g.5gb": 1}))
    said = " ".join(cluster.ledger["reason"])
    assert "not in the table of profiles" in said and "can be cut into" in said and "does not show" in said
    assert {one.node for one in cluster.gpus} == {"good"}


def test_nodes_without_such_gpus_are_refused():
    for one in (node("n", "Tesla-T4", gpu=1), node("n", labels={"nvidia.com/mig.capable": "false"}, gpu=1)):
        with pytest.raises(InputError, match="no node has a GPU that can be cut"):
            read(one)


def test_ended_pods_hold_nothing_and_ask_for_nothing():
    cluster = read(node("n", **{"mig-7g.40gb": 1}), pod("done", "n", "Succeeded", **{"mig-7g.40gb": 1}),
                   pod("failed", "", "Failed", **{"mig-7g.40gb": 1}), pod("cpu"), pod("waits", **{"mig-7g.40gb": 1}))
    assert mig_nodes.recommend_mig(cluster).table[["state", "pod"]].to_numpy().tolist() == [["ready", "t/waits"]]


def test_pods_must_end_before_mig_parted_changes_a_gpu():
    cluster = read(node("n", **{"mig-3g.20gb": 1, "mig-1g.5gb": 1}), pod("# end: [", "n", **{"mig-3g.20gb": 1}),
                   pod("waits", **{"mig-4g.20gb": 1}))
    plan = mig_nodes.recommend_mig(cluster)
    assert '    # must end before this GPU changes: "t/# end: ["' in mig_nodes.mig_parted(plan)
    assert configuration(plan)[0]["mig-devices"] == {"3g.20gb": 1, "4g.20gb": 1}


# --- DRA

def slices(profiles=("1g.5gb", "3g.20gb", "4g.20gb"), name="n", driver="gpu.nvidia.com"):
    """Publish a GPU as a driver does that counts memory slices, one device for each placement."""
    spec = {"driver": driver, "nodeName": name, "pool": {"name": name}}
    counters = {f"memory-slice-{k}": {"value": "1"} for k in range(8)} | {"multiprocessors": {"value": "98"}}
    devices = [{"name": f"gpu-0-mig-{one.profile}-{one.start}", "attributes": {"profile": {"string": one.profile}},
                "consumesCounters": [{"counterSet": "set", "counters": {
                    f"memory-slice-{k}": {"value": str(need)} for k, need in enumerate(one.needs[:8]) if need}
                    | {"multiprocessors": {"value": str(14 * int(one.profile[0]))}}}]}
               for one in A100.placements if one.profile in profiles]
    devices.append({"name": "gpu-0", "consumesCounters": [{"counterSet": "set", "counters": counters}]})
    return [{"kind": "ResourceSlice", "metadata": {"name": f"{name}-{part}"}, "spec": spec | body} for part, body in (
        ("c", {"sharedCounters": [{"name": "set", "counters": counters}]}), ("d", {"devices": devices}))]


def claim(name, profile="", device="", node="n"):
    rule = {"cel": {"expression": f"device.attributes['gpu.nvidia.com'].profile == '{profile}'"}}
    wish = {"deviceClassName": "mig.nvidia.com", "selectors": [rule] if profile else []}
    results = [{"driver": "gpu.nvidia.com", "pool": node, "device": device}] if device else []
    return {"kind": "ResourceClaim", "metadata": {"name": name, "namespace": "t"},
            "spec": {"devices": {"requests": [{"name": "g", "exactly": wish}]}},
            "status": {"allocation": {"devices": {"results": results}}} if device else {}}


def test_a_slice_is_read_as_the_tree_would_have_it():
    cluster = read(*slices())
    assert chosen(cluster.gpus, "3g.20gb") == (0, 4) and chosen(cluster.gpus, "whole") == (0, 0)
    assert mig_nodes.mig_parted(mig_nodes.recommend_mig(cluster)) == []


def test_claims_say_which_device_is_in_use():
    cluster = read(*slices(), claim("has", device="gpu-0-mig-1g.5gb-2"), claim("wants", "4g.20gb"),
                   claim("all"), pod("has", "n", claims=["has"]), pod("wants", claims=["wants"]),
                   pod("all", claims=["all"]))
    rows = mig_nodes.recommend_mig(cluster).table.set_index("pod")
    assert rows.loc["t/has", ["device", "state", "known"]].tolist() == ["gpu-0-mig-1g.5gb-2", "in use", "claim"]
    assert rows.loc["t/wants", ["device", "state", "after"]].tolist() == ["gpu-0-mig-4g.20gb-0", "later", "t/has"]
    assert rows.loc["t/all", "device"] == "gpu-0"


def test_claims_take_devices_and_resources_take_what_a_plugin_has():
    """Each where the other has the better place: an idle instance there, a GPU that is broken already here."""
    claims = [claim("c", "3g.20gb"), pod("c", claims=["c"]), claim("has", device="gpu-0-mig-1g.5gb-6", node="d"),
              pod("has", "d", claims=["has"])]
    cluster = read(*slices(name="d"), node("p", **{"mig-3g.20gb": 2}), *claims, pod("r", **{"mig-1g.5gb": 1}))
    rows = mig_nodes.recommend_mig(cluster).table.set_index("pod")
    assert rows.loc[["t/c", "t/r"], "node"].tolist() == ["d", "p"]


def test_counters_of_any_amount_and_any_number_are_read_quickly():
    """Devices that counters alone would allow twice, and as many as a slice may have."""
    spec = {"driver": "gpu.lab", "nodeName": "n", "pool": {"name": "n"}}
    body = spec | {"sharedCounters": [{"name": "s", "counters": {"units": {"value": "1500m"}}}],
                   "devices": [{"name": f"d{k}", "attributes": {"profile": {"string": "1g.5gb"}}, "consumesCounters": [
                       {"counterSet": "s", "counters": {"units": {"value": "100m"}}}]} for k in range(64)]}
    cluster = read({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": body})
    cuts = cluster.gpus[0].cuts
    assert mig_nodes.most_of(cuts, cuts.capacity) == (15,)


@needs_samples
def test_recorded_gpus_under_dra():
    cluster = mig_nodes.read_mig(sources_of(RECORDED))
    assert [(gpu.node, gpu.devices[one.placement], one.pod) for gpu in cluster.gpus for one in gpu.instances] == [
        (f"n000{1 + k // 2}", f"gpu-0-mig-3g-{k % 2}", f"lab/dra{(k + 2) % 4}") for k in range(4)]


# --- files

@pytest.mark.parametrize(("asked", "code", "said"), [
    ("4g.20gb", 0, "# 1 of 1 pods"), ("1g.9gb", 1, "no GPU here can make such an instance")])
def test_the_command_prints_a_file_for_mig_parted(tmp_path, capsys, asked, code, said):
    for name, body in (("nodes", node("n", **{"mig-3g.20gb": 1})),
                       ("pods", pod("# a\nversion: v9", **{f"mig-{asked}": 1}))):
        (tmp_path / f"{name}.json").write_text(json.dumps({"items": [body]}))
    files = "--nodes", tmp_path / "nodes.json", "--pods", tmp_path / "pods.json"
    assert call("recommend", *files, "--mig") == code
    text = capsys.readouterr().out
    assert said in text
    assert_concluded(text, "# ")
    assert list(yaml.safe_load(text)) == ["version", "mig-configs"] and yaml.safe_load(text)["version"] == "v1"
    assert call("recommend", *files, "--mig", "--json") == code
    told = json.loads(capsys.readouterr().out)
    assert told["layout"][-1 if code else 0]["pod"] == "t/# a\nversion: v9" and said.removeprefix("# ") in str(told)


def test_files_that_are_no_objects_are_one_error():
    with pytest.raises(InputError):
        mig_nodes.read_mig([Source("bad.json", b"{")])
    with pytest.raises(InputError):
        mig_nodes.read_mig([])
