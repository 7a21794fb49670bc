"""`ottla schemas` on the embedded registry: what it shows, what it changes, and that a deletion can be undone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from command_output import document, rows
from help_examples import examples_of_nouns

from ottla.cli import main
from ottla.cli.operations.schemas import show
from ottla.serdes.registered_schema import SchemaReference
from ottla.serdes.registry_admin import RegistryAdmin
from ottla.testing.registry import EmbeddedRegistry

Run = Callable[..., Result]

ONE = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
TWO = {**ONE, "fields": [*ONE["fields"], {"name": "note", "type": "string", "default": ""}]}
NARROW = {**ONE, "fields": [{"name": "id", "type": "int"}]}
ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}
WITH_ITEM = {**ONE, "fields": [{"name": "item", "type": "shop.Item"}]}

SERVICE = """
from dataclasses import dataclass
from ottla import App, Avro
from ottla.serdes import SchemaRegistry

registry = SchemaRegistry({url!r}, attempts=1)

@dataclass
class Order:
    id: int
    total: float

app = App("billing")
app.producer(value=Avro(Order, registry=registry), topics=["invoices"])

@app.handler("orders", value=Avro(Order, registry=registry))
def on_order(order: Order) -> None: ...
"""


@pytest.fixture
def server() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


@pytest.fixture
def registry(server: EmbeddedRegistry) -> RegistryAdmin:
    """Version 1 and 2 of orders-value, and schemas that refer to each other."""
    admin = RegistryAdmin(server.url, attempts=1)
    admin.register("orders-value", json.dumps(ONE))
    admin.register("orders-value", json.dumps(TWO))
    admin.register("items-value", json.dumps(ITEM))
    admin.register("baskets-value", json.dumps(WITH_ITEM), references=[SchemaReference("shop.Item", "items-value", 1)])
    return admin


@pytest.fixture
def run(registry: RegistryAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "billing", raising=False)
    tmp_path.joinpath("billing.py").write_text(SERVICE.format(url=registry.url))
    tmp_path.joinpath("order.avsc").write_text(json.dumps(TWO))
    tmp_path.joinpath("narrow.avsc").write_text(json.dumps(NARROW))
    tmp_path.joinpath("item.proto").write_text('syntax = "proto3";\nmessage Item { string sku = 1; }\n')

    def run(*arguments: str, **env: str) -> Result:
        environment = {"OTTLA_REGISTRY": registry.url, **env}
        return CliRunner().invoke(main, ["schemas", *arguments], env=environment)

    return run


def test_subjects_versions_and_schemas_are_listed_and_shown(run: Run, registry: RegistryAdmin) -> None:
    assert rows(run("list")) == [
        ["baskets-value", "1", "4", "AVRO", "1"],
        ["items-value", "1", "3", "AVRO", "0"],
        ["orders-value", "2", "2", "AVRO", "0"],
    ]
    found = document(run("list", "orders*", "--format", "json"), "ottla.schemas.list/1")
    assert [each["subject"] for each in found["items"]] == ["orders-value"]
    assert run("list", "nothing*").stderr == "no subjects\n"
    assert rows(run("versions", "orders-value")) == [["1", "1", "AVRO", "[]"], ["2", "2", "AVRO", "[]"]]
    assert len(document(run("versions", "orders-value", "--format", "json"), "ottla.schemas.versions/1")["items"]) == 2
    used = document(run("show", "items-value", "--format", "json"), "ottla.schemas.show/1")
    assert used["referenced_by"] == [{"subject": "baskets-value", "version": 1}]
    using = document(run("show", "baskets-value", "--format", "json"), "ottla.schemas.show/1")
    assert using["references"] == [{"name": "shop.Item", "subject": "items-value", "version": 1}]
    by_id = document(run("show", "--id", "2", "--format", "json"), "ottla.schemas.show/1")
    assert by_id["versions_of_id"] == [{"subject": "orders-value", "version": 2}]
    assert json.loads(run("show", "orders-value", "--version", "1", "--raw").stdout) == ONE
    shown = run("show", "baskets-value", "--format", "table").stdout
    assert "shop.Item = items-value version 1" in shown
    assert '  "name": "Order",' in shown.splitlines()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("show nowhere-value", "Subject 'nowhere-value' not found"),
        ("show orders-value --version 9", "Version 9 not found"),
        ("show --id 99", "no schema 99"),
        ("show", "wanted one"),
        ("show orders-value --id 1", "wanted one"),
        ("versions nowhere-value", "Subject 'nowhere-value' not found"),
        ("versions ''", "wanted 1 to 1,000 printable characters"),
        ("diff items-value", "version 1 is the first one"),
        ("diff orders-value --to 2 --file order.avsc", "wanted one of them"),
        ("check orders-value", "wanted SUBJECT and FILE, or --app"),
        ("check orders-value missing.avsc", "missing.avsc: No such file or directory"),
        ("check orders-value notes.txt", "notes.txt: found a name that says no type"),
        ("check orders-value bad.avsc", "bad.avsc: found no AVRO schema"),
        ("check new-value record.avsc", "record"),
        ("check orders-value order.avsc --reference items", "wanted NAME=SUBJECT:VERSION"),
        ("check --app billing:Order", "wanted an ottla App"),
        ("register orders-value narrow.avsc --yes", "is not compatible with the versions before it"),
        ("register orders-value bad.avsc --yes", "found no AVRO schema"),
        ("delete items-value --yes", "items-value version 1: found in use by baskets-value version 1"),
        ("delete orders-value --version 7 --yes", "Version 7 not found"),
        ("delete orders-value --undo order.avsc --yes", "never overwrites another"),
        (
            "restore order.avsc --yes",
            "order.avsc: found a document whose schema is None",
        ),
        (
            "restore empty.json",
            "schema is None and not 'ottla.schemas.undo/1', wanted the undo file",
        ),
        ("restore list.json", "list.json: found a list, wanted the undo file that `ottla schemas delete` wrote"),
        (
            "restore half.json",
            "half.json: found no field 'compatibility', wanted the undo file that",
        ),
        ("set-compatibility SOMETIMES --yes", "wanted one of NONE, BACKWARD"),
        ("list --registry ftp://x", "wanted http://host:port"),
        ("list --registry-key order.avsc", "wanted a certificate with the key"),
        ("list --registry-ca order.avsc", "wanted readable PEM files"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(line: str, said: str, run: Run, registry: RegistryAdmin) -> None:
    Path("bad.avsc").write_text("{")
    Path("empty.json").write_text("{}")
    Path("list.json").write_text("[]")
    Path("half.json").write_text('{"schema": "ottla.schemas.undo/1"}')
    Path("record.avsc").write_text('{"type": "record"}')
    Path("notes.txt").write_text("hello")
    refused = run(*shlex.split(line))
    assert refused.exit_code == 2, refused.output
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert registry.versions("orders-value") == [1, 2]
    assert registry.subjects() == ["baskets-value", "items-value", "orders-value"]


def test_a_difference_says_who_can_read_whom(run: Run) -> None:
    shown = document(run("diff", "orders-value", "--format", "json"), "ottla.schemas.diff/1")
    assert (shown["items"], shown["old"], shown["new"]) == ([], "version 1", "version 2")
    assert '+      "name": "note",' in shown["text"]
    narrow = rows(run("diff", "orders-value", "--file", "narrow.avsc", "--from", "1"))
    assert narrow == [["backward", "/id/: reader wants int, writer has long"]]
    table = run("diff", "orders-value", "--file", "narrow.avsc", "--from", "1", "--format", "table").stdout
    assert '-      "type": "long"' in table
    other_kind = run("diff", "orders-value", "--file", "item.proto", "--format", "json")
    assert [each["problem"] for each in document(other_kind, "ottla.schemas.diff/1")["items"]] == [
        "/: reader wants PROTOBUF, writer has AVRO",
        "/: reader wants AVRO, writer has PROTOBUF",
    ]


def test_schemas_with_references_are_compared_with_what_they_refer_to(run: Run) -> None:
    Path("basket.avsc").write_text(json.dumps({**ONE, "fields": [{"name": "item", "type": ITEM}]}))
    same = run("diff", "baskets-value", "--file", "basket.avsc")
    assert (same.exit_code, same.stdout) == (0, "")
    Path("basket.avsc").write_text(json.dumps({**ONE, "fields": [{"name": "item", "type": "string"}]}))
    found = rows(run("diff", "baskets-value", "--file", "basket.avsc"))
    assert found[0] == ["backward", "/item/: reader wants string, writer has shop.Item"]


def test_a_check_asks_the_registry_and_ends_with_1_for_a_schema_that_does_not_fit(run: Run) -> None:
    assert rows(run("check", "orders-value", "order.avsc")) == [["orders-value", "AVRO", "registered", "[]"]]
    assert rows(run("check", "other-value", "narrow.avsc"))[0][2] == "new subject"
    refused = run("check", "orders-value", "narrow.avsc", "--format", "json")
    (item,) = document(refused, "ottla.schemas.check/1")["items"]
    assert (refused.exit_code, item["result"]) == (1, "incompatible")
    assert item["problems"] == ["/id/: reader wants int, writer has long"]
    Path("order.json").write_text('{"type": "object"}')
    assert rows(run("check", "documents-value", "order.json"))[0][1:3] == ["JSON", "new subject"]


def test_a_transitive_level_is_checked_against_every_version(run: Run, registry: RegistryAdmin) -> None:
    registry.set_compatibility("NONE", "orders-value")
    registry.register("orders-value", json.dumps({**ONE, "fields": []}))
    required = {
        **ONE,
        "fields": [{"name": "id", "type": "long", "default": 0}, {"name": "note", "type": "int", "default": 0}],
    }
    Path("required.avsc").write_text(json.dumps(required))
    registry.set_compatibility("BACKWARD", "orders-value")
    assert run("check", "orders-value", "required.avsc").exit_code == 0
    registry.set_compatibility("BACKWARD_TRANSITIVE", "orders-value")
    assert run("check", "orders-value", "required.avsc").exit_code == 1


def test_a_service_is_checked_by_what_it_sends_and_what_it_receives(run: Run, registry: RegistryAdmin) -> None:
    found = run("check", "--app", "billing:app", "--format", "json", OTTLA_REGISTRY="")
    by_topic = {item["topic"]: item for item in document(found, "ottla.schemas.check/1")["items"]}
    assert found.exit_code == 1
    assert by_topic["invoices"]["result"] == "new subject"
    received = by_topic["orders"]
    assert (received["action"], received["part"], received["result"]) == ("receive", "value", "incompatible")
    assert received["problems"] == [
        f"version {number}: /total/: the writer has no such field, and the reader no default" for number in (1, 2)
    ]
    registry.delete_subject("orders-value")
    assert rows(run("check", "--app", "billing:app"))[0][6] == "new subject"
    assert run("check", "--app", "billing:app", OTTLA_REGISTRY="").exit_code == 0


def test_a_schema_is_registered_once(run: Run, registry: RegistryAdmin) -> None:
    assert run("register", "new-value", "narrow.avsc", "--dry-run").exit_code == 0
    refused = run("register", "new-value", "narrow.avsc")
    assert (refused.exit_code, "--yes agrees" in refused.stderr) == (2, True)
    assert "new-value" not in registry.subjects()
    made = run("register", "new-value", "narrow.avsc", "--yes", "--format", "json")
    assert document(made, "ottla.schemas.register/1")["items"][0]["result"] == "new subject"
    assert made.stderr == "new-value: registered as version 1, id 5\n"
    again = run("register", "new-value", "narrow.avsc", "--yes")
    assert (again.exit_code, again.stderr) == (0, "new-value: it is version 1 already, nothing to register\n")
    proto = run("register", "protos-value", "item.proto", "--yes")
    assert proto.exit_code == 0, proto.output
    assert registry.version("protos-value").type == "PROTOBUF"
    Path("basket.avsc").write_text(json.dumps(WITH_ITEM))
    unknown = run("register", "other-value", "basket.avsc", "--yes")
    assert (unknown.exit_code, "shop.Item" in unknown.stderr) == (2, True)
    option = ("--reference", "shop.Item=items-value:1")
    assert run("register", "other-value", "basket.avsc", "--yes", *option).exit_code == 0
    assert registry.version("other-value").id == 4


def test_a_deleted_subject_is_restored_with_its_ids_and_its_level(run: Run, registry: RegistryAdmin) -> None:
    registry.set_compatibility("FULL", "orders-value")
    dry = run("delete", "orders-value", "--dry-run", "--format", "json")
    assert len(document(dry, "ottla.schemas.delete/1")["items"]) == 2
    assert registry.versions("orders-value") == [1, 2]
    gone = run("delete", "orders-value", "--undo", "before.json", "--yes")
    assert gone.exit_code == 0, gone.output
    assert "ottla schemas restore before.json" in gone.stderr
    assert registry.versions("orders-value") == []
    assert registry.level("orders-value") is None
    assert registry.schema(1).text == json.dumps(ONE), "records with the id stay readable"
    assert rows(run("list", "orders*", "--deleted")) == [["orders-value", "2", "2", "AVRO", "0", "true"]]
    assert rows(run("versions", "orders-value", "--deleted"))[0] == ["1", "1", "AVRO", "[]", "true"]
    back = run("restore", "before.json", "--yes", "--format", "json")
    assert [item["result"] for item in document(back, "ottla.schemas.restore/1")["items"]] == ["registered again"] * 2
    assert [(registry.version("orders-value", n).id, n) for n in registry.all_versions("orders-value")] == [
        (1, 3),
        (2, 4),
    ]
    assert registry.level("orders-value") == "FULL"
    assert run("restore", "before.json", "--yes").stderr == "orders-value: nothing to restore\n"


def test_versions_that_todays_level_refuses_are_restored_too(run: Run, registry: RegistryAdmin) -> None:
    registry.set_compatibility("NONE", "orders-value")
    registry.register("orders-value", json.dumps(NARROW))
    registry.set_compatibility("FULL", "orders-value")
    assert run("delete", "orders-value", "--undo", "before.json", "--yes").exit_code == 0
    assert run("restore", "before.json", "--yes").exit_code == 0
    assert [registry.version("orders-value", n).id for n in registry.all_versions("orders-value")] == [1, 2, 5]
    assert registry.level("orders-value") == "FULL"


def test_a_restoration_that_was_interrupted_is_finished_by_the_next(run: Run, registry: RegistryAdmin) -> None:
    assert run("delete", "orders-value", "--undo", "before.json", "--yes").exit_code == 0
    registry.set_compatibility("NONE", "orders-value")
    registry.register("orders-value", json.dumps(ONE))
    assert run("restore", "before.json", "--yes").exit_code == 0
    assert [RegistryAdmin(registry.url).version("orders-value", n).id for n in (3, 4)] == [1, 2]
    assert registry.level("orders-value") is None


def test_one_version_is_deleted_and_a_file_that_cannot_be_written_deletes_nothing(
    run: Run, registry: RegistryAdmin
) -> None:
    refused = run("delete", "orders-value", "--version", "1", "--undo", "missing/before.json", "--yes")
    assert (refused.exit_code, registry.versions("orders-value")) == (2, [1, 2])
    assert run("delete", "orders-value", "--version", "1", "--yes").exit_code == 0
    assert registry.versions("orders-value") == [2]
    (undo,) = Path().glob("orders-value-schemas-*.json")
    assert json.loads(undo.read_text())["versions"][0]["text"] == json.dumps(ONE)


def test_levels_are_shown_set_and_removed(run: Run, registry: RegistryAdmin) -> None:
    assert rows(run("compatibility")) == [["", "BACKWARD", "true"]]
    assert run("set-compatibility", "full", "orders-value", "--dry-run").exit_code == 0
    assert registry.level("orders-value") is None
    changed = run("set-compatibility", "full", "orders-value", "--yes", "--format", "json")
    (item,) = document(changed, "ottla.schemas.set-compatibility/1")["items"]
    assert item == {"subject": "orders-value", "old_level": None, "level": "FULL"}
    shown = document(
        run("compatibility", "orders-value", "items-value", "--format", "json"), "ottla.schemas.compatibility/1"
    )
    assert [(each["level"], each["own"]) for each in shown["items"]] == [("FULL", True), ("BACKWARD", False)]
    assert run("unset-compatibility", "orders-value", "--yes").exit_code == 0
    assert registry.level("orders-value") is None
    assert run("unset-compatibility", "orders-value", "--yes").stderr == "nothing to change\n"
    assert run("set-compatibility", "NONE", "--yes").exit_code == 0
    assert registry.level() == "NONE"


def test_what_a_schema_holds_is_never_sent_to_a_terminal(
    run: Run, registry: RegistryAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = json.dumps({"type": "string", "doc": "\x1b[2J\u202e"}, ensure_ascii=False).replace("\\u001b", "\x1b")
    proto = f'syntax = "proto3"; // {hostile}\nmessage A {{ }}'
    registry.register("hostile-value", proto, "PROTOBUF")
    assert "\x1b" in run("show", "hostile-value", "--raw").stdout, "a file gets it as it is"
    monkeypatch.setattr(show, "is_terminal", lambda stream: True)
    for line in (["--raw"], ["--format", "table"], ["--format", "plain"]):
        shown = run("show", "hostile-value", *line).stdout
        assert "message A" in shown
        assert not {"\x1b", "\u202e"} & set(shown), line


@pytest.mark.parametrize("line", [line for _, line in examples_of_nouns("schemas")])
def test_the_examples_run(line: str, run: Run, registry: RegistryAdmin) -> None:
    Path("billing.py").write_text(SERVICE.format(url=registry.url).replace('"orders"', '"other"'))
    if "restore" in line:
        assert run("delete", "orders-value", "--undo", "before.json", "--yes").exit_code == 0
    if line.startswith("ottla schemas register items-value"):
        registry.set_compatibility("NONE")
    ended = run(*shlex.split(line)[2:])
    assert ended.exit_code == 0, ended.output


def test_subjects_are_completed(run: Run, registry: RegistryAdmin, tmp_path: Path) -> None:
    def complete(*words: str, **env: str) -> list[str]:
        environment: dict[str, Any] = {
            "OTTLA_REGISTRY": registry.url,
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "_OTTLA_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["ottla", *words]),
            "COMP_CWORD": str(len(words)),
        }
        ended = CliRunner().invoke(main, prog_name="ottla", env=environment | env)
        assert ended.stderr == ""
        return [line.partition(",")[2] for line in ended.stdout.splitlines() if line]

    assert complete("schemas", "show", "ord") == ["orders-value"]
    assert complete("schemas", "show", "ord", OTTLA_REGISTRY="http://127.0.0.1:1") == []
    assert complete("schemas", "set-compatibility", "FU") == ["FULL", "FULL_TRANSITIVE"]
