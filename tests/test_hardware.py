"""The catalogue: a source for every cell, laws of ranges and instances, names of clusters, and files laid over it."""
import json
from pathlib import Path

import pytest

from sched_lab.cluster import toy_cluster
from sched_lab.far.mig import MODELS, rows_of
from sched_lab.hardware import (
    default_hardware,
    known_gpu_w,
    knows_gpu_w,
    meant_by,
    owners_of,
    raw_tables,
    read_hardware,
    spellings,
    usual_watts,
    watts_of_files,
    words_of,
)
from sched_lab.lab.frames import InputError, embedded
from sched_lab.online.model import PowerSettings
from sched_lab.power import CPU_POWER_W, GPU_POWER_W
from tests.command_line import call

HARDWARE = default_hardware()
GPUS = list(HARDWARE.gpus.values())
CPUS = list(HARDWARE.cpus.values())
TABLES = list(HARDWARE.migs.values())
ASKED_FOR = ["T4", "P100", "V100M16", "V100M32", "V100 PCIe 16GB", "V100 PCIe 32GB", "K80", "A10", "A30", "A40",
             "A100", "A100 40GB", "A100 80GB", "A100 PCIe 40GB", "A100 PCIe 80GB", "L4", "L40S", "H100 PCIe",
             "H100 SXM", "H100 NVL", "H200", "B200", "GB200", "RTX PRO 6000", "MI300X"]


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(text)
    return path


# --- cells and their sources

def test_every_key_of_a_source_is_explained_and_used():
    used = {key for one in (*GPUS, *CPUS, *TABLES) for keys in one.sources.values() for key in keys.split(", ")}
    assert used == set(HARDWARE.sources) and all(HARDWARE.sources.values())


def test_a_figure_without_a_source_says_so_and_has_a_wide_range():
    guessed = [one for one in CPUS if "no source" in HARDWARE.source_of(one, "idle_w")]
    assert guessed and all(one.idle_w.high >= 3 * one.idle_w.low for one in guessed)
    assert all("no source" not in HARDWARE.source_of(one, "full_w") for one in (*GPUS, *CPUS))


@pytest.mark.parametrize("name", ASKED_FOR)
def test_a_model_is_there(name):
    assert HARDWARE.gpus[name].full_w.value > 0


# --- laws

@pytest.mark.parametrize("one", [*GPUS, *CPUS], ids=lambda one: one.name)
def test_ranges_are_in_order_and_idle_is_below_full(one):
    assert 0 < one.idle_w.low <= one.idle_w.value <= one.idle_w.high < one.full_w.low
    assert one.full_w.low <= one.full_w.value <= one.full_w.high


def test_the_models_of_the_paper_have_the_watts_of_the_paper():
    assert {name: HARDWARE.gpu_power_w()[name] for name in GPU_POWER_W} == GPU_POWER_W
    assert HARDWARE.cpu_power_w()["E5-2682 v4"] == CPU_POWER_W["E5-2682 v4"]
    toy = toy_cluster()
    assert PowerSettings().of(toy).gpu_full_w.tolist() == [70, 150, 400, 0]


@pytest.mark.parametrize("one", [one for one in GPUS if one.mig], ids=lambda one: one.name)
def test_instances_have_no_more_memory_than_their_gpu(one):
    slices = max(profile.memory_slices for profile in one.profiles)
    for profile in one.profiles:
        assert 0 < profile.memory_mib <= one.memory_mib
        assert profile.memory_mib * slices <= one.memory_mib * profile.memory_slices * 1.01, profile.name
        named = int(profile.name.split(".")[1].split("gb")[0])
        assert 0.8 * named * 10**9 < profile.memory_mib * 2**20 < 1.08 * named * 10**9, profile.name


