"""`quorum-state`: a member's vote and epoch, in Kafka's file of that name (JSON, version 0: static voters).

It lies in the metadata log's directory, as in Kafka. It is replaced as a whole and fsynced: a crash leaves the old one
or the new one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from broker_embedded.common.errors import StartupError
from broker_embedded.common.filesystem import FileSystem, read_whole, write_whole
from broker_embedded.controller.raft.effects import ElectionState

FILE_NAME = "quorum-state"
VERSIONS = (0, 1)


class QuorumStateFile:
    """The file of one member."""

    def __init__(self, fs: FileSystem, directory: str, *, voters: Sequence[int]) -> None:
        self._fs = fs
        self._path = f"{directory}/{FILE_NAME}"
        self._voters = tuple(voters)

    def read(self) -> ElectionState | None:
        """Return the last saved state; None at the first start. Raises StartupError for an unreadable file."""
        try:
            data = read_whole(self._fs, self._path)
        except FileNotFoundError:
            return None
        try:
            saved = json.loads(data.decode())
            version = saved["data_version"]
            if version not in VERSIONS:
                raise ValueError(f"data_version {version}, wanted 0 or 1")
            return ElectionState(
                epoch=int(saved["leaderEpoch"]), leader_id=int(saved["leaderId"]), voted_id=int(saved["votedId"])
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StartupError(
                f"{self._path} is not a quorum state ({error}); remove the directory if the other voters have the log"
            ) from None

    def write(self, state: ElectionState) -> None:
        """Replace it, durably."""
        content = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in self._voters],
            "data_version": 0,
        }
        write_whole(self._fs, self._path, json.dumps(content, separators=(",", ":")).encode())
