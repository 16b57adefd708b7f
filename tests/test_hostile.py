"""Hostile calls of every command: each ends soon, in little memory, with a result or one line that names the mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import NODES, TASKS, assert_refused, call


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text(NODES)
    Path("tasks.csv").write_text(TASKS)


# --- words that are none of a closed vocabulary -----------------------------------------------------------------------

ONLINE = "--nodes nodes.csv --tasks tasks.csv --out out"


@pytest.mark.parametrize(("words", "meant"), [
    (f"inflate {ONLINE} --policy pwr-fdg", "did you mean pwr-fgd:ALPHA?"),
    (f"inflate {ONLINE} --policy pwr-fdg:0.1", "did you mean pwr-fgd:0.1?"),
    (f"inflate {ONLINE} --policy FGD", "did you mean fgd?"),
    (f"inflate {ONLINE} --policy fgd@0.8@bestfti", "did you mean bestfit?"),
    (f"inflate {ONLINE} --policy zzz", "choose one of fgd, "),
    (f"inflate {ONLINE} --policy {'x' * 100_000}", "choose one of fgd, "),
    (f"inflate {ONLINE} --sampling permutation", "did you mean permutation-first?"),
    (f"inflate {ONLINE} --power packages", "did you mean package?"),
    (f"inflate {ONLINE} --arithmetic refrence", "did you mean reference?"),
    (f"inflate {ONLINE} --device cdua", "did you mean cuda?"),
    ("sweep study.toml --out out --format parqet", "did you mean parquet?"),
    ("replay mine --out out --backfill firstfit", "did you mean first-fit?"),
    ("explain mine --task a --state record", "did you mean recorded?"),
    ("move mine --out out --for GPU", "did you mean gpus?"),
    ("read k8 nodes.csv --out out", "did you mean k8s?"),
    ("far --times times.csv --objective tardines --out out", "did you mean tardiness?"),
    ("andreas --instance jobs.json --loss move --out out", "did you mean moved?"),
    ("example fleat .", "did you mean fleet?"),
    ("reproduce hadarr", "did you mean hadar?"),
    ("reproduce pwr cluster-powr --check --results .", "did you mean cluster-power?")])
def test_a_mistyped_word_is_answered_by_the_one_that_was_meant(words, meant, capsys):
    assert_refused(call(*words.split()), capsys, meant)
