"""A seed is a run, whatever the process: the order of sets of strings differs between processes, the story must not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def transcript(tmp_path: Path, *, brokers: int, hash_seed: int) -> tuple[str, str]:
    file = tmp_path / f"transcript-{hash_seed}.txt"
    command = [sys.executable, "-m", "broker_embedded.cluster.simulation", "--seeds", "1", "--first", "5"]
    command += ["--brokers", str(brokers), "--minutes", "0.2", "--transcript", str(file)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    digest = re.search(r"[0-9a-f]{16}-[0-9a-f]{8}", done.stdout)
    assert digest is not None
    return file.read_text(), digest[0]


@pytest.mark.parametrize("brokers", [1, 3])
def test_the_same_seed_tells_the_same_story_in_another_process(tmp_path: Path, brokers: int):
    first, again = (transcript(tmp_path, brokers=brokers, hash_seed=hash_seed) for hash_seed in (1, 2))
    assert first[0] == again[0]
    assert first[1] == again[1], "down to every byte on the network and its time"
