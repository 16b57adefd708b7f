"""Place tasks one by one, and watch power and fragmentation while the cluster fills.

Start with a problem, which is nodes and tasks: `cluster, tasks = toy()`, or `read("nodes.csv", "tasks.csv")`. Run it with
`simulate(cluster, tasks, policy="pwr-fgd:0.1", seed=0)`; `POLICIES` lists who may decide. `check` is the independent
validator, `bound` what no policy can beat, `report_of` the run as tables, and `simulate_together` many runs as one
program on arrays.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
