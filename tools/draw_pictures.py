"""Draw the pictures of ideas, figures/*.svg, from the worked examples of the chapters that show them.

python tools/draw_pictures.py
"""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from pen import WIDTH, Picture, style

from sched_lab.cluster import toy_cluster
from sched_lab.far.allocations import family
from sched_lab.far.mig import mig_of, partitions
from sched_lab.far.repartition import longest_first, repartition, schedule_of
from sched_lab.far.tasks import toy_batch
from sched_lab.frag import cpu_level, fragmentation, target_of
from sched_lab.hadar.primal_dual import price
from sched_lab.power import power_of
from sched_lab.traces import target_workload, toy_tasks

ROOT = Path(__file__).resolve().parents[1]
MIDDLE = WIDTH / 2
WHOLE = 1000


def gpu(to: Picture, x: float, y: float, width: float, height: float, used: int, new: int = 0) -> None:
    """Draw a GPU: what is in use from the floor, on it what is new, in milli-GPU."""
    to.box(x, y, width, height, "sheet", 3)
    full = height * used / WHOLE
    more = height * new / WHOLE
    if used:
        to.box(x, y + height - full, width, full, "sky", 3)
    if new:
        to.box(x, y + height - full - more, width, more, "glow", 3)


def chain(to: Picture, x: float, y: float, width: float, cards: list[list[str]], looks: str) -> list[float]:
    """Draw cards below each other with arrows between them; return the height of each middle."""
    middles = []
    for number, (words, look) in enumerate(zip(cards, looks.split(), strict=True)):
        if number:
            to.arrow((x + width / 2, y), (x + width / 2, y + 16))
            y += 16
        below = to.card(x, y, width, words, look)
        middles.append((y + below) / 2)
        y = below
    return middles


def back(to: Picture, x: float, right: float, low: float, high: float) -> None:
    """Draw an arrow from low on the right of the cards back up to high."""
    to.arrow((x, low), (right, low), (right, high), (x + 1, high), look="blue")


# --- the spine and the online part

def spine() -> Picture:
    """Draw what a placement is made of, and the three ways in which the book measures it."""
    to = Picture("spine", 322, "A placement and its three measures",
                 "A cluster and the tasks of a trace meet in a placement. It is measured in three ways: what it draws "
                 "now, what it leaves that nobody can use, and what it costs over time.")
    to.card(6, 8, 156, ["Cluster", "what each node has,", "what is left of it"], "sky")
    to.card(178, 8, 156, ["Traces", "what tasks ask for,", "and how often"], "glow")
    to.arrow((84, 68), (84, 92))
    to.arrow((256, 68), (256, 92))
    to.box(6, 92, 328, 74, "pale")
    to.write(MIDDLE, 112, "a task goes to a node", "bold")
    for place, used in enumerate((1000, 500, 0, 0)):
        gpu(to, 86 + 44 * place, 122, 36, 34, used, 300 if place == 1 else 0)
    measures = [("Power", ["watts", "at this", "moment"]), ("Fragments", ["free, but", "of use for", "nobody"]),
                ("Meter", ["kWh, euros", "and CO2", "over time"])]
    for place, (name, words) in enumerate(measures):
        x = 6 + 112 * place
        to.arrow((x + 52, 166), (x + 52, 194))
        to.card(x, 194, 104, [name, *words], "mint")
    to.write(MIDDLE, 294, "None of these knows a policy:", "soft-ink")
    to.write(MIDDLE, 311, "every policy of the book is judged by them.", "soft-ink")
    return to


