"""A catalogue of GPUs, CPUs and MIG profiles, a source for every cell, ranges where sources differ, and files of one's own laid over it."""

# A module, written by hand.

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from .lab.frames import InputError, embedded, read_toml
from .power import GPU_POWER_W, load_permille, read_cpu_power, read_gpu_power

__all__ = ['Hardware', 'default_hardware', 'read_hardware']


class Watts(NamedTuple):
    """Whole watts: the least and the greatest of what sources say, and what is computed with."""

    low: int
    value: int
    high: int


@dataclass(frozen=True)
class MigProfile:
    """A size of instance that a GPU can be cut into.

    Parameters
    ----------
    name : as NVIDIA writes it, `1g.10gb+me`
    compute_slices, memory_slices : what it takes of the GPU
    memory_mib : memory of an instance, as the driver counts it
    starts : first memory slices that are allowed
    most : instances of it that a GPU can have, if it has no others
    """

    name: str
    compute_slices: int
    memory_slices: int
    memory_mib: int
    starts: tuple[int, ...]
    most: int


@dataclass(frozen=True)
class MigTable:
    """What GPUs of one kind can be cut into.

    Parameters
    ----------
    name : of the kind, `H100-80GB`
    tree : key of `far.mig.MODELS`, whose times of cutting it has; empty if nobody has measured any
    profiles : from small to large
    sources : keys of `Hardware.sources` by cell; several are joined by commas
    """

    name: str
    tree: str
    profiles: tuple[MigProfile, ...]
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def slices(self) -> tuple[int, int]:
        """Compute slices and memory slices of a GPU."""
        return (max(one.compute_slices for one in self.profiles),
                max(one.memory_slices for one in self.profiles))

    @property
    def memory_mib(self) -> int:
        """Memory of a GPU: that of its largest instance."""
        return max(one.memory_mib for one in self.profiles)

    @property
    def plain(self) -> tuple[MigProfile, ...]:
        """Of each number of compute slices, ascending, the profile with the least memory."""
        first: dict[int, MigProfile] = {}
        for one in sorted(self.profiles, key=lambda one: (
                one.compute_slices, one.memory_slices, one.most == 1, one.name)):
            first.setdefault(one.compute_slices, one)
        return tuple(first.values())


@dataclass(frozen=True)
class GpuModel:
    """A GPU model.

    Parameters
    ----------
    name, aliases : what it is called
    idle_w, full_w : without a process, and at its limit
    memory_mib : as the driver counts it; 0 if it is not known
    mig : what it can be cut into; None if it cannot be cut
    load_curve : how power rises with load (`load_permille`); empty if nobody has said
    sources : keys of `Hardware.sources` by cell; several are joined by commas
    """

    name: str
    aliases: tuple[str, ...]
    idle_w: Watts
    full_w: Watts
    memory_mib: int = 0
    mig: MigTable | None = None
    load_curve: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def profiles(self) -> tuple[MigProfile, ...]:
        """Profiles of its instances; empty if it cannot be cut."""
        return self.mig.profiles if self.mig else ()


@dataclass(frozen=True)
class CpuModel:
    """A CPU package: its watts when idle and at its thermal design power, and its cores.

    Parameters
    ----------
    name : as nodes call it
    idle_w, full_w : of one package
    cores : of one package
    sources : keys of `Hardware.sources` by cell
    """

    name: str
    idle_w: Watts
    full_w: Watts
    cores: int
    sources: Mapping[str, str] = field(default_factory=dict)


VENDOR = {"nvidia", "amd", "tesla", "instinct"}


def words_of(name: str) -> frozenset[str]:
    """Words that tell models apart: {a100, sxm4, 80gb} of `NVIDIA-A100-SXM4-80GB-MIG-1g.10gb`."""
    plain = re.sub(r"[-_ ](shared|mig[-_ ].*)$", "", name.casefold())
    return frozenset(re.findall(r"[a-z0-9+]+", plain)) - VENDOR


def spellings(name: str) -> Iterator[str]:
    """A name as people, labels of Kubernetes and Slurm write it."""
    for blank in (" ", "-", "_"):
        written = name.replace(" ", blank)
        yield written
        yield written.casefold()


