"""Training jobs share GPUs of different speed, round by round, until all are done: Hadar, HadarE and their competitors.

`toy()` is a `Workload` to redo by hand, `read(jobs, cluster, throughputs)` takes three tables, `draw_workload` draws
the paper's jobs. `POLICIES` says what each scheduler does, `simulate(workload, "hadar")` runs one, `check` is the
validator of what happened, `bound(workload)` the time in s before which no schedule ends, and `report_of` all of it
with tables and charts. A scheduler of your own is a class with `allocate(state)`; `run_rounds` runs it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
