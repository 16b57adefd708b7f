"""A journal plays itself again bit for bit, says what was torn off, and no other file is written to."""
import gzip
import json
import os
import random
import shutil
from pathlib import Path

import pytest

from sched_lab import __version__
from sched_lab.fleet.live.bridge_command import kept
from sched_lab.fleet.live.core import (
    Asked,
    BindFailed,
    Bound,
    Committing,
    LiveCluster,
    LiveNode,
    LivePod,
    LiveSettings,
    NodeGone,
    NodeSeen,
    Passed,
    PodGone,
    PodSeen,
    Share,
)
from sched_lab.fleet.live.journal import Journal, is_journal, open_journal, replay_journal
from sched_lab.lab.frames import InputError, OutputError
from sched_lab.online.model import PowerSettings
from sched_lab.traces import toy_tasks
from tests.command_line import call

SETTINGS = LiveSettings("pwr-fgd:0.1", toy_tasks(), PowerSettings("package", {"B9": (10, 20)}, None, "linear"), 20.0, 5)
NODES = [NodeSeen(LiveNode(name, "T4" if name < "c" else "B9", 2, 8000, None, '{"zone": "öst"}')) for name in "abcd"]


def ask(number: int, *nodes: str, milli: int = 300) -> Asked:
    who = LivePod(f"u{number}", f"team/pod-{number}", 700, 64, (Share(1, milli),) if number % 4 else ())
    return Asked(who, nodes or None, float(number) / 3, number % 5 > 0)


EVENTS = [*NODES, *(ask(number) for number in range(8)), ask(9, "b", "d", "a"), ask(10, "d", "c", "b", "a"),
          ask(11, "c"), ask(12, "c", "strange"), Committing("u3", 4.5), Bound("u3"), BindFailed("u6"), Passed(25.25),
          PodSeen(LivePod("x", "x", 1, 1, (Share(1, 10, "1"), Share(1, 20)), "T4", "", "a")), PodGone("u1"),
          NodeGone("b"), PodSeen(LivePod("y", "y", 1, 1)), ask(13), ask(14, milli=2000), ask(15, "nowhere")]


def written(path: Path, events=EVENTS, settings: LiveSettings = SETTINGS, **files) -> LiveCluster:
    journal = Journal(path, LiveCluster(settings), **files)
    for event in events:
        journal.apply(event)
    journal.close()
    return journal.live


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("journal") / "journal"
    written(path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path, recorded) -> Path:
    file = tmp_path / "journal"
    file.write_bytes(recorded)
    return file


def test_a_journal_plays_itself_again(path):
    frame = replay_journal(path)
    assert frame["same"].all() and frame.attrs["torn_bytes"] == 0
    assert frame["what"].tolist() == ["decision"] * 15 + ["state"]
    asked = frame[frame["what"] == "decision"]
    assert asked["pod"].tolist()[:2] == ["team/pod-0", "team/pod-1"] and (asked["milliseconds"] >= 0).all()
    chosen = [json.loads(said).get("node", "") for said in asked["said"]]
    assert set(chosen) >= {"", "a", "c"} and "refused" in json.loads(asked["said"].iloc[-2])


def test_it_has_all_that_a_replay_needs(path):
    first, *lines = map(json.loads, path.read_text().splitlines())
    assert (first["journal"], first["sched_lab"], first["policy"], first["seed"]) == (1, __version__, "pwr-fgd:0.1", 5)
    assert len(first["target"]["sha256"]) == 64 and sum(first["target"]["classes"]["count"]) >= 8
    assert lines[0]["event"] == "NodeSeen" and lines[0]["node"]["labels"] == '{"zone": "öst"}'
    names = {line["pod"]["uid"]: {key: line[key] for key in ("nodes", "but") if key in line}
             for line in lines if line.get("event") == "Asked"}
    assert [names[f"u{n}"] for n in (7, 9, 10, 11, 12)] == [{}, {"but": ["c"]}, {"but": []}, {"nodes": ["c"]},
                                                            {"nodes": ["c", "strange"]}]


def test_what_has_changed_is_found(path):
    text = path.read_text()
    told = text.replace('"gpu_list":"0","runner_up"', '"gpu_list":"1","runner_up"', 1)
    assert told != text
    path.write_text(told)
    assert (~replay_journal(path)["same"]).sum() == 1
    lines = text.splitlines(keepends=True)
    moved = next(k for k, line in enumerate(lines) if '"Bound"' in line)
    path.write_text("".join(lines[:moved] + lines[moved + 1:]))  # an event is missing
    frame = replay_journal(path)
    assert set(frame.loc[~frame["same"], "what"]) == {"version", "decision", "state"}


