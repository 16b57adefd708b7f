"""What computes the results chapters, in a checkout: no wheel installs it.

A module for each family has its `EXPERIMENTS`, the `CLAIMS` that their frames decide, and its
`FIGURES`; `sched-lab reproduce` runs them. The others hold what one of these needs.
"""
