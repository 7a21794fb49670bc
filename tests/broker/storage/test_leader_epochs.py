from __future__ import annotations

import pytest

from broker_embedded.common.filesystem import read_whole, write_whole
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.storage.leader_epochs import EpochEndOffset, EpochEntry, LeaderEpochs


@pytest.fixture
def epochs(memory_fs: MemoryFileSystem) -> LeaderEpochs:
    found = LeaderEpochs(memory_fs, "/data")
    found.load()
    found.assign(2, 0)
    found.assign(4, 20)
    found.assign(7, 35)
    return found


def test_the_file_has_an_epoch_and_its_start_offset_per_line(memory_fs: MemoryFileSystem, epochs: LeaderEpochs) -> None:
    assert read_whole(memory_fs, "/data/leader-epoch-checkpoint") == b"0\n3\n2 0\n4 20\n7 35\n"
    again = LeaderEpochs(memory_fs, "/data")
    again.load()
    assert again.entries == epochs.entries


@pytest.mark.parametrize(
    ("requested", "epoch", "end_offset"),
    [
        (7, 7, 50),  # the current one ends at the log end
        (4, 4, 35),
        (5, 4, 35),  # unknown: the largest smaller one that is known
        (2, 2, 20),
        (1, 1, 0),  # before all: nothing of it can be here
        (8, -1, -1),  # later than all: unknown
        (-1, -1, -1),
    ],
)
def test_the_end_offset_of_an_epoch(epochs: LeaderEpochs, requested: int, epoch: int, end_offset: int) -> None:
    assert epochs.end_offset_of(requested, log_end_offset=50) == EpochEndOffset(epoch, end_offset)


def test_an_offset_belongs_to_the_epoch_that_started_last_before_it(epochs: LeaderEpochs) -> None:
    assert [epochs.epoch_of(offset) for offset in (0, 19, 20, 34, 35, 99)] == [2, 2, 4, 4, 7, 7]


def test_an_epoch_that_is_known_is_not_assigned_again(epochs: LeaderEpochs) -> None:
    before = epochs.entries
    epochs.assign(7, 40)
    epochs.assign(5, 60)
    epochs.assign(-1, 60)
    assert epochs.entries == before


def test_a_new_epoch_drops_entries_that_contradict_it(epochs: LeaderEpochs) -> None:
    epochs.assign(8, 20)
    assert epochs.entries == (EpochEntry(2, 0), EpochEntry(8, 20))


def test_truncation_at_the_end_forgets_epochs_that_start_there(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_end(35)
    assert epochs.latest == 4
    epochs.truncate_from_end(21)
    assert epochs.entries == (EpochEntry(2, 0), EpochEntry(4, 20))


def test_truncation_at_the_start_lets_the_epoch_in_force_start_there(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_start(30)
    assert epochs.entries == (EpochEntry(4, 30), EpochEntry(7, 35))
    epochs.truncate_from_start(35)
    assert epochs.entries == (EpochEntry(7, 35),)


def test_an_unreadable_file_is_empty(memory_fs: MemoryFileSystem) -> None:
    write_whole(memory_fs, "/data/leader-epoch-checkpoint", b"0\n1\nnonsense\n")
    epochs = LeaderEpochs(memory_fs, "/data")
    epochs.load()
    assert epochs.entries == ()
    assert epochs.end_offset_of(0, log_end_offset=9) == EpochEndOffset(-1, -1)
