"""The console's API: names of endpoints, and their functions."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.console import (
    access_changes_shown,
    change_plans,
    cluster_pages,
    declared_pages,
    doctor_pages,
    embedded_pages,
    group_pages,
    letter_pages,
    move_pages,
    moves_under_way,
    produce_pages,
    record_pages,
    schema_pages,
)
from ottla.console.guard import Rules
from ottla.console.query import Query
from ottla.console.server import app_of
from ottla.console.state import ConsoleState
from ottla.console.topic_changes_shown import TOPIC_PLANNERS

if TYPE_CHECKING:
    from starlette.types import ASGIApp

Answer = Callable[[ConsoleState, Query], dict[str, Any]]

TAIL_A_SECOND = 50

READS: dict[str, Answer] = {
    "access": access_changes_shown.access,
    "cluster": cluster_pages.cluster,
    "topics": cluster_pages.topics,
    "topic": cluster_pages.topic,
    "topic/groups": cluster_pages.topic_groups,
    "records": record_pages.records,
    "records/export": record_pages.export,
    "record": record_pages.record,
    "groups": group_pages.groups,
    "group": group_pages.group,
    "group/reset": group_pages.plan_reset,
    "letters/topics": letter_pages.topics,
    "letters": letter_pages.letters,
    "letter": letter_pages.letter,
    "letters/redrive": letter_pages.plan_redrive,
    "schemas": schema_pages.schemas,
    "schema": schema_pages.schema,
    "schema/diff": schema_pages.difference,
    "schema/delete": schema_pages.plan_deletion,
    "schema/level": schema_pages.plan_level,
    "declared": declared_pages.declared,
    "doctor": doctor_pages.findings,
    "moves": move_pages.moves,
    "plan": move_pages.plan,
    "jobs": move_pages.jobs,
    "embedded": embedded_pages.state,
    "embedded/explain": embedded_pages.explain,
}
"""They change nothing, so they are GET."""

PLANNERS = {**TOPIC_PLANNERS, **access_changes_shown.ACCESS_PLANNERS}
"""The changes that `change/plan` shows, by their names in the audit file."""

WRITES: dict[str, Answer] = {
    "change/plan": partial(change_plans.plan_change, PLANNERS),
    "change/apply": change_plans.apply_change,
    "group/reset": group_pages.apply_reset,
    "group/restore": group_pages.plan_restore,
    "letters/redrive": letter_pages.redrive,
    "doctor/accept": doctor_pages.accept,
    "moves/cancel": moves_under_way.cancel,
    "moves/throttle": moves_under_way.throttle,
    "plan/run": move_pages.run,
    "plan/throttle": move_pages.throttle,
    "jobs/stop": move_pages.stop_job,
    "embedded": embedded_pages.act,
    "produce": produce_pages.produce,
    "schema/register": schema_pages.plan_registration,
    "schema/restore": schema_pages.plan_restoration,
    "schema/apply": schema_pages.apply,
}


def console_app(console: ConsoleState, rules: Rules) -> ASGIApp:
    """Return the console of a cluster."""
    return app_of(
        rules,
        reads={
            "session": partial(_session, console, rules),
            **{name: partial(each, console) for name, each in READS.items()},
        },
        writes={name: partial(each, console) for name, each in WRITES.items()},
        streams={"tail": partial(record_pages.tail, console, per_second=TAIL_A_SECOND)},
        title="Ottla console",
        script="app.js",
    )


def _session(console: ConsoleState, rules: Rules, query: Query) -> dict[str, Any]:
    """Return the fields that the page needs before it draws anything."""
    query.done()
    choices = console.choices
    return {
        "schema": "ottla.console.session/1",
        "version": importlib.metadata.version("ottla"),
        "name": choices.name or _shortened(str(console.kafka.get("bootstrap.servers"))),
        "bootstrap_servers": console.kafka.get("bootstrap.servers"),
        "may_write": rules.may_write,
        "write_token": rules.write_token if rules.may_write else None,
        "asks_name": choices.asks_name,
        "hides_values": choices.masks.hides_values,
        "has_registry": choices.registry is not None,
        "schemas": {topic: str(path) for topic, path in choices.schemas.items()},
        "has_control": choices.control is not None,
        "has_declared": bool(choices.declared),
        "has_baseline": choices.baseline is not None,
        "hides_something": choices.masks.any,
        "every_ms": round(choices.every_s * 1000),
    }


def _shortened(servers: str) -> str:
    """Return the first address, and how many there are more."""
    first, *more = servers.split(",")
    return f"{first} +{len(more)}" if more else first