def meant_by(name: str, names: Mapping[frozenset[str], str]) -> str:
    """The entry that a name means; empty if there is none, or more than one.

    Parameters
    ----------
    name : of a GPU
    names : entries by the words of their names
    """
    words = words_of(name)
    if words in names:
        return names[words]
    memory = {word for word in words if re.fullmatch(r"\d+gb", word)}
    parts = [known for known in names if known < words and memory <= known]
    most = max(map(len, parts), default=0)
    found = {names[known] for known in parts if len(known) == most}
    return found.pop() if len(found) == 1 else ""


@dataclass(frozen=True, eq=False)
class Hardware:
    """A catalogue: models by name, and the sources that their cells name.

    Parameters
    ----------
    gpus, cpus : entries
    migs : tables of what GPUs can be cut into
    sources : what each key of a source stands for, a sentence or an address
    """

    gpus: Mapping[str, GpuModel]
    cpus: Mapping[str, CpuModel]
    migs: Mapping[str, MigTable]
    sources: Mapping[str, str]

    @cached_property
    def names(self) -> dict[frozenset[str], str]:
        """Names of models by the words of all their names."""
        aliases = {words_of(name): one.name for one in self.gpus.values() for name in one.aliases}
        return aliases | {words_of(name): name for name in self.gpus}

    def gpu(self, name: str) -> GpuModel:
        """Find a model by a name, an alias, or a label of a cluster.

        Raises
        ------
        InputError : there is none, or it is not clear which
        """
        if found := meant_by(name, self.names):
            return self.gpus[found]
        raise InputError(f"there is no GPU model {name!r:.80} in the catalogue", value=name,
                         mend=mend_of(name, self.gpus))

    def gpu_power_w(self) -> dict[str, tuple[int, int]]:
        """Idle and full watts by every spelling of every name."""
        watts = {one.name: (one.idle_w.value, one.full_w.value) for one in self.gpus.values()}
        aliased = [(name, one.name) for one in self.gpus.values() for name in one.aliases]
        known = [*aliased, *((name, name) for name in self.gpus)]
        return {written: watts[model] for name, model in known for written in spellings(name)}

    def cpu_power_w(self) -> dict[str, tuple[int, int, int]]:
        """Idle and full watts and cores of CPU packages by name."""
        return {one.name: (one.idle_w.value, one.full_w.value, one.cores)
                for one in self.cpus.values()}

    def source_of(self, entry: GpuModel | CpuModel | MigTable, cell: str) -> str:
        """Say in words where a cell of an entry comes from; empty if nobody has said.

        Parameters
        ----------
        entry : one of the catalogue
        cell : `idle_w`, `full_w`, `memory_mib`, `cores`, `profiles`, ...
        """
        keys = filter(None, entry.sources.get(cell, "").split(", "))
        return "; ".join(self.sources.get(key, key) for key in keys)


def mend_of(name: str, known: Mapping[str, Any]) -> str:
    """What to write so that a model is known."""
    near = difflib.get_close_matches(name, known, 1, 0.8)
    table = f'[gpu."{" ".join(name.split())[:40]}"] with idle_w = 50 and full_w = 300, say'
    return (f"{f'did you mean {near[0]}? Or ' if near else ''}give --hardware FILE with {table}; "
            "sched-lab hardware lists what is known")


class Place(NamedTuple):
    """A table of a file, for messages."""

    file: str
    table: str

    def refuse(self, key: str, problem: str, mend: str) -> NoReturn:
        """Say what is wrong with a key.

        Raises
        ------
        InputError : naming file, table and key
        """
        where = f"[{self.table}]{f' {key}' if key else ''}"
        raise InputError(f"{where} {problem}", file=self.file, mend=mend)

    def check_keys(self, values: Any, known: Mapping[str, Any] | set[str]) -> None:
        """Refuse what is no table, and keys that it does not have."""
        if not isinstance(values, dict):
            self.refuse("", f"is {values!r:.60}, not a table", f"begin it with [{self.table}]")
        for key in values.keys() - set(known):
            near = difflib.get_close_matches(key, known, 1)
            self.refuse(key, "is no key of such a table",
                        f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}")


