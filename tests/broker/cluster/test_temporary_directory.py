"""Where the data of a cluster is that nobody keeps."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from broker_embedded.cluster import temporary


@pytest.fixture
def without_tempfile(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the process of a broker, which does not load it."""
    monkeypatch.delitem(sys.modules, "tempfile", raising=False)


@pytest.mark.usefixtures("without_tempfile")
def test_it_is_new_private_and_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    first, second = Path(temporary.make()), Path(temporary.make())
    assert first != second
    assert first.parent == second.parent == tmp_path
    assert stat.S_IMODE(first.stat().st_mode) == 0o700


@pytest.mark.usefixtures("without_tempfile")
def test_a_relative_place_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", ".")
    assert Path(temporary.make()).parent == tmp_path


def test_it_is_where_the_program_told_tempfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert Path(temporary.make()).parent == tmp_path


@pytest.mark.usefixtures("without_tempfile")
def test_another_place_is_found_when_there_is_no_such_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    directory = temporary.make()
    try:
        assert Path(directory).is_dir()
    finally:
        temporary.remove(directory)


@pytest.mark.usefixtures("without_tempfile")
@pytest.mark.parametrize("partitions", [1, temporary.MANY_PARTITIONS + 1])
def test_all_of_it_is_removed(partitions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    directory = temporary.make()
    for number in range(partitions):
        partition = Path(directory, "broker-1", f"orders-{number}")
        partition.mkdir(parents=True)
        (partition / "00000000000000000000.log").write_bytes(b"x")
    temporary.remove(directory)
    assert list(tmp_path.iterdir()) == []
