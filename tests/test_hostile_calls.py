"""Both servers stay well under hostile calls, one round of each; `python -m tests.hostile_calls` goes on for longer."""
import os
from pathlib import Path

import pytest

from tests.hostile_calls import ATTACKS, WORDS, soak

pytest.importorskip("uvicorn", reason="the extra `kubernetes` is not installed")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="servers end by SIGTERM")


@pytest.mark.parametrize("server", WORDS)
def test_a_server_stays_well(server: str, tmp_path: Path) -> None:
    assert soak(server, 0.0, 1, tmp_path)["attacks"] == {attack.__name__: 1 for attack in ATTACKS}