MOST = 10**9


def whole(place: Place, key: str, value: Any, least: int = 0) -> int:
    """Check a whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        place.refuse(key, f"is {value!r:.60}", f"give a whole number, {least} or more")
    return value


def whole_watts(place: Place, key: str, value: Any) -> Watts:
    """Check whole watts, or a range of them."""
    parts = value if isinstance(value, list) and len(value) == 3 else [value] * 3
    watts = Watts(*(whole(place, key, part) for part in parts))
    if list(watts) != sorted(watts):
        place.refuse(key, f"is {value!r:.60}", "give [low, value, high] with low <= value <= high")
    return watts


def text(place: Place, key: str, value: Any) -> str:
    """Check a text on one line."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        place.refuse(key, f"is {value!r:.60}", "give a text in quotes, on one line")
    return value


def texts(place: Place, key: str, value: Any) -> tuple[str, ...]:
    """Check a list of texts; one text is a list of one."""
    parts = value if isinstance(value, list) else [value]
    return tuple(text(place, key, part) for part in parts)


def curve(place: Place, key: str, value: Any) -> str:
    """Check a load curve."""
    try:
        load_permille(text(place, key, value))
    except InputError as error:
        place.refuse(key, f"is {value!r:.60}", f"give knots such as 0:0,0.5:0.7,1:1 ({error})")
    return str(value)


def named_sources(place: Place, key: str, value: Any) -> dict[str, str]:
    """Check a table of sources by cell."""
    place.check_keys(value, {*GPU, *CPU, *MIG, "starts"})
    return {cell: ", ".join(texts(place, f"sources.{cell}", keys)) for cell, keys in value.items()}


def first_slices(place: Place, key: str, value: Any) -> tuple[int, ...]:
    """Check the first memory slices of a profile."""
    first = [whole(place, key, start) for start in (value if isinstance(value, list) else [None])]
    if not first or first != sorted(set(first)):
        place.refuse(key, f"is {first!r:.60}", "give first memory slices such as [0, 2, 4]")
    return tuple(first)


Check = Callable[[Place, str, Any], Any]
one_or_more = partial(whole, least=1)
GPU: dict[str, Check] = {"aliases": texts, "idle_w": whole_watts, "full_w": whole_watts,
                         "memory_mib": whole, "mig": text, "load_curve": curve,
                         "sources": named_sources}
CPU: dict[str, Check] = {"idle_w": whole_watts, "full_w": whole_watts, "cores": whole,
                         "sources": named_sources}
MIG: dict[str, Check] = {"tree": text, "profiles": lambda place, key, value: value,
                         "sources": named_sources}
PROFILE: dict[str, Check] = {"compute": one_or_more, "memory": one_or_more,
                             "memory_mib": one_or_more, "starts": first_slices, "most": one_or_more}


def checked(place: Place, values: Any, checks: Mapping[str, Check],
            needed: Iterable[str]) -> dict[str, Any]:
    """Values of a table, each of them checked, and no needed one absent."""
    place.check_keys(values, checks)
    for key in needed:
        if key not in values:
            place.refuse(key, "is not there", f"add {key} = ... to [{place.table}]")
    return {key: checks[key](place, key, value) for key, value in values.items()}


def profile_of(place: Place, name: str, values: Any) -> MigProfile:
    """A profile of a table."""
    inside = Place(place.file, f'{place.table}.profiles."{name}"')
    known = checked(inside, values, PROFILE, PROFILE)
    return MigProfile(name, *(known[key] for key in PROFILE))


def mig_of(place: Place, name: str, values: Any) -> MigTable:
    """A table of profiles."""
    known = checked(place, values, MIG, ["profiles"])
    rows = known["profiles"]
    if not isinstance(rows, dict) or not rows:
        place.refuse("profiles", f"is {rows!r:.60}", 'begin it with [mig."KIND".profiles]')
    profiles = tuple(profile_of(place, row, rows[row]) for row in rows)
    return MigTable(name, known.get("tree", ""), profiles, known.get("sources", {}))