A30_SHAPE = ((0, 4, 4), (0, 2, 2), (0, 1, 1), (1, 1, 1), (2, 2, 2), (2, 1, 1), (3, 1, 1))
A100_SHAPE = ((0, 7, 7), (0, 4, 4), (0, 3, 4), (0, 2, 2), (0, 1, 1), (1, 1, 1), (2, 2, 2),
              (2, 1, 1), (3, 1, 1), (4, 3, 3), (4, 2, 2), (4, 1, 1), (5, 1, 1), (6, 1, 1))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_plain_instances_are_those_of_figure_4(table):
    """First slice, size and span, in preorder. 1g with two slices of memory begins at every second place."""
    shape = A30_SHAPE if table.tree == "A30" else A100_SHAPE
    assert tuple((row.first, table.plain[row.profile].compute_slices, row.span)
                 for row in rows_of(table.plain)) == shape
    assert {one.compute_slices for one in table.plain} == set(MODELS[table.tree][1])
    for profile in table.profiles:
        starts = sorted({first for first, size, _ in shape if size == profile.compute_slices})
        is_wide = profile.compute_slices == 1 and profile.memory_slices == 2
        assert list(profile.starts) == starts[::2 if is_wide else 1], profile.name


# --- names

def test_no_two_models_have_a_name_in_common():
    tables = raw_tables(embedded("hardware.toml"))
    owners = owners_of(tables["gpu"], "hardware.toml")
    assert set(owners.values()) == set(HARDWARE.gpus)
    written = [(spelled, one.name) for one in GPUS for name in (one.name, *one.aliases) for spelled in spellings(name)]
    assert len(set(written)) == len({spelled for spelled, _ in written})


@pytest.mark.parametrize(("label", "name"), [
    ("NVIDIA-H100-80GB-HBM3", "H100 SXM"), ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA-H100-PCIe", "H100 PCIe"),
    ("NVIDIA-H100-NVL", "H100 NVL"), ("NVIDIA-A100-SXM4-80GB", "A100 80GB"), ("NVIDIA-A100-SXM4-40GB", "A100 40GB"),
    ("A100-SXM4-40GB", "A100 40GB"), ("NVIDIA-A100-80GB-PCIe", "A100 PCIe 80GB"), ("A100-PCIE-40GB", "A100 PCIe 40GB"),
    ("Tesla-V100-SXM2-32GB", "V100M32"),
    ("Tesla-V100-SXM2-16GB", "V100M16"),
    ("Tesla-V100-PCIE-32GB", "V100 PCIe 32GB"),
    ("Tesla-T4", "T4"), ("nvidia-tesla-t4", "T4"), ("nvidia-l4", "L4"), ("NVIDIA-L40S", "L40S"), ("a100", "A100"),
    ("h100", "H100 SXM"), ("v100", "V100M16"), ("h200", "H200"), ("nvidia_a100-sxm4-80gb", "A100 80GB"),
    ("nvidia_h100_80gb_hbm3", "H100 SXM"), ("nvidia-h100-80gb", "H100 SXM"), ("nvidia-h100-mega-80gb", "H100 SXM"),
    ("NVIDIA-H200-NVL", "H200 NVL"), ("NVIDIA-GB200", "GB200"), ("NVIDIA-B200", "B200"), ("mi300x", "MI300X"),
    ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "RTX PRO 6000"), ("AMD_Instinct_MI300X_OAM", "MI300X"),
    ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "A100 40GB"), ("NVIDIA-A10-SHARED", "A10")])
def test_a_label_of_a_cluster_is_understood(label, name):
    assert HARDWARE.gpu(label).name == name


@pytest.mark.parametrize("label", ["", "GH200 480GB", "NVIDIA-H100-96GB-HBM3", "A100X", "NVIDIA-A10G", "MI300A", "B300",
                                   "Tesla V100-DGXS-32GB", "T4+A10", "[gpu]\n\"x\""])
def test_what_is_another_model_is_not_taken_for_a_known_one(label):
    with pytest.raises(InputError, match=r"no GPU model.*--hardware FILE with \[gpu\..*idle_w = 50") as error:
        HARDWARE.gpu(label)
    assert "\n" not in str(error.value)


def test_a_name_with_two_meanings_has_none():
    names = {words_of("A1 X"): "one", words_of("A1 Y"): "two", words_of("A1"): "three"}
    assert meant_by("A1 X Y", names) == "" and meant_by("A1 Z", names) == "three" and meant_by("A1-X", names) == "one"


