"""Completion of topics, groups and subjects in a shell, from a file that is asked again after a minute.

A TAB must not hang, ask for a password or write to the terminal: one question with a short timeout, no secret of a
named cluster, and nothing at all where something is wrong.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from ottla.admin import Admin
    from ottla.config import Settings

_KEPT_S: Final = 60.0
_TIMEOUT_S: Final = 2.0
_MOST_NAMES: Final = 5_000


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the topics that begin so."""
    return _complete(ctx, incomplete, "topics", lambda admin: [each.name for each in admin.list_topics()])


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the groups that begin so."""
    return _complete(ctx, incomplete, "groups", lambda admin: [each.group_id for each in admin.list_groups()])


def complete_subjects(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the subjects of the schema registry that begin so."""

    def find() -> list[str]:
        from dataclasses import replace

        from ottla.cli.shared.registry_options import registry_access

        access = replace(registry_access(ctx.params), timeout_s=_TIMEOUT_S)
        registry = access.open()
        return _kept("subjects", [registry.url, access.user], registry.subjects)

    return _items(find, incomplete)


def _complete(
    ctx: click.Context, incomplete: str, what: str, ask: Callable[[Admin], list[str]]
) -> list[CompletionItem]:
    return _items(lambda: _names(_settings(ctx), what, ask), incomplete)


def _items(find: Callable[[], list[str]], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from ottla.cli.shared.visible import visible

    names: list[str] = []
    with contextlib.suppress(Exception):  # whatever is wrong, a shell that completes says nothing
        names = find()
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and visible(name) == name]


def _settings(ctx: click.Context) -> Settings:
    from ottla.cli.shared.cluster_options import choose_cluster, cluster_settings
    from ottla.cli.shared.properties_file import read_properties

    given = ctx.params
    named = choose_cluster(given.get("bootstrap_servers"), given.get("cluster"))
    if named is not None and named.secrets:
        raise LookupError("its password would have to be asked for")
    file = given.get("config_file")
    settings = {**({} if file is None else read_properties(file)), **(given.get("settings") or {})}
    return cluster_settings(given.get("bootstrap_servers"), settings, named=named)


def _names(kafka: Settings, what: str, ask: Callable[[Admin], list[str]]) -> list[str]:
    def find() -> list[str]:
        from ottla.admin import Admin

        with Admin(settings=dict(kafka), timeout_s=_TIMEOUT_S) as admin:
            return ask(admin)

    return _kept(what, [kafka.get(name) for name in ("bootstrap.servers", "sasl.username", "security.protocol")], find)


def _kept(what: str, place: list[Any], find: Callable[[], list[str]]) -> list[str]:
    """Return the names in the file of this place if it is fresh, else what `find` returns, which is written there."""
    import json  # as all that only completion needs, which is declared by every command

    from ottla.foreign_json import read_json

    path = _cache_folder() / f"{what}-{_key(place)}.json"
    with contextlib.suppress(OSError, ValueError):
        if 0 <= time.time() - path.stat().st_mtime < _KEPT_S:
            return [str(name) for name in read_json(path.read_bytes())]
    names = sorted(find())[:_MOST_NAMES]
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(names), "utf-8")
        beside.replace(path)
    return names


def _cache_folder() -> Path:
    from pathlib import Path

    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"


def _key(place: list[Any]) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(place).encode()).hexdigest()[:16]
