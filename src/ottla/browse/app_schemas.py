"""The schemas that the serdes of an app use in a registry, and whether the subjects there go with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from ottla.app.app import App, declarations_of
from ottla.browse.schema_changes import plan_registration
from ottla.browse.schema_differences import NotComparable, reading_problems
from ottla.serdes import Serde, as_serde
from ottla.serdes.base import Part, SerdeContext
from ottla.serdes.cloud_events import CloudEvents
from ottla.serdes.registered_schema import RegisteredSchema
from ottla.serdes.registry import UnknownSchema
from ottla.serdes.registry_admin import RegistryAdmin
from ottla_wire.facts import fact

if TYPE_CHECKING:
    from ottla.serdes.framing import Framing

_PARTS: tuple[Part, ...] = ("key", "value")


@fact
class AppSchema:
    """A serde with a registry, where an app uses it."""

    place: str
    """The handler, or the producer."""
    action: Literal["receive", "send"]
    topic: str
    part: Part
    framing: Framing


def app_schemas(app: App) -> Iterator[AppSchema]:
    """Yield the serdes with a registry: of all handlers, and of the producers that name their topics."""
    declared = declarations_of(app)
    for route in declared.routes:
        values = [route.value_serde] if route.events is None else [each.serde for each in route.events.handlers]
        for topic in sorted(route.topics):
            yield from _framed(route.name, "receive", topic, "key", route.key_serde)
            for serde in values:
                yield from _framed(route.name, "receive", topic, "value", serde)
    for number, producer in enumerate(declared.producers, 1):
        for topic in sorted(set(producer.topics)):
            for part in _PARTS:
                serde = as_serde(producer.options.get(part))
                yield from _framed(f"producer {number}", "send", topic, part, serde)


def check_item(used: AppSchema, registry: RegistryAdmin | None = None) -> dict[str, Any]:
    """Return the item of `schemas.check/1` for a schema of an app. `registry` in place of that of its serde.

    What is sent is compared as the registry does it before it registers. What is received has to be readable by the
    app's schema whichever version of the subject wrote it.
    """
    client = RegistryAdmin.beside(used.framing.registry) if registry is None else registry
    subject, schema = used.framing.schema(SerdeContext(used.topic, used.part))
    result, problems = (
        _sent(client, used, subject, schema) if used.action == "send" else _received(client, subject, schema)
    )
    return {
        "place": used.place,
        "action": used.action,
        "topic": used.topic,
        "part": used.part,
        "subject": subject,
        "type": schema.type,
        "result": result,
        "problems": problems,
    }


def _sent(registry: RegistryAdmin, used: AppSchema, subject: str, schema: RegisteredSchema) -> tuple[str, list[str]]:
    plan = plan_registration(registry, subject, schema)
    if plan.existing is None and not used.framing.registers and not plan.problems:
        return "not registered", ["the serde has auto_register=False, and the subject does not have its schema"]
    return plan.result, list(plan.problems)


def _received(registry: RegistryAdmin, subject: str, schema: RegisteredSchema) -> tuple[str, list[str]]:
    numbers = registry.versions(subject)
    if not numbers:
        return "new subject", []
    problems = []
    for number in numbers:
        try:
            written = registry.version(subject, number)
        except UnknownSchema:  # deleted meanwhile
            continue
        try:
            found = reading_problems(registry, reader=schema, writer=written)
        except NotComparable as error:
            return "not compared", [f"version {number}: {error}"]
        problems += [f"version {number}: {each}" for each in found]
    return "incompatible" if problems else "compatible", problems


def _framed(
    place: str, action: Literal["receive", "send"], topic: str, part: Part, serde: Serde[Any]
) -> Iterator[AppSchema]:
    inner = serde.data if isinstance(serde, CloudEvents) else serde
    framing = getattr(inner, "_framing", None)
    if framing is not None:
        yield AppSchema(place=place, action=action, topic=topic, part=part, framing=framing)