def test_watts_are_found_as_clusters_write_the_model():
    for name in ("NVIDIA-H100-80GB-HBM3", "h100", "nvidia_h100_80gb_hbm3", "H100 SXM", "H100-SXM"):
        assert known_gpu_w()[name] == (70, 700) and knows_gpu_w(name)
    assert not knows_gpu_w("H999") and knows_gpu_w("H999", {"H999": (1, 2)})
    assert known_gpu_w({"T4": (1, 2)})["T4"] == (1, 2)


# --- a file of one's own

def test_a_file_changes_what_it_names_and_nothing_else(tmp_path):
    mine = read_hardware(own(tmp_path, '[gpu."L4"]\nidle_w = 11\n[cpu."EPYC 9654"]\nidle_w = [90, 95, 99]\n'))
    assert mine.gpus["L4"].idle_w == (11, 11, 11) and mine.gpus["L4"].full_w == HARDWARE.gpus["L4"].full_w
    assert mine.cpus["EPYC 9654"].idle_w == (90, 95, 99) and mine.cpus["EPYC 9654"].cores == 96
    others = {name: one for name, one in mine.gpus.items() if name != "L4"}
    assert others == {name: one for name, one in HARDWARE.gpus.items() if name != "L4"} and mine.migs == HARDWARE.migs
    assert mine.source_of(mine.gpus["L4"], "full_w") == HARDWARE.source_of(HARDWARE.gpus["L4"], "full_w")


def test_only_what_a_file_changes_is_handed_on(tmp_path):
    gpus, cpus = watts_of_files(own(tmp_path, '[gpu."H100"]\nidle_w = 71\n'))
    assert set(gpus.values()) == {(71, 700)} and "NVIDIA-H100-80GB-HBM3" in gpus and cpus == {}
    assert watts_of_files(None) == ({}, {})
    assert watts_of_files(own(tmp_path, '[gpu."T4"]\nidle_w = 9\n'))[0]["T4"] == (9, 70) != usual_watts()[0]["T4"]


def test_a_table_of_watts_wins_over_a_catalogue(tmp_path):
    watts = tmp_path / "watts.csv"
    watts.write_text("model,idle_w,full_w\nL4,1,2\n")
    gpus, _ = watts_of_files(own(tmp_path, '[gpu."L4"]\nidle_w = 11\n'), watts)
    assert gpus["L4"] == (1, 2) and gpus["NVIDIA-L4"] == (11, 72)


def test_an_alias_goes_over_to_whoever_claims_it(tmp_path):
    mine = read_hardware(own(tmp_path, '[gpu."H100 PCIe"]\naliases = ["H100", "our big ones"]\n'))
    assert mine.gpu("h100").name == "H100 PCIe" and mine.gpu("our_big_ones").name == "H100 PCIe"
    assert mine.gpu("NVIDIA-H100-80GB-HBM3").name == "H100 SXM" and mine.gpu("NVIDIA-H100-PCIe").name == "H100 PCIe"


def test_a_new_gpu_can_be_cut_as_its_file_says(tmp_path):
    mine = read_hardware(own(tmp_path, """
[gpu."B300"]
idle_w = 150
full_w = 1100
memory_mib = 275000
mig = "B300-268GB"
load_curve = "0:0,0.5:0.7,1:1"

[mig."B300-268GB".profiles]
"1g.34gb" = { compute = 1, memory = 1, memory_mib = 33000, starts = [0, 1, 2, 3, 4, 5, 6], most = 7 }
"7g.268gb" = { compute = 7, memory = 8, memory_mib = 270000, starts = [0], most = 1 }
"""))
    gpu = mine.gpu("NVIDIA-B300-SXM6-AC")
    assert [one.name for one in gpu.profiles] == ["1g.34gb", "7g.268gb"] and gpu.mig.tree == ""
    assert mine.gpu_power_w()["b300"] == (150, 1100) and gpu.load_curve


ROW = '{ compute = 1, memory = 1, memory_mib = 1, starts = [0], most = 1 }'


