"""Objects of Kubernetes as JSON has them: values at the end of a path, dates and quantities."""

# A module, written by hand.

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from .dates import seconds_of


def dig(value: Any, *path: str) -> Any:
    """Value at the end of a path of names; None if the path ends before."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_at(value: Any, *path: str) -> str:
    """Text at the end of a path; numbers as they are written, anything else empty."""
    found = dig(value, *path)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return found if isinstance(found, str) else str(found) if is_number else ""


def objects_at(value: Any, *path: str) -> list[dict[str, Any]]:
    """Objects in the list at the end of a path."""
    found = dig(value, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def texts_at(value: Any, *path: str) -> dict[str, str]:
    """Names and texts of the object at the end of a path."""
    found = dig(value, *path)
    return {name: text_at(found, name) for name in found} if isinstance(found, dict) else {}


def seconds_at(value: Any, *path: str) -> float | None:
    """Seconds since 1970 of the date at the end of a path; None if it is none."""
    return seconds_of(text_at(value, *path))


QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i)?)")
SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    **{name: Fraction(10**(3 * power)) for power, name in enumerate("kMGTPE", 1)},
    **{f"{name}i": Fraction(1024**power) for power, name in enumerate("KMGTPE", 1)}}


def quantity(written: Any) -> Fraction | None:
    """Number that a quantity of Kubernetes stands for; None if it is none."""
    text = text_at({"it": written}, "it").strip()
    return number_of(text) if len(text) < 60 else None


@lru_cache(maxsize=2**12)  # pods ask for the same amounts again and again
def number_of(text: str) -> Fraction | None:
    """Number that the text of a quantity stands for; None if it is none."""
    found = QUANTITY.fullmatch(text)
    if found is None:
        return None
    power = Fraction(10)**int(found[2][1:]) if found[2] else SUFFIXES[found[3] or ""]
    return Fraction(found[1]) * power


def whole(written: Any, scale: int | Fraction = 1, *, down: bool = False) -> int | None:
    """A quantity in units of the table, rounded up or down; None if there is none."""
    number = quantity(written)
    if number is None:
        return None
    return math.floor(number * scale) if down else math.ceil(number * scale)


def mebibytes(written: Any, *, down: bool = False) -> int | None:
    """A quantity of bytes in MiB."""
    return whole(written, Fraction(1, 2**20), down=down)


def as_json(value: Any) -> str:
    """JSON on one line, names sorted."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


class Rule(NamedTuple):
    """What the value of a label has to be."""

    key: str
    operator: str
    values: tuple[str, ...]


OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def meets(rule: Rule, value: str | None) -> bool:
    """Whether a label with this value, None if the node lacks it, meets a rule."""
    if rule.operator == "In":
        return value in rule.values
    if rule.operator == "NotIn":
        return value not in rule.values
    if rule.operator in ("Exists", "DoesNotExist"):
        return (value is None) == (rule.operator == "DoesNotExist")
    try:
        number = int(value or "")
        (bound,) = map(int, rule.values)
    except ValueError:
        return False
    return number > bound if rule.operator == "Gt" else number < bound


def rule_of(said: Mapping[str, Any]) -> Rule:
    """Rule of a selector or an affinity."""
    values = said.get("values")
    texts = [text_at({"it": one}, "it") for one in values] if isinstance(values, list) else []
    return Rule(text_at(said, "key"), text_at(said, "operator"), tuple(texts))


def rules_in(selector: Any) -> list[Rule]:
    """Rules of a selector of labels, all of which have to be met; none if it has none."""
    labels = texts_at(selector, "matchLabels").items()
    return [*(Rule(key, "In", (value,)) for key, value in labels),
            *map(rule_of, objects_at(selector, "matchExpressions"))]


@dataclass
class Item:
    """An object of a dump.

    Parameters
    ----------
    kind, body : what it is
    file, row : where it stands
    event_s, is_deleted : of the event that told of it, if one did
    """

    kind: str
    body: dict[str, Any]
    file: str = ""
    row: int = 0
    event_s: float | None = None
    is_deleted: bool = False

    @cached_property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return texts_at(self.body, "metadata", "labels")

    @cached_property
    def annotations(self) -> dict[str, str]:
        """Its annotations."""
        return texts_at(self.body, "metadata", "annotations")

    @cached_property
    def allocatable(self) -> dict[str, str]:
        """What a node has for pods."""
        return texts_at(self.body, "status", "allocatable")

    @cached_property
    def name(self) -> str:
        """Its name, without the namespace."""
        return self.text("metadata", "name")

    @cached_property
    def namespace(self) -> str:
        """Its namespace."""
        return self.text("metadata", "namespace")

    @cached_property
    def is_over(self) -> bool:
        """Whether a pod has ended, or was deleted, and holds nothing any more."""
        return self.is_deleted or self.text("status", "phase") in ("Succeeded", "Failed")

    @cached_property
    def node(self) -> str:
        """Node of a pod; empty if it has none."""
        return self.text("spec", "nodeName")

    def text(self, *path: str) -> str:
        """Text at the end of a path."""
        return text_at(self.body, *path)

    def objects(self, *path: str) -> list[dict[str, Any]]:
        """Objects in the list at the end of a path."""
        return objects_at(self.body, *path)
