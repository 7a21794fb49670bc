"""Files that commands write for a person: whole or not at all, and never in place of a device."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ottla.admin.facts.facts_file import write_whole
from ottla.errors import InputError


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"plan")
        assert os.read(reader, 100) == b"plan"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_standard_output_by_its_path_is_written_to() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as received:
        try:
            write_whole(f"/dev/fd/{writer}", b"plan")
        finally:
            os.close(writer)
        assert received.read() == b"plan"


def test_a_pipe_that_nobody_reads_is_an_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with pytest.raises(InputError, match=f"/dev/fd/{writer}: Broken pipe"):
            write_whole(f"/dev/fd/{writer}", b"plan")
    finally:
        os.close(writer)


def test_a_file_with_secrets_is_its_owners_only(tmp_path: Path) -> None:
    write_whole(tmp_path / "clusters.toml", b"secret", mode=0o600)
    assert stat.S_IMODE((tmp_path / "clusters.toml").stat().st_mode) == 0o600


def test_the_file_that_a_link_names_is_written_and_the_link_remains(tmp_path: Path) -> None:
    (tmp_path / "versions").mkdir()
    target = tmp_path / "versions" / "cluster.toml"
    target.write_bytes(b"before")
    link = tmp_path / "cluster.toml"
    link.symlink_to(target)
    write_whole(link, b"after")
    assert link.is_symlink()
    assert target.read_bytes() == b"after"
    assert list((tmp_path / "versions").iterdir()) == [target], "nothing is left beside it"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Is a directory"):
        write_whole(tmp_path, b"plan")


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_left_in_the_place_of_the_unfinished_file_is_not_used(tmp_path: Path, is_link: bool) -> None:
    other = tmp_path / "other"
    left = other if is_link else tmp_path / f".clusters.toml.{os.getpid()}.part"
    left.write_text("left")
    left.chmod(0o644)
    if is_link:
        (tmp_path / f".clusters.toml.{os.getpid()}.part").symlink_to(other)

    write_whole(tmp_path / "clusters.toml", b"secret", mode=0o600)

    written = tmp_path / "clusters.toml"
    assert (written.read_bytes(), written.is_symlink()) == (b"secret", False)
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert not is_link or other.read_text() == "left"