def test_a_torn_last_line_is_left_out_and_cut_off_by_the_next_writer(path, recorded):
    path.write_bytes(recorded[:-30])
    frame = replay_journal(path)
    lines = recorded.splitlines(keepends=True)
    assert frame["same"].all() and frame.attrs["torn_bytes"] == len(lines[-1]) - 30
    assert path.read_bytes() == recorded[:-30]  # reading changes nothing
    written(path)
    assert path.read_bytes().startswith(b"".join(lines[:-1]) + b'{"journal"')
    again = replay_journal(path)
    assert again["same"].all() and again.attrs["torn_bytes"] == 0 and (again["what"] == "decision").sum() == 30


@pytest.mark.parametrize("length", [0, 3, 20])
def test_a_journal_that_was_killed_in_its_first_line_is_begun_again(path, recorded, length):
    path.write_bytes(recorded[:length])
    written(path)
    assert replay_journal(path)["same"].all()


@pytest.mark.parametrize("content", [b"name,cpu\n", b"\n", b'{"items": []}', b"{", b"\x00" * 40])
def test_another_file_is_neither_written_nor_read(tmp_path, content):
    file = tmp_path / "precious"
    file.write_bytes(content)
    if content != b"{":  # the beginning of a first line, torn
        with pytest.raises(OutputError, match="is not a journal"):
            Journal(file, LiveCluster(SETTINGS))
        assert file.read_bytes() == content
    with pytest.raises(InputError, match="not a journal"):
        replay_journal(file)
    assert not is_journal(file)


def test_places_that_cannot_be_written_are_refused(tmp_path):
    for place, why in ((tmp_path / "no" / "where", "No such file"), ("/dev/null", "plain file")):
        with pytest.raises(OutputError, match=why):
            Journal(place, LiveCluster(SETTINGS))
    with pytest.raises(InputError, match="not a journal"):
        replay_journal(tmp_path / "missing")


def test_two_do_not_write_one_journal(path):
    first = Journal(path, LiveCluster(SETTINGS))
    with pytest.raises(OutputError, match="another process"):
        Journal(path, LiveCluster(SETTINGS))
    first.close()
    Journal(path, LiveCluster(SETTINGS)).close()


class Disk:
    """A disk with room for some bytes only; its files in place of those of the journal."""

    def __init__(self, monkeypatch) -> None:
        self.room = 1 << 30
        monkeypatch.setattr("sched_lab.fleet.live.journal.open_journal", lambda path: Filling(open_journal(path), self))


class Filling:
    """A file on such a disk."""

    def __init__(self, file, disk: Disk) -> None:
        self.file = file
        self.disk = disk

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data: bytes) -> int:
        if not self.disk.room:
            raise OSError(28, "No space left on device")
        count = self.file.write(data[:self.disk.room])
        self.disk.room -= count
        return count

    def __enter__(self) -> "Filling":
        return self

    def __exit__(self, *trouble) -> None:
        self.file.close()


@pytest.mark.parametrize("room", [0, 10, 5000])
@pytest.mark.parametrize("is_folder", [False, True])
def test_on_a_full_disk_nothing_is_decided_and_nothing_is_lost(path, tmp_path, room, is_folder, monkeypatch):
    """What happens in the cluster is taken in and written later, in order; the journal plays itself again."""
    path = tmp_path if is_folder else path
    disk = Disk(monkeypatch)
    journal = Journal(path, LiveCluster(SETTINGS), file_bytes=1)
    disk.room = room
    refused = 0
    for event in EVENTS:
        try:
            journal.apply(event)
        except OutputError as error:
            assert "No space left" in str(error) and "no decisions" in str(error)
            assert isinstance(event, Asked | Committing)
            refused += 1
    assert refused and journal.trouble
    disk.room = 1 << 30
    assert journal.apply(ask(20)).node and not journal.trouble
    journal.close()
    frame = replay_journal(path)
    assert frame["same"].all() and frame.attrs["torn_bytes"] == 0
    assert not is_folder or frame["file"].nunique() > 1


def test_what_waits_for_room_is_bounded_and_said_in_the_end(path, monkeypatch):
    monkeypatch.setattr("sched_lab.fleet.live.journal.MOST_WAITING", 300)
    disk = Disk(monkeypatch)
    journal = Journal(path, LiveCluster(SETTINGS))
    disk.room = 0
    with pytest.raises(OutputError, match="bytes wait"):
        for node in NODES * 3:
            journal.apply(node)
    with pytest.raises(OutputError, match=r"No space left|bytes wait"):
        journal.close()


