"""sched_lab: GPU-cluster scheduling, paper by paper.

Four families, one per paper, each a scheduling problem of its own:

- `sched_lab.online`: tasks arrive and are placed at once (PWR and FGD)
- `sched_lab.andreas`: training jobs with due dates, on nodes with energy prices
- `sched_lab.hadar`: training jobs share GPUs of different speed, round by round
- `sched_lab.far`: a batch of tasks on GPUs that are cut into instances (MIG)

Each has the same face: `read` a problem or take the `toy`; look into `POLICIES`; `simulate` one; `check` the result and compare it
with the `bound`; or have all of it as `report_of`. The book derives and checks every line, the chapter on notation first;
`sched-lab --help` lists the commands.
"""

from ._extras import name_extras

__version__ = "0.1.0"

name_extras()