def opinions() -> list[tuple[int, int, int]]:
    """Return the points of ant, bee and cat for the toy task seven: spare vCPU, few watts, and their sum."""
    spare = np.array([12, 30, 64]) - 2
    watts = -power_of(toy_cluster()).gpu_full_w[:3]
    room, thrift = ((of - of.min()) * 100 // np.ptp(of) for of in (spare, watts))
    return [(int(a), int(b), int(a + b)) for a, b in zip(room, thrift, strict=True)]


def choose() -> Picture:
    """Draw how toy task seven chooses among the four nodes."""
    to = Picture("choose", 344, "A task chooses among four nodes",
                 "Task seven asks for 2 vCPU and a share of 300. Dog has no GPU. Ant, bee and cat get points for room "
                 "and for few watts: 0 and 100, 34 and 75, 100 and 0. Bee has the largest sum, 109, and its first GPU "
                 "takes the share.")
    to.card(70, 6, 200, ["seven arrives", "2 vCPU and a share of 300"], "glow")
    to.arrow((MIDDLE, 50), (MIDDLE, 70))
    to.write(192, 84, "points for", "soft-ink", "end")
    for x, word in ((222, "room"), (268, "watts"), (314, "sum")):
        to.write(x, 84, word, "soft-ink")
    nodes = [("ant", "T4", (500, 0)), ("bee", "G2", (300, 0, 0, 0)), ("cat", "A100", (0,)), ("dog", "no GPU", ())]
    points = opinions()
    best = max(range(3), key=lambda node: points[node][2])
    for row, (name, model, used) in enumerate(nodes):
        y = 92 + 54 * row
        to.box(4, y, 332, 46, "mint" if row == best else "pale")
        to.write(14, y + 20, name, "bold", "start")
        to.write(14, y + 37, model, "soft-ink", "start")
        for place, amount in enumerate(used):
            gpu(to, 78 + 29 * place, y + 8, 24, 30, amount, 300 if row == best and place == 0 else 0)
        if row < 3:
            for x, number in zip((222, 268, 314), points[row], strict=True):
                to.write(x, y + 28, str(number), "bold" if x == 314 else "")
        else:
            to.cross(88, y + 23)
            to.write(104, y + 28, "the task may not go there", "soft-ink", "start")
    to.write(MIDDLE, 324, "Nobody's favourite wins: both can live with bee.", "soft-ink")
    return to


def scraps() -> Picture:
    """Draw the tables S and W of node bee, and the sum that they give."""
    left = np.array([1000, 400, 250, 0])
    models = ["", "A100", "G2", "T4"]
    toy = target_of(target_workload(toy_tasks()), models, max_gpus=4)
    level = cpu_level(toy, 10_000)
    sharing = toy.sharing[2, level]
    whole = int(toy.whole[2, level, 1])
    able = [int(sharing[toy.share_level[amount]]) for amount in left]
    use = int(left @ np.array(able)) + WHOLE * whole
    useless = fragmentation(toy, 2, 10_000, left)
    to = Picture("scraps", 366, "What a free GPU is good for",
                 f"Node bee has four GPUs with 1000, 400, 250 and 0 left. The table S says how many tasks that share "
                 f"could use all of a GPU, W how many whole-GPU tasks: {able[0]} + {whole}, {able[1]}, "
                 f"{able[2]}. The sum "
                 f"of the products is {use}, so {useless} of {toy.num_tasks} × 1650 are of no use.")
    to.write(MIDDLE, 18, "Node bee: what is left on its GPUs", "bold")
    for place, amount in enumerate(left):
        gpu(to, 40 + 67 * place, 28, 58, 40, WHOLE - int(amount))
        to.write(69 + 67 * place, 84, f"{amount}", "bold")
    floor, unit = 222, 18

    def at(amount: float) -> float:
        return 40 + 0.24 * amount

    steps = [(0, 300, able[2]), (300, 500, 2), (500, 700, 4), (700, 1000, able[0])]
    for start, end, tasks in steps[1:]:
        to.box(at(start), floor - unit * tasks, at(end) - at(start), unit * tasks, "sky", 0)
        to.write((at(start) + at(end)) / 2, floor - 8, str(tasks))
    to.box(at(WHOLE) - 10, floor - unit * (able[0] + whole), 20, unit * whole, "mint", 0)
    to.write(at(WHOLE) + 16, floor - unit * able[0] - 5, f"W: +{whole}", "", "start")
    to.path([(at(0), floor), (at(WHOLE) + 16, floor)], "ink-line")
    for amount in (300, 500, 700, 1000):
        to.write(at(amount), floor + 16, str(amount), "soft-ink")
    to.write(at(0), 116, "tasks that could", "soft-ink", "start")
    to.write(at(0), 132, "use all that is left", "soft-ink", "start")
    to.write(at(850), floor - unit * 5 + 18, "S")
    for amount, tasks in ((1000, able[0] + whole), (400, able[1]), (250, able[2])):
        to.dot(at(amount), floor - unit * tasks, 5, "warm-ink")
    to.write(MIDDLE, floor + 33, "left on the GPU; the dots are bee's", "soft-ink")
    to.write(MIDDLE, 284, f"1000 × ({able[0]} + {whole}) + 400 × {able[1]} + 250 × {able[2]} = {use}")
    to.write(MIDDLE, 304, "tasks × milli-GPU are of use", "soft-ink")
    to.write(MIDDLE, 332, f"{toy.num_tasks} × 1650 − {use} = {useless}", "bold")
    to.write(MIDDLE, 352, "are of no use: the fragments", "soft-ink")
    return to


def columns() -> Picture:
    """Draw column generation, and the three bounds of the three eights on bee."""
    melted, priced, truth = 534.375, 573.75, 600
    to = Picture("columns", 318, "Prices and contents improve each other",
                 "A linear program mixes the contents of nodes that are known and sets a price for each task. At these "
                 "prices each type of node is filled as well as possible. That is a new content for the mixture, and a "
                 "bound. For three tasks on bee the melted node gives 534.375 watts, the prices 573.75, "
                 "the truth is 600.")
    to.card(6, 30, 142, ["Mix", "how many nodes", "hold which", "content?"], "sky")
    to.card(192, 30, 142, ["Fill", "what would one", "node hold at", "these prices?"], "glow")
    to.arrow((148, 52), (192, 52))
    to.arrow((192, 86), (148, 86))
    to.write(MIDDLE, 18, "a price for each task")
    to.path([(MIDDLE, 24), (MIDDLE, 48)], "soft-line dash")
    to.write(MIDDLE, 134, "a new content, and a bound")
    to.path([(MIDDLE, 90), (MIDDLE, 120)], "soft-line dash")
    to.write(MIDDLE, 172, "Three tasks of 700 on node bee, in watts", "bold")

    def at(watts: float) -> float:
        return 40 + 260 * (watts - 525) / 85

    to.path([(16, 222), (324, 222)], "ink-line")
    for watts, look, words, y in ((melted, "blue-ink", ["534.375", "melted node"], 242),
                                  (priced, "warm-ink", ["573.75", "at a price"], 242),
                                  (truth, "leaf-ink", ["600", "the truth"], 192)):
        to.dot(at(watts), 222, 5, look)
        to.lines(at(watts), y, words)
    to.write(MIDDLE, 290, "No scheduler draws less than a bound.", "soft-ink")
    to.write(MIDDLE, 307, "Every price gives one; good prices give good ones.", "soft-ink")
    return to


# --- jobs with due dates, types of GPUs

def andreas() -> Picture:
    """Draw the loop of ANDREAS."""
    cards = [["Something happens", "a job arrives, or one ends"],
             ["Which job is closest to being late?", "it goes first"],
             ["Where would it like to run?", "cheapest in time, else fastest"],
             ["Is there room?", "if not, it waits"],
             ["Again, in another order", "a thousand times; keep the cheapest"],
             ["Jobs run, some are moved", "energy costs, and so does lateness"]]
    to = Picture("andreas-loop", 376, "The loop of ANDREAS",
                 "An event starts it: a job arrives or ends. Jobs are served in the order of their "
                 "pressure, each on the "
                 "cheapest configuration that is in time, else the fastest. Who finds no room waits. The order is "
                 "disturbed a thousand times and the cheapest assignment kept. Then jobs run until the next event.")
    middles = chain(to, 22, 8, 268, cards, "glow pale pale pale sky mint")
    back(to, 290, 318, middles[-1], middles[0])
    to.path([(22, middles[4]), (8, middles[4]), (8, middles[1]), (13, middles[1])], "soft-line dash")
    to.arrow((12, middles[1]), (22, middles[1]))
    return to


def prices() -> Picture:
    """Draw the price ladder of a node of four GPUs."""
    ladder = price(np.arange(5), 4, 0.01, 10.0)
    to = Picture("prices", 316, "The price of a GPU as its node fills",
                 "On a node of four GPUs a GPU costs 0.01 while all are free. Each GPU taken multiplies "
                 "the price by 5.62: "
                 "0.0562, 0.316, 1.78, and 10 when none is left, more than any job can pay.")
    to.write(MIDDLE, 18, "each GPU taken: price × 5.62", "bold")
    floor = 222
    for taken, cost in enumerate(ladder):
        x = 40 + 65 * taken
        height = 24 + 50 * (np.log10(cost) + 2)
        to.box(x - 22, floor - height, 44, height, "glow" if taken == 4 else "sky", 3)
        to.write(x, floor - height - 7, f"{cost:.3g}" if taken != 1 else f"{cost:.4f}", "bold")
        for place in range(4):
            gpu(to, x - 17 + 18 * (place % 2), floor + 12 + 18 * (place // 2), 15, 15, WHOLE * (place < taken))
    to.path([(12, floor), (328, floor)], "ink-line")
    to.write(40, floor + 66, "all free:", "soft-ink")
    to.write(40, floor + 82, "come in", "soft-ink")
    to.write(284, floor + 66, "full: more than", "soft-ink")
    to.write(284, floor + 82, "any job can pay", "soft-ink")
    return to


def hadar_round() -> Picture:
    """Draw the first round of Hadar on the toy cluster, job by job."""
    to = Picture("hadar-round", 352, "A round of Hadar, job by job",
                 "All GPUs are free. A takes a V100, with a payoff of 0.994. B takes two K80, 0.499. C takes the other "
                 "V100 and two K80, 0.438. Prices rise with every step. The round runs for six minutes, and then all "
                 "are free again.")
    to.card(40, 6, 260, ["A round begins: all GPUs are free", "most payoff per GPU first: A, B, C"], "pale")
    to.arrow((MIDDLE, 50), (MIDDLE, 66))
    for x, word in ((100, "n1: V100"), (194, "n2: K80"), (278, "payoff")):
        to.write(x, 82, word, "soft-ink")
    fills = ["A.....", "A.BB..", "ACBBCC"]
    for row, (name, wants, payoff) in enumerate((("A", 1, "0.994"), ("B", 2, "0.499"), ("C", 3, "0.438"))):
        y = 92 + 58 * row
        to.box(4, y, 306, 48, "pale")
        to.write(14, y + 22, name, "bold", "start")
        to.write(14, y + 39, f"wants {wants}", "soft-ink", "start")
        for place, job in enumerate(fills[row]):
            x = 76 + 26 * place + (14 if place > 1 else 0)
            to.box(x, y + 12, 24, 24, "glow" if job == name else "sheet" if job == "." else "sky", 3)
            if job != ".":
                to.write(x + 12, y + 29, job)
        to.write(278, y + 29, payoff, "bold")
    to.arrow((MIDDLE, 256), (MIDDLE, 276))
    to.card(40, 276, 260, ["The round runs for six minutes", "C is as slow as its slowest GPU"], "mint")
    back(to, 300, 326, 298, 28)
    to.write(MIDDLE, 342, "A GPU taken makes its neighbours dearer.", "soft-ink")
    return to


def fork() -> Picture:
    """Draw the last slot of job C in five copies."""
    rates, seconds, left = (4, 2, 2, 1, 1), 40, 400
    shares = [left * rate // sum(rates) for rate in rates]
    to = Picture("fork", 340, "One job in five copies",
                 "Job C has 400 steps left. Its copies on five nodes of 4, 2, 2, 1 and 1 steps per second "
                 "get 160, 80, 80, "
                 "40 and 40 steps, so that all end after 40 seconds. Then their weights are averaged.")
    to.card(60, 6, 220, ["C has 400 steps left", "one model, five nodes"], "glow")
    y = 72.0
    to.path([(MIDDLE, 50), (MIDDLE, 60), (92, 60), (92, 240)], "soft-line")
    for rate, share in zip(rates, shares, strict=True):
        height = 14 + 9 * rate
        to.write(84, y + height / 2 + 5, f"{rate} step{'s' * (rate > 1)}/s", "", "end")
        to.arrow((92, y + height / 2), (110, y + height / 2))
        to.box(110, y, 140, height, "sky", 3)
        to.write(180, y + height / 2 + 5, f"{share} steps")
        to.path([(250, y + height / 2), (268, y + height / 2)], "soft-line")
        y += height + 6
    to.path([(92, 240), (92, y - 18)], "soft-line")
    to.path([(268, 72 + 25), (268, y + 16)], "soft-line")
    to.arrow((268, y + 16), (268, y + 34))
    to.write(180, y + 12, f"{seconds} s each", "soft-ink")
    to.card(110, y + 34, 220, ["the average of five models", "C is done after 240 s"], "mint")
    to.height = y + 90
    return to


def hadar() -> Picture:
    """Draw the part on types of GPUs: who is asked in every round, and what judges the answer."""
    to = Picture("hadar", 292, "Every six minutes",
                 "Jobs have work left, want a number of GPUs at once, and run at another speed on each "
                 "type. A scheduler "
                 "decides: Hadar by prices, HadarE with copies, Gavel by shares, Planned from the end. A round of six "
                 "minutes passes, and the scheduler is asked again. Bounds tell how early all could be done.")
    top = to.card(12, 8, 264, ["Jobs", "steps left, GPUs wanted at once,", "and a speed on each type"], "glow")
    to.arrow((144, top), (144, top + 16))
    to.box(12, top + 16, 264, 76, "pale")
    to.write(144, top + 35, "Who gets which GPUs?", "bold")
    for place, (name, way) in enumerate((("Hadar", "prices"), ("HadarE", "copies"), ("Gavel", "shares"),
                                         ("Planned", "the end"))):
        to.lines(46 + 65.5 * place, top + 58, [name, way])
    to.arrow((144, top + 92), (144, top + 108))
    low = to.card(12, top + 108, 264, ["A round of six minutes", "steps are done, jobs come and end"], "sky")
    back(to, 276, 318, low - 22, top - 30)
    to.arrow((144, low), (144, low + 16), look="leaf")
    to.card(12, low + 16, 264, ["How much sooner was possible?", "bounds that no scheduler beats"], "mint")
    to.height = low + 68
    return to


# --- cutting one GPU

def phases() -> Picture:
    """Draw the three phases of FAR, and the bound beside them."""
    cards = [["Times of each task", "on one slice, on two, ..."],
             ["1. How many slices for each task?", "a family of allocations"],
             ["2. Which instance, and cut when?", "longest first, down the tree"],
             ["3. What still ends too late?", "move it, or swap it"],
             ["A schedule", "at most 7/4 or 2 times the best"]]
    to = Picture("far-phases", 318, "The three phases of FAR",
                 "From the times of the tasks phase 1 makes a family of allocations. Phase 2 schedules "
                 "each of them down the "
                 "tree of instances. Phase 3 moves or swaps tasks that end last. The best schedule is "
                 "kept, proved to be "
                 "within 7/4 of the best on an A30, and 2 on an A100.")
    middles = chain(to, 12, 8, 264, cards, "glow pale sky pale mint")
    back(to, 276, 318, middles[3], middles[2])
    to.write(144, 310, "round again: the next allocation", "soft-ink")
    return to


def tree() -> Picture:
    """Draw what an A100 can be cut into, with one partition marked."""
    mig = mig_of("A100")
    ways = partitions(mig)
    marked = next(way for way in ways if [int(mig.tree.size[i]) for i in way] == [3, 2, 1])
    to = Picture("mig-tree", 290, "What an A100 can be cut into",
                 f"A tree of instances: each is cut into those below it. The instance of three slices on the left also "
                 f"blocks S3. Marked is one of the {len(ways)} ways to cut the GPU: three slices, two, and one.")
    depth = np.zeros(len(mig.tree.parent), int)
    for row, parent in enumerate(mig.tree.parent):
        depth[row] = depth[parent] + 1 if parent >= 0 else 0
    wide = 46
    for place in range(7):
        to.write(9 + wide * (place + 0.5), 16, f"S{place}", "soft-ink")
    for row, level in enumerate(depth):
        first, size, span = (int(of[row]) for of in (mig.tree.first_slice, mig.tree.size, mig.tree.span))
        x, y = 9 + wide * first, 26 + 46 * int(level)
        if span > size:
            to.box(x + wide * size + 2, y, wide - 4, 36, "none dash")
            to.write(x + wide * (size + 0.5), y + 23, "lost", "soft-ink")
        to.box(x + 2, y, wide * size - 4, 36, "glow" if row in marked else "pale")
        to.write(x + wide * size / 2, y + 23, str(size), "bold" if row in marked else "")
    to.write(MIDDLE, 274, f"marked: one of {len(ways)} ways to cut it", "soft-ink")
    return to


def allocation_family() -> Picture:
    """Draw the family of allocations of the toy batch on an A30."""
    mig = mig_of("A30")
    batch = toy_batch(mig)
    sizes = np.array(mig.sizes)
    members = family(batch.times_s, sizes)
    every = np.arange(len(batch.times_s))
    longest = [int(batch.times_s[every, member].max()) for member in members]
    area = [int((batch.times_s[every, member] * sizes[member]).sum()) for member in members]
    to = Picture("family", 340, "A family of allocations",
                 "Seven tasks, seven allocations. From one to the next the task that runs longest gets "
                 "more slices. The "
                 f"longest task falls from {longest[0]} to {longest[-1]} seconds, the area rises from {area[0]} to "
                 f"{area[-1]} slice-seconds.")
    to.write(10, 18, "slices of each task", "bold", "start")
    looks = {1: "pale", 2: "sky", 4: "glow"}
    for row, name in enumerate(batch.name):
        y = 30 + 30 * row
        to.write(10, y + 19, str(name), "", "start")
        for column, member in enumerate(members):
            size = int(sizes[member[row]])
            to.box(78 + 37 * column, y, 33, 26, looks[size], 3)
            is_raised = column and members[column - 1][row] != member[row]
            to.write(94.5 + 37 * column, y + 18, str(size), "bold" if is_raised else "")
            if is_raised:
                to.arrow((70 + 37 * column, y + 13), (79 + 37 * column, y + 13), look="rose")
    for y, name, numbers in ((264, "longest", longest), (284, "area", area)):
        to.write(10, y, name, "soft-ink", "start")
        for column, number in enumerate(numbers):
            to.write(94.5 + 37 * column, y, str(number))
    to.write(MIDDLE, 312, "An arrow: the longest task gets more slices.", "soft-ink")
    to.write(MIDDLE, 329, "Phase 2 schedules all seven and keeps the best.", "soft-ink")
    return to


def repartitioning() -> Picture:
    """Draw member 2 of the toy family on an A30 over time, and the tree at three moments."""
    mig = mig_of("A30")
    batch = toy_batch(mig)
    member = family(batch.times_s, np.array(mig.sizes))[1]
    plan, _, end_s = repartition(mig.tree, batch.times_s, longest_first(batch.times_s), member, np.inf, False)
    schedule = schedule_of(mig, batch.times_s, plan)
    to = Picture("repartition", 330, "A GPU is cut while it works",
                 "An A30 begins with two halves. When the left half has no more tasks of its size, at 16 "
                 "seconds, it is cut "
                 "into two single slices; the right half follows at 21 seconds. All seven tasks are done after "
                 f"{end_s:.2f} seconds.")

    def at(moment: float) -> float:
        return 34 + 10.4 * moment

    for place in range(4):
        to.write(26, 46 + 36 * place, f"S{place}", "soft-ink", "end")
    for task, row in enumerate(plan):
        first, size = int(mig.tree.first_slice[row]), int(mig.tree.size[row])
        start, end = float(schedule.start_s[task]), float(schedule.end_s[task])
        to.box(at(start), 24 + 36 * first, at(end) - at(start), 36 * size - 4, "sky" if size == 2 else "glow", 3)
        to.write((at(start) + at(end)) / 2, 24 + 36 * first + 18 * size + 3, str(batch.name[task]))
    for moment, top in ((16.12, 20), (21.24, 92)):
        to.path([(at(moment) + 1, top), (at(moment) + 1, top + 76)], "rose-line dash", 2)
    to.write(at(16.12), 14, "cut at 16.12 s", "rose-ink")
    to.path([(at(0), 170), (at(29), 170)], "ink-line")
    for moment in (0, 10):
        to.write(at(moment), 186, f"{moment} s", "soft-ink")
    to.write(at(end_s), 186, f"{end_s:.2f} s", "soft-ink", "end")
    to.write(at(21.24), 205, "cut at 21.24 s", "rose-ink")
    to.path([(at(21.24) + 1, 168), (at(21.24) + 1, 190)], "rose-line dash", 2)
    to.write(MIDDLE, 228, "the tree at 1 s, at 18 s and at 25 s", "bold")
    for column, cuts in enumerate(((False, False), (True, False), (True, True))):
        x = 16 + 110 * column
        to.box(x, 240, 88, 18, "none dash", 3)
        for half, is_cut in enumerate(cuts):
            to.box(x + 45 * half, 262, 43, 18, "none dash" if is_cut else "sky", 3)
            for single in range(2):
                left = x + 45 * half + 22.5 * single
                to.box(left, 284, 20.5, 18, "glow" if is_cut else "none dash", 3)
    to.write(MIDDLE, 322, "In colour: what exists. Cuts only go down.", "soft-ink")
    return to


# --- a reader's own cluster

def fleet() -> Picture:
    """Draw the way from files to a page, and from a page to a live decision."""
    to = Picture("fleet", 324, "From your files to an answer",
                 "Dumps of Kubernetes, records of Slurm, public traces and tables of your own become two tables and a "
                 "ledger. They are checked, replayed under several policies, and end in a page. Beside it "
                 "a live scheduler "
                 "asks, and decisions go into a journal.")
    for place, words in enumerate((["Kubernetes"], ["Slurm"], ["traces"], ["CSV"])):
        x, width = ((4, 96), (106, 68), (180, 76), (262, 74))[place]
        to.card(x, 6, width, words, "glow")
        to.arrow((x + width / 2, 34), (x + width / 2, 52))
    to.card(4, 52, 332, ["two tables, and a ledger of doubts", "sched-lab read"], "sky")
    to.arrow((84, 96), (84, 116))
    to.arrow((256, 96), (256, 116))
    left = [["Can it be true?", "sched-lab check"], ["Play it again", "under each policy", "sched-lab replay"],
            ["A page", "for whoever decides"]]
    right = [["A scheduler asks", "sched-lab serve"], ["A journal", "each decision", "can be made again"],
             ["A metric", "what is free, held, refused"]]
    for x, cards in ((4, left), (176, right)):
        chain(to, x, 116, 160, cards, "pale pale mint")
    to.write(84, 314, "what has been", "soft-ink")
    to.write(256, 314, "what is now", "soft-ink")
    return to


PICTURES: tuple[Callable[[], Picture], ...] = (
    spine, choose, scraps, columns, andreas, hadar, prices, hadar_round, fork, phases, tree, allocation_family,
    repartitioning, fleet)


def files() -> dict[str, str]:
    """Return the content of each file, by its path in the repository."""
    drawn = [draw() for draw in PICTURES]
    return {"_assets/book-pictures.css": f"/* written by tools/draw_pictures.py */\n{style()}\n",
            **{f"figures/{picture.name}.svg": picture.svg() for picture in drawn}}


if __name__ == "__main__":
    for name, content in files().items():
        (ROOT / name).write_text(content, encoding="utf-8")
        print(name, len(content), "bytes")
