"""``python -m sched_lab`` is ``sched-lab`` (hand-written: no notebook exports a module of this name)."""

from .cli import main

if __name__ == "__main__":
    main()
