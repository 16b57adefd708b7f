"""`sched-lab demo`: the lever that the page names is the one that the month was drawn for."""
import webbrowser

import pandas as pd
import pytest

from sched_lab.fleet import demo
from sched_lab.fleet.read.check import check_cluster
from tests.command_line import assert_concluded, call


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_cluster_has_400_gpus_and_nothing_wrong():
    tables = demo.demo_cluster(0)
    assert tables.nodes["num_gpus"].sum() == 400
    assert check_cluster(tables).exit_code == 0


def test_the_rule_of_the_queue_is_named(capsys, monkeypatch):
    """By another seed than that of the manual, which has the output of the first in full, and in eight days."""
    monkeypatch.setenv("SCHED_LAB_COMPILE", "")  # they are done before their code is compiled
    monkeypatch.setattr(demo, "DAYS", 8)
    assert call("demo", "--seed", 1, "--no-open") == 0  # into the folder that it names itself
    text = capsys.readouterr().out
    assert_concluded(text)
    assert text.splitlines()[-2].startswith("The largest lever is backfill "), text
    levers = pd.read_csv("sched-lab-demo/answer/levers.csv").groupby("lever")["difference"].min()
    assert levers["queue"] < 2 * levers["placement"] <= 0
    assert " less (" in text
    assert call("demo", "--seed", 1, "--no-open") == 0  # into the folder that it names itself
    assert "(kept)" in capsys.readouterr().out


@pytest.mark.parametrize("has_window", [True, False])
def test_the_page_is_opened_where_there_is_a_window(has_window, monkeypatch):
    opened = []
    monkeypatch.setattr(demo, "replay_command", lambda *_, **__: None)
    monkeypatch.setattr(demo, "can_show", lambda: has_window)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert call("demo", "--out", "d") == 0
    assert [url.endswith("/d/answer/report.html") for url in opened] == [True] * has_window
