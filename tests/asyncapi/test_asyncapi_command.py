"""`ottla asyncapi`: the document of a service, printed or written."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from command_output import document
from help_examples import examples_of_nouns

from ottla.cli import main

SERVICE = """
from dataclasses import dataclass
from ottla import App, Json

@dataclass
class Order:
    id: int

app = App("billing")

@app.handler("orders", value=Json(Order))
def on_order(order: Order) -> None: ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "billing", raising=False)
    tmp_path.joinpath("billing.py").write_text(SERVICE)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["asyncapi", *arguments])


def test_the_document_is_printed_and_written(folder: Path) -> None:
    printed = run("billing:app")
    assert printed.exit_code == 0, printed.output
    found = json.loads(printed.stdout)
    assert (found["asyncapi"], list(found["operations"])) == ("3.0.0", ["on_order"])
    assert run("show", "billing:app").stdout == printed.stdout
    written = run("-o", "asyncapi.json", "billing:app", "--app-version", "1.4.0")
    assert (written.exit_code, written.stdout) == (0, "")
    assert json.loads(folder.joinpath("asyncapi.json").read_text())["info"]["version"] == "1.4.0"
    assert sorted(each.name for each in folder.glob("*.json*")) == ["asyncapi.json"]


def test_what_is_no_app_is_an_error_and_leaves_the_file_alone(folder: Path) -> None:
    folder.joinpath("asyncapi.json").write_text("old")
    for target, said in (("billing:Order", "wanted an ottla App"), ("nowhere:app", "there is no module")):
        refused = run(target, "-o", "asyncapi.json")
        assert refused.exit_code == 2
        assert said in refused.stderr
    assert folder.joinpath("asyncapi.json").read_text() == "old"
    refused = run("billing:app", "-o", "missing/asyncapi.json")
    assert refused.exit_code == 2
    assert "missing/asyncapi.json: No such file or directory" in refused.stderr


@pytest.mark.parametrize("line", [line for _, line in examples_of_nouns("asyncapi")])
def test_the_examples_run(line: str, folder: Path) -> None:
    folder.joinpath("asyncapi.json").write_text(run("billing:app").stdout)
    ended = CliRunner().invoke(main, shlex.split(line)[1:])
    assert ended.exit_code == 0, ended.output


def test_a_breaking_difference_is_exit_code_2(folder: Path) -> None:
    assert run("billing:app", "-o", "old.json").exit_code == 0
    same = run("diff", "old.json", "billing:app")
    assert (same.exit_code, same.stdout, same.stderr) == (0, "", "no difference\n")
    text = folder.joinpath("old.json").read_text()
    folder.joinpath("new.json").write_text(text.replace('"required": [\n          "id"\n        ]', '"required": []'))
    assert folder.joinpath("new.json").read_text() != text
    assert run("diff", "old.json", "new.json").exit_code == 0, "a field that may be missing is read"
    broken = run("diff", "new.json", "old.json", "--format", "json")
    assert broken.exit_code == 2
    (item,) = document(broken, "ottla.asyncapi.diff/1")["items"]
    assert item == {
        "breaking": True,
        "operation": "receive orders",
        "message": "Order",
        "change": "payload /id: reader requires it, writer can leave it out",
    }


@pytest.mark.parametrize("text", ["", "{", "[" * 3_000, "[]", '{"asyncapi": "2.0.0"}'])
def test_a_file_that_is_no_document_is_named(folder: Path, text: str) -> None:
    folder.joinpath("old.json").write_text(text)
    refused = run("diff", "old.json", "billing:app")
    assert refused.exit_code == 2
    assert "Error: " in refused.stderr
    assert refused.stdout == ""
