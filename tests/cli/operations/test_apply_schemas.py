"""`ottla apply` and the schema registry: what is declared is registered, levels are compared three ways."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_output import Run, document, rows

from ottla.admin import Admin
from ottla.serdes.registered_schema import SchemaReference
from ottla.serdes.registry_admin import RegistryAdmin
from ottla.testing.registry import EmbeddedRegistry

ONE = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
TWO = {**ONE, "fields": [*ONE["fields"], {"name": "note", "type": "string", "default": ""}]}
NARROW = {**ONE, "fields": [{"name": "id", "type": "int"}]}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryAdmin]:
    with EmbeddedRegistry() as running:
        monkeypatch.setenv("OTTLA_REGISTRY", running.url)
        yield RegistryAdmin(running.url, attempts=1)


def declare(schema: object, *lines: str) -> None:
    Path("order.avsc").write_text(json.dumps(schema))
    Path("cluster.toml").write_text("\n".join(["[schemas.orders-value]", *lines]))


def test_a_schema_is_registered_once_and_its_next_version_after_it(ottla: Run, registry: RegistryAdmin) -> None:
    declare(ONE, 'file = "order.avsc"', 'compatibility = "FULL"')
    plan = ottla("apply", "plan", "cluster.toml", "--exit-code", "--format", "json")
    assert plan.exit_code == 1
    items = document(plan, "ottla.apply.plan/1")["items"]
    assert [(each["kind"], each["subject"], each["old"], each["new"]) for each in items] == [
        ("compatibility level", "orders-value", None, "FULL"),
        ("schema", "orders-value", None, "version 1"),
    ]
    assert registry.versions("orders-value") == []
    applied = ottla("apply", "cluster.toml", "--yes", "--undo", "undo.json")
    assert applied.exit_code == 0, applied.output
    assert (registry.versions("orders-value"), registry.level("orders-value")) == ([1], "FULL")
    assert rows(ottla("apply", "plan", "cluster.toml", "--exit-code")) == []
    declare(TWO, 'file = "order.avsc"')
    changed = ottla("apply", "cluster.toml", "--yes")
    assert [row[:5] for row in rows(changed)] == [
        ["compatibility level", "orders-value", "", "FULL", ""],
        ["schema", "orders-value", "AVRO", "version 1", "the next version"],
    ]
    assert (registry.versions("orders-value"), registry.level("orders-value")) == ([1, 2], None)
    Path("cluster.toml").write_text("")
    assert rows(ottla("apply", "plan", "cluster.toml", "--prune")) == [], "no schema is deleted"
    undone = ottla("apply", "undo.json", "--yes")
    assert "not reverted: schema orders-value: version 1 was registered; `ottla schemas delete`" in undone.stderr


def test_an_incompatible_schema_changes_nothing(ottla: Run, admin: Admin, registry: RegistryAdmin, name: str) -> None:
    registry.register("orders-value", json.dumps(ONE))
    declare(NARROW, 'file = "order.avsc"', f"[topics.{name}]")
    refused = ottla("apply", "cluster.toml", "--yes")
    assert (refused.exit_code, "schema orders-value: not compatible" in refused.stderr) == (2, True), refused.output
    assert name not in {topic.name for topic in admin.list_topics()}


def test_a_saved_plan_is_refused_after_another_registered(
    ottla: Run, admin: Admin, registry: RegistryAdmin, name: str
) -> None:
    declare(TWO, 'file = "order.avsc"', f"[topics.{name}]")
    assert ottla("apply", "plan", "cluster.toml", "-o", "plan.json").exit_code == 0
    registry.register("orders-value", json.dumps(ONE))
    for how in ("--dry-run", "--yes"):
        refused = ottla("apply", "plan.json", how)
        assert refused.exit_code == 2, "nothing is changed"
        assert "schema orders-value: version 1 is the latest now; plan again" in refused.stderr
    assert name not in {topic.name for topic in admin.list_topics()}
    assert registry.versions("orders-value") == [1]
    assert ottla("apply", "cluster.toml", "--yes").exit_code == 0
    assert registry.versions("orders-value") == [1, 2]


def test_a_saved_plan_changes_nothing_while_the_registry_is_away(
    ottla: Run, admin: Admin, registry: RegistryAdmin, name: str
) -> None:
    declare(ONE, 'file = "order.avsc"', f"[topics.{name}]")
    assert ottla("apply", "plan", "cluster.toml", "-o", "plan.json").exit_code == 0
    refused = ottla("apply", "plan.json", "--yes", "--registry", "http://127.0.0.1:1")
    assert "RegistryUnavailable: " in refused.stderr
    assert "revert it with" not in refused.stderr
    assert name not in {topic.name for topic in admin.list_topics()}


def test_a_level_that_was_changed_since_the_plan_changes_nothing(
    ottla: Run, admin: Admin, registry: RegistryAdmin, name: str
) -> None:
    declare(ONE, 'compatibility = "FULL"', f"[topics.{name}]")
    assert ottla("apply", "plan", "cluster.toml", "-o", "plan.json").exit_code == 0
    registry.set_compatibility("FORWARD", "orders-value")
    refused = ottla("apply", "plan.json", "--yes")
    assert (refused.exit_code, "is FORWARD now; plan again" in refused.stderr) == (2, True), refused.output
    assert name not in {topic.name for topic in admin.list_topics()}
    assert registry.level("orders-value") == "FORWARD"


WITHOUT = {**ONE, "fields": []}
"""It reads data of ONE, and ONE does not read its data."""


def test_a_version_is_compared_at_the_level_that_is_declared_with_it(
    ottla: Run, admin: Admin, registry: RegistryAdmin, name: str
) -> None:
    registry.register("orders-value", json.dumps(ONE))
    declare(WITHOUT, 'file = "order.avsc"', 'compatibility = "FULL"', f"[topics.{name}]")
    said = "schema orders-value: not compatible with the versions before it at the declared level FULL: /id/: "
    for command in (("plan", "cluster.toml"), ("run", "cluster.toml", "--yes")):
        refused = ottla("apply", *command)
        assert (refused.exit_code, said in refused.stderr) == (2, True), refused.output
    assert registry.level("orders-value") is None
    assert name not in {topic.name for topic in admin.list_topics()}
    declare(NARROW, 'file = "order.avsc"', 'compatibility = "NONE"')
    assert ottla("apply", "cluster.toml", "--yes").exit_code == 0, "the old level refuses it, and the declared one not"
    assert (registry.versions("orders-value"), registry.level("orders-value")) == ([1, 2], "NONE")
    declare(ONE, 'file = "order.avsc"')
    assert ottla("apply", "cluster.toml", "--yes").exit_code == 0, "it is version 1"
    declare({**ONE, "fields": [*ONE["fields"], {"name": "must", "type": "string"}]}, 'file = "order.avsc"')
    refused = ottla("apply", "plan", "cluster.toml")
    assert "/must/: the writer has no such field" in refused.stderr, "without a level of its own that of the registry"


def test_a_saved_plan_is_compared_at_the_level_that_it_sets(ottla: Run, registry: RegistryAdmin) -> None:
    registry.register("orders-value", json.dumps(ONE))
    declare(NARROW, 'file = "order.avsc"', 'compatibility = "NONE"')
    assert ottla("apply", "plan", "cluster.toml", "-o", "plan.json").exit_code == 0
    assert ottla("apply", "plan.json", "--yes").exit_code == 0
    assert registry.versions("orders-value") == [1, 2]


def test_what_refers_to_each_other_is_registered_in_that_order(ottla: Run, registry: RegistryAdmin) -> None:
    Path("item.avsc").write_text(json.dumps({**ONE, "name": "Item"}))
    Path("basket.avsc").write_text(json.dumps({**ONE, "name": "Basket", "fields": [{"name": "item", "type": "Item"}]}))
    declared = (
        '[schemas.a-value]\nfile = "basket.avsc"\nreferences = ["Item=items-value:1"]\n'
        '[schemas.items-value]\nfile = "item.avsc"\n'
    )
    Path("cluster.toml").write_text(declared)
    planned = rows(ottla("apply", "plan", "cluster.toml", "-o", "plan.json"))
    assert [row[1] for row in planned] == ["items-value", "a-value"]
    assert ottla("apply", "plan.json", "--yes").exit_code == 0
    assert registry.version("a-value").references[0].subject == "items-value"
    assert rows(ottla("apply", "plan", "cluster.toml")) == []
    Path("cluster.toml").write_text(declared.replace("items-value:1", "items-value:7"))
    refused = ottla("apply", "plan", "cluster.toml")
    assert (refused.exit_code, "schema a-value: found a reference that leads nowhere" in refused.stderr) == (2, True)
    Path("cluster.toml").write_text(declared + 'references = ["Basket=a-value:1"]\n')
    refused = ottla("apply", "plan", "cluster.toml")
    assert (refused.exit_code, "its references form a cycle: a-value → items-value" in refused.stderr) == (2, True)


def test_an_export_declares_every_subject_and_applies_to_another_registry(
    ottla: Run, registry: RegistryAdmin, tmp_path: Path
) -> None:
    item = {**ONE, "name": "Item"}
    registry.register("items-value", json.dumps(item))
    basket = {**ONE, "name": "Basket", "fields": [{"name": "item", "type": "Item"}]}
    registry.register("a-value", json.dumps(basket), references=[SchemaReference("Item", "items-value", 1)])
    registry.register('../odd "name" ü', '{"type": "object"}\n', "JSON")
    registry.register("protos-value", 'syntax = "proto3";\nmessage A { int32 x = 1; }\n', "PROTOBUF")
    registry.register("protos-value", 'syntax = "proto3";\nmessage A { int32 x = 1; string y = 2; }\n', "PROTOBUF")
    registry.set_compatibility("FULL", "items-value")
    exported = ottla("apply", "export", "-o", "all.toml")
    assert (exported.exit_code, "4 schemas written to all-schemas" in exported.stderr) == (0, True), exported.output
    assert sorted(each.name for each in Path("all-schemas").iterdir()) == [
        "..%2Fodd%20%22name%22%20%C3%BC.json",
        "a-value.avsc",
        "items-value.avsc",
        "protos-value.proto",
    ]
    assert rows(ottla("apply", "plan", "all.toml")) == []
    to_stdout = ottla("apply", "export")
    assert ("[schemas" in to_stdout.stdout, "-o FILE writes them" in to_stdout.stderr) == (False, True)
    with EmbeddedRegistry() as running:
        applied = ottla("apply", "all.toml", "--yes", "--registry", running.url)
        assert applied.exit_code == 0, applied.output
        copied = RegistryAdmin(running.url)
        assert copied.subjects() == registry.subjects()
        assert copied.version("protos-value").text == registry.version("protos-value").text
        assert (copied.level("items-value"), copied.level("a-value")) == ("FULL", None)
    registry.register("x" * 300, '"string"')
    refused = ottla("apply", "export", "-o", "all.toml")
    assert (refused.exit_code, "found a name that is too long for a file" in refused.stderr) == (2, True)


def test_an_export_is_toml_whatever_a_reference_is_called(ottla: Run, registry: RegistryAdmin) -> None:
    registry.register("items-value", '{"type": "object"}', "JSON")
    reference = SchemaReference("item\x7f.json", "items-value", 1)
    registry.register("a-value", '{"$ref": "item%7F.json"}', "JSON", references=[reference])
    exported = ottla("apply", "export", "-o", "all.toml")
    assert exported.exit_code == 0, exported.output
    declared = tomllib.loads(Path("all.toml").read_text())
    assert declared["schemas"]["a-value"]["references"] == ["item\x7f.json=items-value:1"]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "schemas.orders-value: found neither, wanted file or compatibility"),
        (['file = "absent.avsc"'], "schemas.orders-value: absent.avsc: No such file"),
        (['file = "order.avsc"', 'type = "XML"'], "schemas.orders-value.type: found 'XML', wanted one of AVRO"),
        (['compatibility = "SOME"'], "schemas.orders-value.compatibility: found 'SOME', wanted one of NONE, "),
        (['file = "order"'], "schemas.orders-value: order: found a name that says no type, wanted .avsc, "),
        (['file = "order.avsc"', 'references = ["x"]'], "schemas.orders-value.references: found 'x', wanted NAME="),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(
    ottla: Run, registry: RegistryAdmin, lines: list[str], problem: str
) -> None:
    declare(ONE, *lines)
    refused = ottla("apply", "plan", "cluster.toml")
    assert (refused.exit_code, f"cluster.toml: {problem}" in refused.stderr) == (2, True), refused.output


def test_without_a_registry_the_option_is_named(ottla: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_REGISTRY", raising=False)
    declare(ONE, 'file = "order.avsc"')
    refused = ottla("apply", "plan", "cluster.toml")
    assert (refused.exit_code, "wanted --registry or OTTLA_REGISTRY" in refused.stderr) == (2, True)
