"""Training jobs with due dates on nodes with energy prices (ANDREAS, Filippini et al. 2021).

Start with a problem, simulate a day, and compare it with what nothing can beat:

    from sched_lab import andreas
    instance = andreas.toy()                        # or andreas.read("jobs.json")
    day = andreas.simulate(instance, policy="local")
    andreas.check(instance, day)                    # every constraint of the model
    print(day.total_eur, andreas.bound(instance))

`POLICIES` is the table of all policies: what each does and where it comes from.
`decide_now` is one decision at the present time, `report_of` what `sched-lab andreas` writes.
"""
import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