def test_a_journal_is_for_its_owner_alone_also_if_it_was_there(tmp_path):
    for name in ("new", "old"):
        file = tmp_path / name
        if name == "old":
            file.touch()
            file.chmod(0o666)
        Journal(file, LiveCluster(SETTINGS)).close()
        assert file.stat().st_mode & 0o777 == 0o600


def test_without_a_file_events_are_applied_all_the_same():
    journal = Journal(None, LiveCluster(SETTINGS))
    journal.apply(NODES[0])
    assert journal.apply(ask(1)).node == "a"
    journal.close()


@pytest.mark.parametrize(("line", "why"), [
    (b"{]\n", "no JSON"), (b"[1]\n", "no JSON"), (b"[" * 50_000 + b"\n", "no JSON"),
    (b'{"event": "Exploded", "version": 4}\n', "no line of a journal"),
    (b'{"event": "Bound", "version": 4}\n', "no line of a journal"),
    (b'{"event": "Asked", "version": 4, "pod": 7}\n', "no line of a journal"),
    (b'{"journal": 99}\n', "form 99")])
def test_a_line_that_is_none_is_named(path, recorded, line, why):
    path.write_bytes(recorded + line)
    with pytest.raises(InputError, match=why) as trouble:
        replay_journal(path)
    assert trouble.value.row == recorded.count(b"\n") + 1


def test_a_target_that_was_edited_is_refused(path, recorded):
    first, _, rest = recorded.partition(b"\n")
    header = json.loads(first)
    header["target"]["classes"]["count"][0] += 1
    path.write_bytes(json.dumps(header, separators=(",", ":")).encode() + b"\n" + rest)
    with pytest.raises(InputError, match="not the one that was written"):
        replay_journal(path)


def test_the_state_is_written_every_so_often(tmp_path, monkeypatch):
    monkeypatch.setattr("sched_lab.fleet.live.journal.STATE_EVERY", 10)
    written(tmp_path / "journal")
    frame = replay_journal(tmp_path / "journal")
    assert (frame["what"] == "state").sum() == len(EVENTS) // 10 + 1 and frame["same"].all()


# --- a folder of files

