"""Packages whose public names are imported when they are first used (`ottla.lazy`)."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

PACKAGES = [
    "ottla",
    "ottla.admin",
    "ottla.admin.doctor",
    "ottla.bridge",
    "ottla.columnar",
    "ottla.config",
    "ottla.spark",
    "ottla.stores",
    "ottla.testing",
    "ottla.tokens",
    "ottla.wire_client",
]


@pytest.mark.parametrize("name", PACKAGES)
def test_what_type_checkers_see_is_what_is_there(name: str) -> None:
    package = importlib.import_module(name)
    declared = {}
    for node in ast.parse(inspect.getsource(package)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for imported in node.body:
                assert isinstance(imported, ast.ImportFrom)
                declared |= {alias.asname or alias.name: imported.module for alias in imported.names}

    assert sorted(declared) == package.__all__
    for public, home in declared.items():
        if public != "Protobuf":  # needs its extra
            assert getattr(package, public) is getattr(importlib.import_module(str(home)), public), public
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize("name", PACKAGES)
def test_a_name_that_is_not_there_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'Nothing'"):
        _ = importlib.import_module(name).Nothing


def test_what_plans_a_stream_of_spark_loads_neither_decoder_nor_writer() -> None:
    heavy = [
        "pyarrow.compute",
        "ottla.columnar.reading.fetch",
        "ottla.columnar.writing.writer",
        "ottla.serdes",
        "confluent_kafka",
    ]
    assert loaded_of(heavy, by="ottla.spark.reading.source") == []


def test_what_serves_columns_does_not_load_the_frames_that_a_handler_might_ask_for() -> None:
    """Arrow itself loads pandas, where it is installed, as soon as it is given a list: half a second of a start."""
    assert loaded_of(["pandas", "polars", "duckdb"], by="ottla.columnar.serving.decode_fetch") == []


def loaded_of(names: list[str], *, by: str) -> list[str]:
    code = f"import sys, {by}\nprint(*[name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.split()
