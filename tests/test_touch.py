"""The kernels in the pages give what the package gives; node runs them here, a browser in test_touch_pages.py."""
import base64
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sched_lab import touch
from sched_lab.andreas.greedy import SearchOptions
from sched_lab.andreas.instances import toy_instance
from sched_lab.andreas.policies import policy_of as andreas_policy
from sched_lab.andreas.proxy import PERIOD_S, RHO, code_objective, paper_objective
from sched_lab.far.allocations import family
from sched_lab.far.bounds import lower_bound
from sched_lab.far.mig import mig_of
from sched_lab.far.refine import far
from sched_lab.hadar.model import nothing_runs
from sched_lab.hadar.primal_dual import NO_TOLL, Place, find_alloc, node_prices, serve
from sched_lab.lab.frames import InputError, MissingPackage
from sched_lab.lab.jit import interpreted
from sched_lab.online.inflation import play
from sched_lab.online.policies import policy_of
from tools import widget_kernels

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("WIDGETS", ROOT / "_assets" / "widgets"))
NODE = shutil.which("node")
LINKER = importlib.util.find_spec("ziglang") or any(
    shutil.which(f"wasm-ld{version}") for version in ("", *(f"-{number}" for number in range(14, 31))))


@pytest.fixture(scope="module", autouse=True)
def in_plain_python():
    """Run the package's side in Python itself: to compile it would take longer than all else here."""
    with interpreted(True):
        yield


needs_node = pytest.mark.skipif(not NODE, reason="node is not installed")


class Kernels:
    """A node that has loaded a widget's kernels and answers questions."""

    def __init__(self, name: str) -> None:
        self.node = subprocess.Popen([NODE, str(ROOT / "tests" / "widget_kernels.mjs"), str(FOLDER), name], text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, kernel: str, after: tuple[str, ...] = (), **given: object) -> dict[str, object]:
        def plain(value):
            return value.tolist() if isinstance(value, np.ndarray | np.generic) else value

        given = {path.replace("__", "."): plain(value) for path, value in given.items()}
        text = json.dumps({"kernel": kernel, "given": given, "after": after}).replace("Infinity", '"Infinity"')
        self.node.stdin.write(text + "\n")
        self.node.stdin.flush()
        return json.loads(self.node.stdout.readline())


@pytest.fixture
def kernels(request):
    page = Kernels(request.param)
    with page.node:     # closes its input, by which it ends
        yield page


def stored(name: str) -> dict[str, object]:
    """Return what a page loads, as JSON."""
    text = (FOLDER / f"{name}.kernels.js").read_text(encoding="utf-8")
    return json.loads(text[text.index("{"):text.rindex("}") + 1])


def test_all_widgets_are_stored_with_their_hash():
    for name in widget_kernels.WIDGETS:
        kept = stored(name)
        wasm = base64.b64decode(kept["wasm"])
        assert (len(wasm), hashlib.sha256(wasm).hexdigest()) == (kept["bytes"], kept["sha256"])
        assert (FOLDER / f"{name}.js").is_file()


STATE = ("cpu_left_milli", "memory_left_mib", "gpu_left_milli")


@needs_node
@pytest.mark.parametrize("kernels", ["place"], indirect=True)
@pytest.mark.parametrize(("name", "policy", "alpha"), [
    ("fgd", 0, 0.1), ("pwr", 1, 0.1), ("pwr-fgd:0.85", 2, 0.85), ("joint", 3, 0.1)])