def gpu_of(place: Place, name: str, values: Any, migs: Mapping[str, MigTable]) -> GpuModel:
    """A GPU model of a table."""
    known = checked(place, values, GPU, ["idle_w", "full_w"])
    if known["full_w"].value <= known["idle_w"].value:
        place.refuse("full_w", f"{known['full_w'].value} is not above idle_w",
                     "give idle_w < full_w")
    if mig := known.pop("mig", ""):
        if mig not in migs:
            place.refuse("mig", f"there is no table {mig!r:.60} of profiles",
                         f"choose one of {', '.join(migs)}, or write [mig.\"{mig}\"]")
        known["mig"] = migs[mig]
        if migs[mig].memory_mib > known["memory_mib"]:
            place.refuse("memory_mib", f"{known['memory_mib']} is less than its largest instance "
                         "has", f"give {migs[mig].memory_mib} or more, or another mig")
    return GpuModel(name, known.pop("aliases", ()), **known)


def cpu_of(place: Place, name: str, values: Any) -> CpuModel:
    """A CPU package of a table."""
    known = checked(place, values, CPU, ["idle_w", "full_w", "cores"])
    if known["full_w"].value < known["idle_w"].value or not known["cores"]:
        place.refuse("full_w", "is below idle_w, or there is no core",
                     "give idle_w <= full_w, and cores")
    return CpuModel(name, **known)


def owners_of(gpus: Mapping[str, Any], file: str) -> dict[frozenset[str], str]:
    """Models of one file by the words of their names and aliases."""
    owners: dict[frozenset[str], str] = {}
    for name, values in gpus.items():
        place = Place(file, f'gpu."{name}"')
        place.check_keys(values, GPU)
        own = {words_of(name), *map(words_of, texts(place, "aliases", values.get("aliases", [])))}
        for words in own:
            if owners.get(words, name) != name:
                place.refuse("aliases", f"have a name that {owners[words]} has as well",
                             "give each name to one model")
            owners[words] = name
    return owners


