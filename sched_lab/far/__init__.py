"""FAR: a batch of tasks on GPUs that are cut into instances (MIG), and cut anew while it runs.

A problem is `(mig, batch)`: GPUs, and tasks with a run time on each instance size. `read` makes one of a table, `toy` is seven tasks on
one A30. `POLICIES` lists the schedulers, `simulate` runs one, `check` validates its schedule, `bound` says how early any could end, and
`report_of` has all of it with tables and charts::

    from sched_lab import far
    mig, batch = far.toy()
    schedule = far.simulate(mig, batch, policy="far-plus")
    schedule.makespan_s, far.bound(mig, batch)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