def test_place_decides_as_the_engine_does(kernels, name, policy, alpha):
    """A whole run, task by task: nodes, GPUs, watts and lost GPU, to the last bit."""
    world = widget_kernels.small_world()
    state = {path: column.copy() for path, column in zip(STATE, world.state, strict=True)}
    tasks = np.concatenate([widget_kernels.small_arrivals(seed) for seed in (20, 21)])
    trail = play(policy_of(name), widget_kernels.small_world(), tasks, np.zeros(len(tasks), np.int64), engine="plain")
    rules = widget_kernels.small_rules(world, alpha)
    for arrival, task in enumerate(tasks):
        now = {f"world__state__{path}": column for path, column in state.items()}
        seen = kernels("weigh", task=task, rules__weights=rules.weights, **now)
        node, mask = seen["node"][policy], seen["gpu_mask"][policy] if seen["node"][policy] >= 0 else 0
        assert (node, mask) == (trail.node[arrival], trail.gpu_mask[arrival])
        put = kernels("put", tuple(f"world.state.{path}" for path in STATE), task=task, node=node, gpu_mask=mask, **now)
        state = {path: np.array(put["after"][f"world.state.{path}"]) for path in STATE}
        cpu, gpu, lost = np.array(put["value"]).sum(axis=0)
        assert (cpu / 1000, gpu / 1000, lost / world.target.num_tasks) == tuple(trail.curve[arrival, [0, 1, 4]])
    assert (trail.node >= 0).any() and (trail.node < 0).any()


@needs_node
@pytest.mark.parametrize("kernels", ["place"], indirect=True)
def test_an_exception_of_a_kernel_ends_the_call(kernels):
    """The engine refuses GPUs that cannot hold the task; the next call works again."""
    wrong = kernels("put", task=11, node=0, gpu_mask=1)
    assert "unreachable" in wrong["error"]
    assert kernels("put", task=0, node=-1)["value"][0][0] > 0
    assert "takes no nonsense" in kernels("put", nonsense=1)["error"]


def random_times_s(rng, sizes: tuple[int, ...]) -> np.ndarray:
    """Three to eight tasks that run no longer on more slices, some of equal times."""
    tasks = rng.integers(3, 9)
    alone_s = rng.integers(2, 60, tasks)[:, None]
    return np.round(alone_s / np.array(sizes) ** rng.choice([0.0, 0.3, 0.7, 1.0, 1.1], (tasks, 1)), 1) + 0.1


@needs_node
@pytest.mark.parametrize("kernels", ["cut"], indirect=True)
@pytest.mark.parametrize("model", widget_kernels.CUT_MODELS)
def test_cut_is_far(kernels, model):
    """Family, plans, starts and steps of random batches to the last bit, and sums but for rounding."""
    mig = mig_of(model)
    fields = widget_kernels.flat(widget_kernels.gpu_of(mig), "gpu")
    gpu = {path.replace(".", "__"): field for path, field in fields.items()}
    rng = np.random.default_rng(53)
    moved = 0
    for _ in range(15):
        times_s = random_times_s(rng, mig.sizes)
        found = kernels("cut", times_s=times_s, **gpu)
        far_found = far(mig, times_s)
        assert found["members"] == family(times_s, np.array(mig.sizes)).tolist()
        assert (found["member"], found["makespans_s"][found["member"]]) == (far_found.member, far_found.before_s)
        assert found["made"][1:] == [far_found.moves, far_found.swaps]
        last = "refined" if found["is_kept"] else "placed"
        schedule = far_found.schedule
        assert found[f"{last}.instance"] == schedule.instance.tolist()
        assert found[f"{last}.start_s"] == schedule.start_s.tolist()
        assert found[f"{last}.makespan_s"] == pytest.approx(schedule.makespan_s, rel=1e-12, abs=0)
        assert found["bound_s"] == pytest.approx(lower_bound(mig, times_s), rel=1e-12, abs=0)
        moved += sum(found["made"][1:])
    assert moved > 0


