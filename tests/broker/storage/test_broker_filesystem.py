from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from broker_embedded.common.filesystem import FileSystem, read_whole, write_whole
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.common.os_filesystem import OsFileSystem


@pytest.fixture(params=["memory", "os"])
def any_fs(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    if request.param == "memory":
        fs: FileSystem = MemoryFileSystem()
        fs.make_dirs("/data")
        return fs, "/data"
    return OsFileSystem(), str(tmp_path)


def test_what_is_written_at_a_position_is_read_there(any_fs: tuple[FileSystem, str]) -> None:
    fs, root = any_fs
    file = fs.open(f"{root}/a", create=True)
    file.write_at(b"hello", 0)
    file.write_at(memoryview(b"xyz"), 3)
    assert file.read_at(100, 0) == b"helxyz"
    assert file.read_at(2, 4) == b"yz"
    file.truncate(2)
    assert (file.size(), fs.size(f"{root}/a")) == (2, 2)
    file.close()


def test_a_missing_file_is_created_only_on_request(any_fs: tuple[FileSystem, str]) -> None:
    fs, root = any_fs
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/none")
    assert not fs.exists(f"{root}/none")


def test_rename_replaces_and_an_open_file_keeps_its_content(any_fs: tuple[FileSystem, str]) -> None:
    fs, root = any_fs
    write_whole(fs, f"{root}/a", b"new")
    write_whole(fs, f"{root}/b", b"old")
    file = fs.open(f"{root}/a")
    fs.rename(f"{root}/a", f"{root}/b")
    assert read_whole(fs, f"{root}/b") == b"new"
    assert file.read_at(10, 0) == b"new"
    assert fs.list_dir(root) == ["b"]
    file.close()


def test_directories_are_made_listed_and_removed_with_what_is_in_them(any_fs: tuple[FileSystem, str]) -> None:
    fs, root = any_fs
    fs.make_dirs(f"{root}/x/y")
    write_whole(fs, f"{root}/x/y/f", b"1")
    assert fs.is_dir(f"{root}/x/y")
    fs.remove_tree(f"{root}/x")
    fs.remove_tree(f"{root}/x")
    fs.remove(f"{root}/never-there")
    assert fs.list_dir(root) == []


def test_nothing_is_there_below_a_file_or_under_an_unknown_name(any_fs: tuple[FileSystem, str]) -> None:
    fs, root = any_fs
    fs.open(f"{root}/a", create=True).close()
    assert fs.exists(f"{root}/a")
    assert not fs.exists(f"{root}/b")
    assert not fs.exists(f"{root}/a/below")
    assert not fs.is_dir(f"{root}/a")
    assert fs.is_dir(root)
    fs.remove(f"{root}/b")  # nothing to remove is fine


def test_what_the_disk_refuses_to_say_is_not_taken_for_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError, match="symbolic links"):
        OsFileSystem().exists(str(tmp_path / "loop"))
    with pytest.raises(OSError, match="symbolic links"):
        OsFileSystem().is_dir(str(tmp_path / "loop"))


def test_a_lock_has_one_holder_at_a_time(any_fs: tuple[FileSystem, str]) -> None:
    fs, root = any_fs
    lock = fs.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        fs.lock(f"{root}/.lock")
    lock.release()
    fs.lock(f"{root}/.lock").release()


def test_the_time_of_change_can_be_set(any_fs: tuple[FileSystem, str]) -> None:
    fs, root = any_fs
    write_whole(fs, f"{root}/a", b"x")
    fs.set_modified_ms(f"{root}/a", 1_234_567)
    assert fs.modified_ms(f"{root}/a") == 1_234_567
    assert fs.usage(root).usable > 0


def test_a_crash_forgets_bytes_that_were_not_flushed() -> None:
    fs = MemoryFileSystem()
    fs.make_dirs("/data")
    file = fs.open("/data/a", create=True)
    file.write_at(b"kept", 0)
    file.flush()
    fs.sync_dir("/data")
    file.write_at(b" lost", 4)
    fs.crash()
    assert read_whole(fs, "/data/a") == b"kept"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_at(1, 0)


def test_a_crash_forgets_names_that_were_not_synced() -> None:
    fs = MemoryFileSystem()
    fs.make_dirs("/data")
    write_whole(fs, "/data/a", b"1")
    fs.rename("/data/a", "/data/b")
    fs.open("/data/c", create=True).flush()
    fs.crash()
    assert fs.list_dir("/data") == ["a"]


def test_a_kill_keeps_every_byte_and_frees_the_lock() -> None:
    fs = MemoryFileSystem()
    fs.make_dirs("/data")
    fs.lock("/data/.lock")
    fs.open("/data/a", create=True).write_at(b"here", 0)
    fs.kill()
    assert read_whole(fs, "/data/a") == b"here"
    fs.lock("/data/.lock").release()


def test_a_torn_crash_keeps_a_prefix_of_the_new_bytes_perhaps_with_zeros_behind() -> None:
    outcomes = set()
    for seed in range(60):
        fs = MemoryFileSystem()
        fs.make_dirs("/data")
        write_whole(fs, "/data/a", b"ab")
        fs.open("/data/a").write_at(b"cdef", 2)
        fs.crash(Random(seed))
        found = read_whole(fs, "/data/a")
        assert b"abcdef".startswith(found.rstrip(b"\0"))
        assert 2 <= len(found) <= 6
        outcomes.add(found)
    assert b"ab" in outcomes
    assert len(outcomes) > 4


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    fs = MemoryFileSystem(capacity_bytes=10)
    fs.make_dirs("/data")
    file = fs.open("/data/a", create=True)
    file.write_at(b"12345678", 0)
    with pytest.raises(OSError, match="space") as raised:
        file.write_at(b"abcd", 8)
    assert raised.value.errno == errno.ENOSPC
    assert file.size() == 10
    file.truncate(8)
    assert fs.usage("/data").usable == 2


def test_the_space_of_removed_and_replaced_files_is_free_again() -> None:
    fs = MemoryFileSystem(capacity_bytes=10)
    fs.make_dirs("/data")
    write_whole(fs, "/data/a", b"12345")
    write_whole(fs, "/data/a", b"1234")
    assert fs.usage("/data").usable == 6
    fs.remove("/data/a")
    assert fs.usage("/data").usable == 10
