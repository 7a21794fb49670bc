from __future__ import annotations

from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.storage.file_pool import FilePool, PooledFile


def test_no_more_files_are_open_than_allowed_and_all_stay_usable(memory_fs: MemoryFileSystem) -> None:
    pool = FilePool(memory_fs, max_open=3)
    files = [PooledFile(pool, f"/data/{i}") for i in range(10)]
    for round_ in range(3):
        for i, file in enumerate(files):
            file.write_at(bytes([i]), round_)
            assert pool.open_count <= 3
    assert [file.read_at(10, 0) for file in files] == [bytes([i]) * 3 for i in range(10)]


def test_a_file_in_use_is_spared_before_an_idle_one(memory_fs: MemoryFileSystem) -> None:
    pool = FilePool(memory_fs, max_open=2)
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
