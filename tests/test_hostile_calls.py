"""Both servers stay well under hostile calls, one round of each."""
import os
from pathlib import Path

import pytest

from tests.hostile_calls import WORDS, attack_all

pytest.importorskip("uvicorn", reason="the extra `kubernetes` is not installed")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="servers end by SIGTERM")


@pytest.mark.parametrize("server", WORDS)
def test_a_server_stays_well(server: str, tmp_path: Path) -> None:
    attack_all(server, 1, tmp_path)
