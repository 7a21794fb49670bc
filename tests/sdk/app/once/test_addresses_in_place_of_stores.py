"""An address given where a store is wanted: refused, without the password in it."""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla import App, Inbox
from ottla.errors import ConfigError
from ottla.outbox import Outbox
from ottla.stores import Sqlite

ADDRESS: Any = "redis://billing:s3same@cache:6379/0"


def with_offsets() -> None:
    @App("billing").handler("orders", offsets=ADDRESS)
    def handle(order: bytes) -> None: ...


def with_inbox() -> None:
    @App("billing").handler("orders", inbox=ADDRESS)
    def handle(order: bytes) -> None: ...


GIVEN = {
    "Inbox": lambda: Inbox(ADDRESS),
    "Outbox": lambda: Outbox(ADDRESS),
    "offsets": with_offsets,
    "inbox": with_inbox,
    "relay": lambda: App("billing").relay(ADDRESS),
}


@pytest.mark.parametrize("give", GIVEN.values(), ids=GIVEN)
def test_its_password_is_not_in_the_error(give: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match=r"found '.*@cache:6379/0', wanted") as refused:
        give()
    assert "s3same" not in str(refused.value)


def test_a_database_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "missing" / "billing.db")
    with pytest.raises(sqlite3.OperationalError) as failed:
        Sqlite(path).create_tables()
    assert f"Sqlite({path!r}): the folder must exist" in "".join(traceback.format_exception(failed.value))
