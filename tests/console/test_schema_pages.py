"""Schemas of the registry over HTTP: what is shown, and changes with a plan, consent, an audit line and an undo."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_output import follows_its_schema
from console_kit import HOSTILE, Running, running_console

from ottla.browse.registry_access import RegistryAccess
from ottla.config import Settings
from ottla.console.state import ConsoleOptions
from ottla.serdes.registry_admin import RegistryAdmin
from ottla.testing.registry import EmbeddedRegistry

ONE = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
TWO = {**ONE, "fields": [*ONE["fields"], {"name": "note", "type": "string", "default": ""}]}
NARROW = {**ONE, "fields": [{"name": "id", "type": "int"}]}
SECRET = "corr3ct-h0rse"


@pytest.fixture
def server() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


@pytest.fixture
def registry(server: EmbeddedRegistry) -> RegistryAdmin:
    admin = RegistryAdmin(server.url, attempts=1)
    for each in (ONE, TWO):
        admin.register("orders-value", json.dumps(each))
    admin.register(HOSTILE, json.dumps({"type": "string", "doc": HOSTILE}))
    return admin


@pytest.fixture
def console(kafka: Settings, registry: RegistryAdmin, tmp_path: Path) -> Iterator[Running]:
    choices = ConsoleOptions(may_write=True, folder=tmp_path, registry=registry.url)
    with running_console(kafka, choices) as running:
        yield running


def plan_of(answered: Any) -> int:
    found = answered if isinstance(answered, dict) else answered.json
    follows_its_schema({**found, "compatibility": None})
    assert isinstance(found["plan"], int)
    return int(found["plan"])


def audited(folder: Path) -> list[dict[str, Any]]:
    path = folder / "ottla-console-audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_subjects_versions_and_differences_are_shown(console: Running) -> None:
    listed = console.get("schemas")
    assert [each["subject"] for each in listed["items"]] == [HOSTILE, "orders-value"]
    assert (listed["total"], listed["level"]) == (2, "BACKWARD")
    assert [each["subject"] for each in console.get("schemas", match="orders*")["items"]] == ["orders-value"]
    shown = console.get("schema", subject="orders-value", version=1)
    assert (shown["id"], len(shown["versions"]), shown["level"]["own"]) == (1, 2, False)
    assert json.loads("\n".join(shown["lines"])) == ONE
    found = console.get("schema/diff", **{"subject": "orders-value", "from": 2, "to": 1})
    assert (found["backward"], found["forward"]) == ([], [])
    assert '-      "name": "note",' in found["text"]


def test_a_page_asks_for_its_own_subjects_only(
    console: Running, server: EmbeddedRegistry, registry: RegistryAdmin
) -> None:
    for number in range(120):
        registry.register(f"many-{number:03}", '"string"')
    server.requests.clear()
    found = console.get("schemas", match="many", page=2)
    assert [each["subject"] for each in found["items"]] == [f"many-{number:03}" for number in range(100, 120)]
    assert len(server.requests) < 30


def test_a_schema_is_registered_after_it_was_shown(console: Running, registry: RegistryAdmin, tmp_path: Path) -> None:
    body = {"subject": "invoices-value", "text": json.dumps(ONE), "type": "AVRO"}
    number = plan_of(console.post("schema/register", **body))
    assert registry.versions("invoices-value") == []
    assert audited(tmp_path) == []
    done = console.post("schema/apply", plan=number)
    assert done.json["said"] == "Registered as version 1, id 1."
    (line,) = audited(tmp_path)
    assert (line["what"], line["subject"]) == ("schemas.register", "invoices-value")
    assert json.loads(line["after"]["text"]) == ONE
    again = console.post("schema/apply", plan=number)
    assert (again.status, "no longer known" in again.json["error"]["message"]) == (400, True)
    refused = console.post("schema/register", subject="orders-value", text=json.dumps(NARROW), type="AVRO").json
    assert (refused["plan"], refused["items"][0]["result"]) == (None, "incompatible")


def test_a_deletion_is_undone_from_the_page(console: Running, registry: RegistryAdmin, tmp_path: Path) -> None:
    number = plan_of(console.get("schema/delete", subject="orders-value"))
    assert registry.versions("orders-value") == [1, 2]
    done = console.post("schema/apply", plan=number).json
    assert registry.versions("orders-value") == []
    (file,) = tmp_path.glob("orders-value-schemas-*.json")
    assert file.read_text() == done["undo"]
    restoring = plan_of(console.post("schema/restore", content=done["undo"]))
    assert console.post("schema/apply", plan=restoring).status == 200
    assert [registry.version("orders-value", n).id for n in registry.all_versions("orders-value")] == [1, 2]
    assert [each["what"] for each in audited(tmp_path)] == ["schemas.delete", "schemas.restore"]


def test_a_level_is_set_and_removed(console: Running, registry: RegistryAdmin, tmp_path: Path) -> None:
    assert console.get("schema/level", subject="orders-value")["plan"] is None, "it has none of its own"
    console.post("schema/apply", plan=plan_of(console.get("schema/level", subject="orders-value", level="full")))
    assert registry.level("orders-value") == "FULL"
    console.post("schema/apply", plan=plan_of(console.get("schema/level", subject="orders-value")))
    assert registry.level("orders-value") is None
    assert [(each["before"], each["after"]) for each in audited(tmp_path)] == [(None, "FULL"), ("FULL", None)]


def test_what_another_client_changed_since_it_was_shown_is_refused(
    console: Running, registry: RegistryAdmin, tmp_path: Path
) -> None:
    level = plan_of(console.get("schema/level", subject="orders-value", level="FULL"))
    schema = plan_of(console.post("schema/register", subject="invoices-value", text=json.dumps(ONE), type="AVRO"))
    registry.set_compatibility("FORWARD", "orders-value")
    registry.register("invoices-value", json.dumps(NARROW))
    for number, subject in ((level, "orders-value"), (schema, "invoices-value")):
        refused = console.post("schema/apply", plan=number)
        assert refused.status == 400
        assert f"nothing was changed: {subject} is not as it was shown" in refused.json["error"]["message"]
    assert (registry.level("orders-value"), registry.versions("invoices-value")) == ("FORWARD", [1])
    assert audited(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("schema", {"subject": "nowhere"}, "Subject 'nowhere' not found"),
        ("schema", {"subject": ""}, "printable characters"),
        ("schema", {"subject": "orders-value", "version": 0}, "wanted a whole number"),
        ("schema", {"subject": "orders-value", "version": 9}, "Version 9 not found"),
        ("schema/diff", {"subject": "orders-value", "from": 1}, "wanted from and to"),
        ("schema/delete", {"subject": "orders-value", "version": 7}, "Version 7 not found"),
        ("schema/level", {}, "wanted the level of the registry"),
        ("schema/level", {"level": "SOMETIMES"}, "level: found 'SOMETIMES', wanted one of NONE"),
        ("schemas", {"match": "/(/"}, "regular expression"),
    ],
)
def test_wrong_parameters_are_named(console: Running, name: str, params: dict[str, Any], said: str) -> None:
    status, message = console.refused(name, **params)
    assert (status, said in message) == (400, True), message


def test_what_is_no_schema_and_no_undo_file_is_refused(console: Running) -> None:
    for body, said in (
        ({"subject": "a", "text": "{", "type": "AVRO"}, "found no AVRO schema"),
        ({"subject": "a", "text": "", "type": "JSON"}, "found nothing"),
        ({"subject": "a", "text": "{}", "type": "XML"}, "wanted one of AVRO"),
        ({"subject": "a", "text": '{"type": "record"}', "type": "AVRO"}, "record"),
        (
            {"subject": "a", "text": '"long"', "type": "AVRO", "references": ["x"]},
            "references: found 'x', wanted NAME=SUBJECT",
        ),
    ):
        refused = console.post("schema/register", **body)
        assert (refused.status, said in refused.json["error"]["message"]) == (400, True), refused.content
    refused = console.post("schema/restore", content='{"schema": "other"}')
    assert (refused.status, "wanted the undo file that" in refused.json["error"]["message"]) == (400, True)


def test_without_write_or_a_registry_nothing_changes(kafka: Settings, registry: RegistryAdmin, tmp_path: Path) -> None:
    with running_console(kafka, ConsoleOptions(folder=tmp_path, registry=registry.url)) as reading:
        plan = plan_of(reading.get("schema/delete", subject="orders-value"))
        assert reading.post("schema/apply", plan=plan).status == 403
        assert reading.get("session")["has_registry"]
    with running_console(kafka, ConsoleOptions(folder=tmp_path)) as without:
        status, said = without.refused("schemas")
        assert (status, "--registry URL" in said) == (400, True)
    assert registry.versions("orders-value") == [1, 2]


def test_a_login_is_used_and_a_refusal_shows_no_secret(kafka: Settings, tmp_path: Path) -> None:
    with EmbeddedRegistry(users={"ops": SECRET, "reader": SECRET}, read_only={"reader"}) as guarded:
        RegistryAdmin(guarded.url, user="ops", password=SECRET).register("orders-value", json.dumps(ONE))
        access = RegistryAccess(url=guarded.url, user="reader", password=SECRET)
        choices = ConsoleOptions(may_write=True, folder=tmp_path, registry=access)
        with running_console(kafka, choices) as console:
            assert console.get("schemas")["total"] == 1
            plan = plan_of(console.get("schema/delete", subject="orders-value"))
            refused = console.post("schema/apply", plan=plan)
            assert (refused.status, "may read only" in refused.json["error"]["message"]) == (503, True)
            assert SECRET.encode() not in refused.content
            assert SECRET not in json.dumps(console.get("session"))
        wrong = RegistryAccess(url=guarded.url.replace("://", f"://ops:not-{SECRET}@"))
        with running_console(kafka, ConsoleOptions(folder=tmp_path, registry=wrong)) as console:
            status, said = console.refused("schemas")
            assert (status, "HTTP 401" in said, SECRET in said) == (503, True, False)


def test_a_cluster_whose_name_has_to_be_typed_wants_it_for_schemas_too(
    kafka: Settings, registry: RegistryAdmin, tmp_path: Path
) -> None:
    choices = ConsoleOptions(may_write=True, folder=tmp_path, registry=registry.url, name="prod", asks_name=True)
    with running_console(kafka, choices) as console:
        plan = plan_of(console.get("schema/delete", subject="orders-value"))
        assert console.post("schema/apply", plan=plan, confirm="dev").status == 400
        assert registry.versions("orders-value") == [1, 2]
        assert console.post("schema/apply", plan=plan, confirm="prod").status == 200


def test_an_audit_file_that_cannot_be_written_changes_nothing(
    console: Running, registry: RegistryAdmin, tmp_path: Path
) -> None:
    (tmp_path / "ottla-console-audit.jsonl").mkdir()
    refused = console.post("schema/apply", plan=plan_of(console.get("schema/delete", subject="orders-value")))
    assert (refused.status, "nothing was changed" in refused.json["error"]["message"]) == (400, True)
    assert registry.versions("orders-value") == [1, 2]