@pytest.mark.parametrize(("text", "words"), [
    ("idle_w = ", "not TOML"),
    ("\xff", "not TOML"), ("a = " + "[" * 100_000, "too deep"),
    ("[gpus.L4]\nidle_w = 1", r"\[gpus\] is no table"),
    ("gpu = 3", "gpu is 3, not"),
    ("gpu.L4 = 3", r'\[gpu."L4"\] is 3, not a table'),
    ('[gpu."L4"]\nidle_W = 1', "idle_W is no key.*did you mean idle_w"),
    ('[gpu."X9"]\nfull_w = 10', "idle_w is not there; add idle_w"),
    ('[gpu."L4"]\nidle_w = "12"', "idle_w is '12'; give a whole"),
    ('[gpu."L4"]\nidle_w = nan', "idle_w is nan"), ('[gpu."L4"]\nidle_w = [1, 2]', r"idle_w is \[1, 2\]"),
    ('[gpu."L4"]\nidle_w = [3, 2, 4]', "low <= value <= high"),
    ('[gpu."L4"]\nidle_w = 80', "full_w 72 is not above idle_w"),
    ('[gpu."L4"]\naliases = ["T4"]\n[gpu."T4"]\nidle_w = 9', "aliases have a name that"),
    ('[gpu."L4"]\naliases = [3]', "aliases is 3"),
    ('[gpu."L4"]\naliases = ["a\\nb"]', "on one line"), ('[gpu."a\\nb"]\nidle_w = 1\nfull_w = 2', "names is"),
    ('[gpu."L4"]\nload_curve = "bent"', "load_curve is 'bent'.*knots"),
    ('[gpu."L4"]\nmig = "X"', "mig there is no table 'X'"),
    ('[gpu."L4"]\nmig = "A30-24GB"', "memory_mib 23034 is less than its largest instance"),
    ('[gpu."L4"]\nsources.watts = "x"', "watts is no"),
    ('[cpu."X9"]\nidle_w = 1\nfull_w = 2', "cores is not there"),
    ('[cpu."X9"]\nidle_w = 3\nfull_w = 2\ncores = 4', "below idle_w"),
    ('[mig."X"]\ntree = "A30"', "profiles is not there"), ('[mig."X"]\nprofiles = 3', "profiles is 3"),
    (f'[mig."X".profiles]\n"1g" = {ROW.replace("most = 1", "most = 0")}', 'profiles."1g".* most is 0'),
    (f'[mig."X".profiles]\n"1g" = {ROW.replace("[0]", "[1, 0]")}', r"starts is \[1, 0\]"),
    (f'[mig."X".profiles]\n"1g" = {ROW.replace("[0]", "0")}', "starts is None"),
    (f'[mig."X".profiles]\n"1g" = {ROW.replace("compute = 1, ", "")}', "compute is not there"),
    ("[sources]\nx = 3", r"\[sources\] x is 3")])
def test_a_mistake_is_one_line_with_file_and_place(text, words, tmp_path):
    path = tmp_path / "own.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=words) as error:
        read_hardware(path)
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)


# --- the command

def test_the_command_shows_all_and_one(capsys):
    assert call("hardware") == 0
    told = capsys.readouterr().out
    assert all(one.name in told for one in (*GPUS, *CPUS))
    assert call("hardware", "nvidia-h100-80gb") == 0
    told = capsys.readouterr().out
    assert told.startswith("H100 SXM\n") and "1g.20gb" in told and "0,2,4,6" in told and "mig-user-guide" in told


def test_the_command_speaks_json(capsys):
    assert call("hardware", "EPYC 9654", "--json") == 0
    one = json.loads(capsys.readouterr().out)
    assert one["cores"] == 96 and one["kind"] == "cpu" and "no source" in one["sources"]["idle_w"]
    assert call("hardware", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)) == len(GPUS) + len(CPUS)


def test_what_the_command_prints_as_toml_can_be_given_to_it(tmp_path, capsys):
    assert call("hardware", "--toml") == 0
    path = own(tmp_path, capsys.readouterr().out)
    again = read_hardware(path)
    assert again.gpus == HARDWARE.gpus and again.cpus == HARDWARE.cpus and watts_of_files(path) == ({}, {})


@pytest.mark.parametrize(("arguments", "words"), [
    (("B300",), "--hardware FILE"),
    (("--json", "--toml"), "give one of them"),
    (("--hardware", "absent.toml"), "no such file")])
def test_what_cannot_be_shown_is_one_line(arguments, words, capsys):
    assert call("hardware", *arguments) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
