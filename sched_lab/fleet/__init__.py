"""Your own cluster: dumps of Kubernetes or Slurm and public traces in, one pair of checked tables out.

`read_files("auto", files)` reads files of any of `FORMATS`, `read_cluster(folder)` what `sched-lab read` wrote. Both give
`ClusterTables`: nodes, tasks with the times at which they came, started and ended, and a ledger of all that was dropped,
filled in or interpreted on the way; `write_cluster` writes them, `check_cluster` says what cannot be right::

    from sched_lab import fleet
    tables = fleet.read_files("auto", ["nodes.json", "pods.json"])
    fleet.check_cluster(tables).summary()
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
