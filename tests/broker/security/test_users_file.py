"""Files of users: which characters end a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_embedded.common.errors import StartupError
from broker_embedded.security.users_file import pairs_in


@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        (b"\xef\xbb\xbfalice=a\r\n\r\nbob=b\r\n", ["alice=a", "bob=b"]),
        (b"alice=a\r\r\n", ["alice=a\r"]),
        *((f"alice=a{each}=b\n".encode(), [f"alice=a{each}=b"]) for each in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"),
    ],
)
def test_only_a_newline_ends_a_line(tmp_path: Path, data: bytes, pairs: list[str]) -> None:
    (tmp_path / "users").write_bytes(data)
    assert pairs_in(tmp_path / "users", "--users") == pairs


def test_a_file_that_is_cut_within_a_character_is_too_long(tmp_path: Path) -> None:
    (tmp_path / "users").write_bytes(b"alice=" + "€".encode() * (1024 * 1024 // 3))
    with pytest.raises(StartupError, match="found more than 1,048,576 bytes"):
        pairs_in(tmp_path / "users", "--users")