@needs_node
@pytest.mark.parametrize("kernels", ["prices"], indirect=True)
@pytest.mark.parametrize("eta", [None, 100.0])
def test_prices_are_hadars(kernels, eta):
    """The queue served job by job: places exactly, payoffs and prices but for the last bits of the browser's power."""
    terms, queue = widget_kernels.toy_terms(eta)
    free = terms.cluster.node_gpus.copy()
    given = {"terms__low": terms.low, "terms__high": terms.high}
    price = kernels("node_prices", free=free, **given)["value"]
    taken = []
    for job in queue.tolist():
        assert price == pytest.approx(node_prices(terms, free), rel=1e-12, abs=0)
        payoff, place = find_alloc(terms, job, free, node_prices(terms, free), Place(*(np.empty(0, np.int64),) * 2))
        found = kernels("ask", ("free", "node_price"), job=job, free=free, node_price=price, **given)
        assert (found["node"], found["gpus"]) == (place.node.tolist(), place.gpus.tolist())
        assert float(found["payoff"]) == pytest.approx(payoff, rel=1e-12, abs=0)
        free, price = np.array(found["after"]["free"]), found["after"]["node_price"]
        taken += [[job, *pair] for pair in zip(found["node"], found["gpus"], strict=True) if float(found["payoff"]) > 0]
    served = serve(terms, NO_TOLL, queue, nothing_runs(), terms.cluster.node_gpus.copy(), False)
    assert taken == served.T.tolist() and len(taken) > 2


@needs_node
@pytest.mark.parametrize("kernels", ["queue"], indirect=True)
def test_queue_decides_as_andreas_does(kernels):
    """All five policies and both objectives for due dates at random, to the last bit."""
    instance = toy_instance()
    rng = np.random.default_rng(33)
    how = SearchOptions(max_iterations=200)
    for _ in range(10):
        due_s = rng.integers(0, 200, 5) * 60.0
        now_s = float(rng.choice([0, 600, 1800]))
        jobs = instance.jobs._replace(due_s=due_s)
        found = kernels("decide_all", jobs__due_s=due_s, now_s=now_s)
        for k, name in enumerate(widget_kernels.DECIDERS):
            node, configuration = andreas_policy(name, how)(instance.fleet, jobs, now_s)
            assert (found["node"][k], found["configuration"][k]) == (node.tolist(), configuration.tolist())
            asked = (instance.fleet, jobs, now_s, node, configuration, RHO)
            assert float(found["paper_eur"][k]) == paper_objective(*asked, PERIOD_S)
            assert float(found["code_eur"][k]) == code_objective(*asked)


@pytest.mark.skipif(not LINKER, reason="neither wasm-ld nor the package ziglang is installed")
def test_the_stored_kernels_are_those_of_the_package(tmp_path):
    """Built again, one widget is the same file; the others are compared by what they compute."""
    name = "prices"
    build = [sys.executable, str(ROOT / "tools" / "build_widgets.py"), "--into", str(tmp_path), name]
    subprocess.run(build, check=True, capture_output=True)
    text = (tmp_path / f"{name}.kernels.js").read_text(encoding="utf-8")
    made_by = re.search(r'"made_by": "(.*)"', text)[1]
    if made_by != stored(name)["made_by"]:
        pytest.skip(f"the stored kernels are by {stored(name)['made_by']}, these by {made_by}")
    same = (FOLDER / f"{name}.kernels.js").read_text(encoding="utf-8") == text
    assert same, "the kernels have changed: run python tools/build_widgets.py"


@needs_node
@pytest.mark.parametrize("name", widget_kernels.WIDGETS)
def test_a_widget_for_jupyterlab_is_a_module(name, tmp_path):
    """The same scripts, as what anywidget loads; node reads it."""
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    shown = touch.widget(name)
    module = tmp_path / "widget.mjs"
    module.write_text(f"{shown._esm}", encoding="utf-8")
    look = f"import('{module.as_uri()}').then((m) => console.log(typeof m.default.render))"
    done = subprocess.run([NODE, "-e", look], check=True, capture_output=True, text=True)
    assert done.stdout == "function\n" and "--w-ink" in f"{shown._css}"


def test_a_widget_names_what_it_lacks():
    with pytest.raises(InputError, match="there is no widget 'chess'.*place, cut, prices, queue"):
        touch.widget("chess")


def test_without_anywidget_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(MissingPackage, match=re.escape("sched_lab[widgets]")):
        touch.widget("place")