LOTS = LiveSettings("random", toy_tasks(), lapse_s=20.0)  # whose answers depend on how many there were
COPIES = [event._replace(pod=LivePod(f"{event.pod.uid}-{turn}", *list(vars(event.pod).values())[1:]))
          if isinstance(event, Asked) else event for turn in range(3) for event in EVENTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Journal of two runs: nine files or so, of which seven are finished and compressed."""
    place = tmp_path_factory.mktemp("journals")
    live = written(place, COPIES, LOTS, file_bytes=1)
    assert live.standing().reservations
    written(place, COPIES[:20], LOTS, file_bytes=1)
    return place


def test_files_of_a_folder_play_again_together_and_each_alone(folder):
    frame = replay_journal(folder)
    names = list(dict.fromkeys(frame["file"]))
    assert frame["same"].all() and len(names) > 4 and (frame.attrs["missing"], frame.attrs["torn_bytes"]) == ([], 0)
    assert names == [f"journal-{number:06d}.jsonl.gz" for number in range(1, len(names))] + [
        f"journal-{len(names):06d}.jsonl"]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in folder.iterdir())
    alone = [replay_journal(folder / name) for name in names]
    assert all(one["same"].all() and "file" not in one for one in alone)
    assert sum(map(len, alone)) == len(frame)
    one_file = folder / "one"
    written(one_file, COPIES, LOTS)
    texts = [frame.loc[frame["what"] == "decision", "said"].tolist(), replay_journal(one_file)["said"].tolist()]
    one_file.unlink()
    assert texts[0][:len(COPIES) // 2] == texts[1][:len(COPIES) // 2]  # files change no decision


@pytest.mark.parametrize("lost", ["reservations", "waiting", "num_decisions", "held", "version"])
def test_a_state_that_lacks_something_is_found(folder, tmp_path, lost):
    files = [gzip.decompress(packed.read_bytes()).partition(b"\n") for packed in folder.glob("*.gz")]
    header, rest = next((header, rest) for first, _, rest in files
                        if (header := json.loads(first)).get("standing", {}).get(lost))
    standing = header["standing"]
    standing[lost] = type(standing[lost])()
    file = tmp_path / "one"
    file.write_bytes(json.dumps(header).encode() + b"\n" + rest)
    try:
        assert not replay_journal(file)["same"].all()
    except InputError as trouble:  # who is reserved for holds nothing
        assert lost == "held" and trouble.row


def test_a_file_that_is_missing_between_is_said_and_the_others_are_played(folder, tmp_path, capsys):
    shutil.copytree(folder, place := tmp_path / "copy")
    for number in (1, 3):
        (place / f"journal-{number:06d}.jsonl.gz").unlink()
    assert replay_journal(place).attrs["missing"] == [3]  # the first may have been too old to be kept
    assert call("replay", place, "--out", tmp_path / "answer") == 0
    assert "the same again; missing between the others: 3" in capsys.readouterr().out
    assert (tmp_path / "answer" / "decisions.csv").read_text().startswith("file,line,what,")


def test_a_kill_at_any_byte_leaves_what_plays_up_to_the_last_whole_line(folder, tmp_path):
    last = max(folder.glob("*.jsonl"))
    whole = last.read_bytes()
    for length in random.Random(0).sample(range(len(whole)), 4):
        (place := tmp_path / str(length)).mkdir()
        shutil.copy(sorted(folder.glob("*.gz"))[-1], place)
        (place / last.name).write_bytes(whole[:length])
        frame = replay_journal(place)
        assert frame["same"].all() and frame.attrs["torn_bytes"] == length - whole.rfind(b"\n", 0, length) - 1
        written(place, COPIES[:9], LOTS)  # and who comes next goes on
        again = replay_journal(place)
        assert again["same"].all() and again.attrs["torn_bytes"] == 0 and len(again) > len(frame)


def test_only_so_many_finished_files_are_kept(tmp_path):
    (tmp_path / "other.txt").touch()
    written(tmp_path, COPIES, LOTS, file_bytes=1, keep=2)
    written(tmp_path, [], LOTS, keep=2)
    names = sorted(path.name for path in tmp_path.glob("journal*"))
    assert len(names) == 3 and not names[-1].endswith(".gz") and names[0] > "journal-000003"
    assert replay_journal(tmp_path)["same"].all()
    written(tmp_path, [], LOTS, **dict(zip(("keep", "keep_s"), kept("2h"), strict=True)))
    assert sorted(path.name for path in tmp_path.glob("journal*")) == names  # they are as old as they were before
    os.utime(tmp_path / names[0], (0, 0))
    written(tmp_path, [], LOTS, **dict(zip(("keep", "keep_s"), kept("7d"), strict=True)))
    assert sorted(path.name for path in tmp_path.glob("journal*")) == names[1:]


def test_two_do_not_write_one_folder(tmp_path):
    first = Journal(tmp_path, LiveCluster(SETTINGS), file_bytes=1)
    for event in EVENTS:
        first.apply(event)
        with pytest.raises(OutputError, match="another process"):
            Journal(tmp_path, LiveCluster(SETTINGS))
    first.close()


def test_a_file_that_cannot_be_begun_leaves_the_old_one_in_use(tmp_path, monkeypatch):
    journal = Journal(tmp_path, LiveCluster(SETTINGS), file_bytes=1)
    with monkeypatch.context() as broken:
        broken.setattr("sched_lab.fleet.live.journal.open_journal",
                       lambda path: (_ for _ in ()).throw(OutputError("no room for a file")))
        for event in EVENTS:
            journal.apply(event)
    for event in EVENTS:
        journal.apply(event)
    journal.close()
    frame = replay_journal(tmp_path)
    assert frame["same"].all() and frame["file"].nunique() > 1


# --- the command

def test_the_command_plays_a_journal_again(path, tmp_path, capsys):
    out = tmp_path / "answer"
    for said in ("", "(kept)"):
        assert call("replay", path, "--out", out) == 0
        printed = capsys.readouterr().out
        assert "15 decisions and 1 states are the same again" in printed and said in printed
    table = (out / "decisions.csv").read_text().splitlines()
    assert table[0] == "line,what,version,pod,said,now,same,milliseconds" and len(table) == 17
    assert json.loads((out / "summary.json").read_text())["different"] == 0


def test_the_command_says_what_differs_and_exits_1(path, tmp_path, recorded, capsys):
    path.write_bytes(recorded.replace(b'"gpu_list":"0","runner_up"', b'"gpu_list":"1","runner_up"', 1) + b'{"torn')
    for _ in range(2):  # computed, then kept
        assert call("replay", path, "--out", tmp_path / "answer") == 1
        printed = capsys.readouterr().out
        assert "1 of 16" in printed and "6 bytes" in printed


def test_a_journal_has_a_policy_of_its_own(path, tmp_path, capsys):
    assert call("replay", path, "--policies", "fgd", "--out", tmp_path / "answer") == 2
    assert "--policies" in capsys.readouterr().err
