"""`ottla topics set` and `unset`: settings of one topic, or of many that are named or match a pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ottla.browse.human_amounts import parse_settings
from ottla.cli.operations.setting_changes import changes_of_many, show_changes
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.matching import check_names, matching_topics, takes_matching
from ottla.cli.shared.outcome import changing
from ottla.cli.shared.output import Output, prints, say
from ottla.errors import InputError, OttlaError

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.config import Settings


@click.command("set")
@click.argument("words", metavar="[TOPIC...] NAME=VALUE...", nargs=-1, required=True, shell_complete=complete_topics)
@takes_matching("topics")
@reaches_a_cluster
@prints
@changes
def set_settings(words: tuple[str, ...], matching: str | None, kafka: Settings, out: Output, consent: Consent) -> None:
    """Set settings of topics. Other settings stay. All topics are checked and shown before any is changed.

    \b
    Examples:
      ottla topics set orders retention.ms=7d --dry-run
      ottla topics set orders retention.ms=3d segment.bytes=256MiB --yes
      ottla topics set orders cleanup.policy=compact --yes
      ottla topics set --matching 'ord.*' retention.ms=7d --dry-run
    """
    names = list(dict.fromkeys(word for word in words if "=" not in word))
    values = parse_settings([word for word in words if "=" in word], example="retention.ms=7d")
    if not values:
        raise InputError(f"found {names[-1]!r}, wanted NAME=VALUE, as in retention.ms=7d")
    with open_admin(kafka) as admin:
        _change(admin, _topics(admin, names, matching), values, out, consent)


@click.command("unset")
@click.argument("words", metavar="[TOPIC] NAME...", nargs=-1, required=True, shell_complete=complete_topics)
@takes_matching("topics")
@reaches_a_cluster
@prints
@changes
def unset_settings(
    words: tuple[str, ...], matching: str | None, kafka: Settings, out: Output, consent: Consent
) -> None:
    """Remove settings of TOPIC, so that those of the cluster apply.

    \b
    Examples:
      ottla topics unset orders retention.ms --dry-run
      ottla topics unset orders retention.ms --yes
      ottla topics unset orders retention.ms segment.bytes --yes
      ottla topics unset --matching 'ord.*' retention.ms --dry-run
    """
    names, settings = ([], words) if matching is not None else ([words[0]], words[1:])
    if not settings:
        raise InputError(f"found the topic {words[0]} alone, wanted names of settings as well")
    with open_admin(kafka) as admin:
        _change(admin, _topics(admin, names, matching), dict.fromkeys(settings), out, consent)


def _topics(admin: Admin, names: list[str], matching: str | None) -> list[str]:
    """Return the topics that are named or match."""
    check_names(names, matching)
    return names if matching is None else matching_topics(admin, matching)


def _change(
    admin: Admin, topics: list[str], values: Mapping[str, object | None], out: Output, consent: Consent
) -> None:
    planned = {topic: admin.alter_topic_settings(topic, values, dry_run=True) for topic in topics}
    whose = topics[0] if len(topics) == 1 else f"{len(topics)} topics"
    shown = (
        show_changes(out, "topics.set/1", planned[topics[0]])
        if len(topics) == 1
        else changes_of_many(out, "topics.set/1", planned)
    )
    if not shown or not consent.agree(f"Change the settings of {whose}?"):
        return
    concerned = [topic for topic, found in planned.items() if any(each.is_change for each in found)]
    with changing():
        _alter(admin, concerned, values)
    say(f"{concerned[0] if len(concerned) == 1 else f'{len(concerned)} topics'}: changed")


def _alter(admin: Admin, topics: list[str], values: Mapping[str, object | None]) -> None:
    from ottla.admin.errors import raise_failed

    failed: dict[str, OttlaError] = {}
    for topic in topics:
        try:
            admin.alter_topic_settings(topic, values)
        except OttlaError as error:
            failed[topic] = error
    raise_failed("topics", names=topics, failed=failed)
