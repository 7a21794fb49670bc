"""A seed is a run, whatever the process: the order of sets of strings differs between processes, the story must not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


SEED, MINUTES = 5, 0.1


def start(tmp_path: Path, *, brokers: int, hash_seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "broker_embedded.cluster.simulation", "--seeds", "1", "--first", str(SEED)]
    command += ["--brokers", str(brokers), "--minutes", str(MINUTES)]
    command += ["--transcript", str(tmp_path / f"{hash_seed}.txt")]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.representative("1")
@pytest.mark.parametrize("brokers", [1, 3])
def test_the_same_seed_tells_the_same_story_in_another_process(tmp_path: Path, brokers: int):
    running = [start(tmp_path, brokers=brokers, hash_seed=hash_seed) for hash_seed in (1, 2)]
    printed = [process.communicate(timeout=110)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], "\n".join(printed)
    first, again = ((tmp_path / f"{hash_seed}.txt").read_text() for hash_seed in (1, 2))
    assert first == again
    digests = [re.findall(r"[0-9a-f]{16}-[0-9a-f]{8}", text) for text in printed]
    assert len(digests[0]) == 1
    assert digests[0] == digests[1], "down to every byte on the network and its time"
