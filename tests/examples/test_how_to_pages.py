"""The Python in the how-to pages runs, page by page, from top to bottom."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from ottla.testing import Kafka

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def blocks(page: str) -> str:
    """The page's Python as one program whose line numbers are the page's, so that a traceback points into it."""
    lines, is_code = [], False
    for line in (HOW_TO / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            is_code = line == "```python"
            lines.append("")
        else:
            lines.append(line if is_code else "")
    return "\n".join(lines)


def run_page(page: str) -> dict[str, object]:
    program = blocks(page)
    assert program.strip()
    module = types.ModuleType("how_to_page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
        exec(compile(program, str(HOW_TO / page), "exec", dont_inherit=True), vars(module))
    return vars(module)


def test_the_serdes_page_is_true() -> None:
    run_page("serdes.md")


def test_the_testing_page_is_true(
    kafka: Kafka, make_topic: object, run_app: object, make_secure_kafka: object, make_cluster: object
) -> None:
    names = run_page("testing.md")
    test, secure_test = names["test_orders_are_billed"], names["test_billing_logs_in"]
    assert callable(test)
    test(kafka, make_topic, run_app)
    assert callable(secure_test)
    secure_test(make_secure_kafka)
    names["test_the_cluster_has_what_billing_needs"](make_cluster)  # type: ignore[operator]


@pytest.mark.parametrize("page", ["testing.md"])
def test_every_fixture_in_the_table_exists(page: str) -> None:
    plugin = (HOW_TO.parents[1] / "src" / "ottla" / "testing" / "plugin.py").read_text(encoding="utf-8")
    fixtures = set(re.findall(r"@pytest\.fixture.*\ndef ([a-z]\w+)", plugin))
    table = (HOW_TO / page).read_text(encoding="utf-8").split("| fixture |")[1].split("\n\n")[0]
    documented = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert documented == fixtures
