"""A policy is a record in one table; whatever runs, explains or tests policies reads the table, and none asks for a name."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .frames import InputError, advice_on, nearest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ['PolicyRecord', 'PolicyTable']

Form = TypeVar("Form")


@dataclass(frozen=True)
class PolicyRecord(Generic[Form]):
    """What the book knows about one policy.

    Parameters
    ----------
    name : as in `--policy`, frames and charts
    sentence : what it does, in one sentence; help texts and pages print it
    source : paper and section, or who thought of it
    scalar_form : what the engine of the family calls for one run
    array_form : what its lockstep engine calls for many runs, one for each stage; None if there is
        none
    options : names of the options that the policy listens to
    is_slow : whether a decision may take seconds, so that it is left out where all are compared
    needs_watts : whether it may look at watts, so that every GPU model must have some; a record
        that does not say needs them
    colour : in every chart, "#RRGGBB"; if empty one that is still free
    labels : what charts also call it
    """

    name: str
    sentence: str
    source: str
    scalar_form: Form
    array_form: Any | None = None
    options: tuple[str, ...] = ()
    is_slow: bool = False
    needs_watts: bool = True
    colour: str = ""
    labels: tuple[str, ...] = ()


_TABLES: list[PolicyTable[Any]] = []


class PolicyTable(Mapping[str, PolicyRecord[Form]]):
    """The policies of a family, by name, in the order given.

    Parameters
    ----------
    records : one for each policy
    patterns : names with a part to fill in, such as `pwr-fgd:ALPHA`, and what they mean
    """

    def __init__(self, *records: PolicyRecord[Form],
                 patterns: Mapping[str, str] | None = None) -> None:
        _TABLES.append(self)
        self._records = {record.name: record for record in records}
        self.patterns = dict(patterns or {})

    def __getitem__(self, name: str) -> PolicyRecord[Form]:
        return self._records[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def record(self, name: str) -> PolicyRecord[Form]:
        """Record of a policy.

        Raises
        ------
        InputError : there is no such policy
        """
        if name in self._records:
            return self._records[name]
        names = list(self.sentences())
        stem, _, filled = name.partition(":")
        stems = {one.partition(":")[0]: one for one in reversed(names)}
        meant = stems.get(nearest(stem, stems), "")
        if filled and ":" in meant:
            meant = f"{meant.partition(':')[0]}:{filled}"
        raise InputError(f"there is no policy {name!r:.60}", value=name,
                         mend=advice_on(name, names, f"{meant:.60}"))

    def sentences(self) -> dict[str, str]:
        """What each policy does, and each pattern means."""
        return {name: record.sentence for name, record in self.items()} | self.patterns

    def frame(self) -> pd.DataFrame:
        """One row per policy: policy, sentence, source, and whether it runs in lockstep."""
        import pandas as pd

        rows = [(record.name, record.sentence, record.source, record.array_form is not None)
                for record in self.values()]
        return pd.DataFrame(rows, columns=["policy", "sentence", "source", "lockstep"])


def policy_tables() -> list[PolicyTable[Any]]:
    """Every table that has been made, so that a chart can give each policy a colour."""
    return list(_TABLES)


@cache
def load_families() -> None:
    """Make the tables of all families: a chart may name a policy of any, and has imported none."""
    package = __name__.partition(".")[0]
    for found in iter_modules(import_module(package).__path__, f"{package}."):
        if found.ispkg and find_spec(f"{found.name}.policies"):
            import_module(f"{found.name}.policies")
