from __future__ import annotations

import os
import resource
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.common.os_filesystem import OsFileSystem
from broker_embedded.storage import file_pool
from broker_embedded.storage.file_pool import FilePool, OpenFiles, PooledFile


def test_no_more_files_are_open_than_allowed_and_all_stay_usable(memory_fs: MemoryFileSystem) -> None:
    pool = FilePool(memory_fs, OpenFiles(max_open=3))
    files = [PooledFile(pool, f"/data/{i}") for i in range(10)]
    for round_ in range(3):
        for i, file in enumerate(files):
            file.write_at(bytes([i]), round_)
            assert len(pool.open_files) <= 3
    assert [file.read_at(10, 0) for file in files] == [bytes([i]) * 3 for i in range(10)]


def test_a_file_in_use_is_spared_before_an_idle_one(memory_fs: MemoryFileSystem) -> None:
    pool = FilePool(memory_fs, OpenFiles(max_open=2))
    busy, idle, other = (PooledFile(pool, f"/data/{name}") for name in ("busy", "idle", "other"))
    busy.create()
    idle.create()
    busy.write_at(b"x", 0)
    other.create()
    assert busy._file is not None
    assert idle._file is None


def test_a_rename_of_a_closed_or_open_file_moves_its_content(memory_fs: MemoryFileSystem) -> None:
    pool = FilePool(memory_fs)
    file = PooledFile(pool, "/data/a")
    file.write_at(b"x", 0)
    file.rename("/data/b")
    file.close()
    file.rename("/data/c")
    assert file.read_at(1, 0) == b"x"
    assert memory_fs.list_dir("/data") == ["c"]
    PooledFile(pool, "/data/never").rename("/data/neither")
    assert memory_fs.list_dir("/data") == ["c"]


def test_the_first_flush_makes_the_name_durable_too(memory_fs: MemoryFileSystem) -> None:
    file = PooledFile(FilePool(memory_fs), "/data/a")
    file.write_at(b"x", 0)
    file.flush()
    memory_fs.crash()
    assert memory_fs.list_dir("/data") == ["a"]


def test_clusters_of_one_process_share_half_of_its_descriptors(
    memory_fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_pool, "soft_limit", lambda: 200)
    monkeypatch.setattr(OpenFiles, "_sharing", weakref.WeakSet())
    first, second = FilePool(memory_fs), FilePool(memory_fs)
    files = [PooledFile(first, f"/data/{i}") for i in range(150)]
    for file in files:
        file.create()
    assert len(first.open_files) == 100
    other = PooledFile(second, "/data/other")
    other.create()
    files[0].write_at(b"x", 0)
    assert len(first.open_files) == 50
    other.close()
    assert first.open_files.max_open == 100


def test_files_are_closed_for_others_that_need_a_descriptor_until_none_is_open(memory_fs: MemoryFileSystem) -> None:
    pool = FilePool(memory_fs, OpenFiles(max_open=40))
    files = [PooledFile(pool, f"/data/{i}") for i in range(40)]
    for file in files:
        file.write_at(b"x", 0)
    made = [pool.open_files.make_room() for _ in range(4)]
    assert made == [True, True, True, False]
    assert len(pool.open_files) == 0
    assert [file.read_at(1, 0) for file in files] == [b"x"] * 40


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """This process may open about 20 more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + 20, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_file_system_that_may_open_no_more_has_files_closed_and_tries_again(
    few_descriptors: None, tmp_path: Path
) -> None:
    open_files = OpenFiles(max_open=1_000)
    fs = OsFileSystem(make_room=open_files.make_room)
    pool = FilePool(fs, open_files)
    files = [PooledFile(pool, f"{tmp_path}/{i:02d}") for i in range(60)]
    for i, file in enumerate(files):
        file.write_at(bytes([i]), 0)
        assert len(fs.list_dir(str(tmp_path))) == i + 1
        fs.sync_dir(str(tmp_path))
    assert [file.read_at(1, 0) for file in files] == [bytes([i]) for i in range(60)]
    fs.lock(f"{tmp_path}/.lock").release()
    for file in files:
        file.close()
