"""The Python in the pages about Spark and Arrow runs, page by page, from top to bottom."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def run_page(page, bootstrap_servers):
    lines, is_code = [], False
    for line in (HOW_TO / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            is_code = line == "```python"
            lines.append("")
        else:
            lines.append(line if is_code else "")
    program = "\n".join(lines).replace('"localhost:9092"', repr(bootstrap_servers))
    assert bootstrap_servers in program
    # As a script: what it defines is in no module that workers could import.
    module = types.ModuleType("__main__")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", module)
        exec(compile(program, str(HOW_TO / page), "exec", dont_inherit=True), vars(module))


def test_the_columnar_page_is_true(kafka):
    run_page("columnar.md", kafka.bootstrap_servers)


@pytest.mark.spark
def test_the_spark_page_is_true(kafka, spark):
    run_page("spark.md", kafka.bootstrap_servers)


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_the_pipeline_page_is_true(make_cluster, spark):
    # A Kafka of its own: the page counts what is in its topics, whose names other tests use too.
    run_page("pipeline.md", make_cluster().bootstrap_servers)


@pytest.mark.spark
def test_every_option_is_in_the_table_of_the_page():
    from ottla.spark.options import DECODE_OPTION, KNOWN

    page = (HOW_TO / "spark.md").read_text(encoding="utf-8")
    undocumented = [name for name in KNOWN.values() if f"`{name}`" not in page]
    assert undocumented == ["on_data_loss", DECODE_OPTION]  # an alias, and one that is not written by hand