def overlaid(before: Mapping[str, Any], own: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Tables of GPUs with those of a reader laid over them."""
    names = {words_of(alias): name for name, values in before.items()
             for alias in [name, *values.get("aliases", [])]}
    named = {name if name in before else names.get(words_of(name), name): values
             for name, values in own.items()}
    owners = owners_of(named, file)
    merged = {name: {**values, "aliases": [alias for alias in values.get("aliases", [])
                                           if owners.get(words_of(alias), name) == name]}
              for name, values in before.items()}
    for name, values in named.items():
        kept = merged.get(name, {})
        aliases = [*kept.get("aliases", []), *texts(Place(file, name), "aliases",
                                                    values.get("aliases", []))]
        sources = {**kept.get("sources", {}), **values.get("sources", {})}
        merged[name] = {**kept, **values, "aliases": list(dict.fromkeys(aliases)),
                        "sources": sources}
    return merged


def raw_tables(path: str | Path) -> dict[str, Any]:
    """Tables of a file, of the four kinds.

    Raises
    ------
    InputError : it cannot be read, is not TOML, or has other tables
    """
    found = read_toml(path)
    for kind in found.keys() - {"gpu", "cpu", "mig", "sources"}:
        raise InputError(f"[{kind}] is no table of a catalogue", file=path,
                         mend='there are [gpu."NAME"], [cpu."NAME"], [mig."KIND"], [sources]')
    for kind, tables in found.items():
        if not isinstance(tables, dict):
            raise InputError(f"{kind} is {tables!r:.60}, not a table", file=path,
                             mend=f'write [{kind}."NAME"] above its values')
    return found


def hardware_in(tables: Mapping[str, Any], file: str) -> Hardware:
    """Check the tables of a catalogue.

    Parameters
    ----------
    tables : by kind
    file : whose they are, for messages

    Raises
    ------
    InputError : naming file, table, key and mend
    """
    for kind, named in tables.items():
        for name in named:
            text(Place(file, kind), "names", name)
    owners_of(tables.get("gpu", {}), file)
    said = Place(file, "sources")
    sources = {key: text(said, key, words) for key, words in tables.get("sources", {}).items()}
    migs = {name: mig_of(Place(file, f'mig."{name}"'), name, values)
            for name, values in tables.get("mig", {}).items()}
    gpus = {name: gpu_of(Place(file, f'gpu."{name}"'), name, values, migs)
            for name, values in tables.get("gpu", {}).items()}
    cpus = {name: cpu_of(Place(file, f'cpu."{name}"'), name, values)
            for name, values in tables.get("cpu", {}).items()}
    return Hardware(gpus, cpus, migs, sources)


@cache
def default_hardware() -> Hardware:
    """Read the catalogue that comes with the package."""
    path = embedded("hardware.toml")
    return hardware_in(raw_tables(path), path.name)


def read_hardware(path: str | Path) -> Hardware:
    """Read a catalogue of one's own, laid over the one that comes with the package.

    Parameters
    ----------
    path : TOML with tables as in `data/embedded/hardware.toml`; a key that is there changes it

    Raises
    ------
    InputError : naming file, table, key and mend
    """
    before = raw_tables(embedded("hardware.toml"))
    own = raw_tables(path)
    merged = {kind: {**before[kind], **own.get(kind, {})} for kind in ("mig", "sources")}
    merged["gpu"] = overlaid(before["gpu"], own.get("gpu", {}), str(path))
    cpus = own.get("cpu", {})
    for name, values in cpus.items():
        Place(str(path), f'cpu."{name}"').check_keys(values, CPU)
    merged["cpu"] = before["cpu"] | {name: before["cpu"].get(name, {}) | values
                                     for name, values in cpus.items()}
    return hardware_in(merged, str(path))


GpuWatts = dict[str, tuple[int, int]]
CpuWatts = dict[str, tuple[int, int, int]]


@cache
def usual_watts() -> tuple[GpuWatts, CpuWatts]:
    """Watts of GPUs and CPUs that are known without any file: the catalogue's, and the paper's."""
    hardware = default_hardware()
    return {**hardware.gpu_power_w(), **GPU_POWER_W}, hardware.cpu_power_w()


def known_gpu_w(own: Mapping[str, tuple[int, int]] | None = None) -> GpuWatts:
    """Watts of all GPU models that are known: those given, the paper's, and the catalogue's."""
    return {**usual_watts()[0], **(own or {})}


def knows_gpu_w(model: str, own: Mapping[str, tuple[int, int]] | None = None) -> bool:
    """Whether the watts of a GPU model are known."""
    return model in usual_watts()[0] or model in (own or ())


def known_cpu_w(own: Mapping[str, tuple[int, int, int]] | None = None) -> CpuWatts:
    """Watts and cores of all CPU packages that are known: those given, and the catalogue's."""
    return {**usual_watts()[1], **(own or {})}


def hardware_of(path: str | Path | None) -> Hardware:
    """Catalogue of the option `--hardware`: the file's, or the one that comes with the package.

    Raises
    ------
    InputError : as `read_hardware`
    """
    return read_hardware(path) if path else default_hardware()


def changed_watts(hardware: Hardware) -> tuple[GpuWatts, CpuWatts]:
    """Watts that a catalogue has otherwise than the one that comes with the package."""
    gpus, cpus = usual_watts()
    return ({name: watts for name, watts in hardware.gpu_power_w().items()
             if gpus.get(name) != watts},
            {name: watts for name, watts in hardware.cpu_power_w().items()
             if cpus.get(name) != watts})


def watts_of_files(hardware: str | Path | None, gpu_power: str | Path | None = None,
                   cpu_power: str | Path | None = None) -> tuple[GpuWatts, CpuWatts]:
    """Watts of GPUs and CPUs that files add or change.

    Parameters
    ----------
    hardware : a catalogue, TOML
    gpu_power, cpu_power : tables of watts, CSV, which win over the catalogue

    Raises
    ------
    InputError : naming file, place and mend
    """
    gpu_w, cpu_w = changed_watts(hardware_of(hardware))
    return (gpu_w | (read_gpu_power(gpu_power) if gpu_power else {}),
            cpu_w | (read_cpu_power(cpu_power) if cpu_power else {}))
