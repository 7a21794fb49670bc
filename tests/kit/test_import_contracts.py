"""A module that imports what it must not is refused in every package, also in one that is made tomorrow.

Each package gets a module of its own in a copy of the sources, and `lint-imports` checks the copy by the contracts as
they are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="import-linter is not installed")

ROOT = Path(__file__).resolve().parents[2]
PROBE = "_imports_what_it_must_not"
IMPORTS = ("aiokafka", "confluent_kafka", "rich", "socket", "broker_embedded.cluster", "ottla")
CONTRACTS = (
    *("asyncio-client", "threads-client", "rich-is-the-demos", "sdk-alone", "broker-alone", "wire-alone"),
    *("policies-are-pure", "producing-is-pure", "bridge-decides-purely"),
)
PURE = (
    *("ottla.consumer", "ottla.failures", "ottla.once", "ottla.outbox", "ottla.producer", "ottla.schedule"),
    *("ottla.asyncapi", "ottla.exporter", "ottla.queues.core", "ottla.bridge.mapping", "ottla.bridge.mqtt"),
    *(f"ottla.admin.{each}" for each in ("declared", "doctor", "facts", "operations", "placement")),
    *(f"broker_embedded.{each}" for each in ("quotas", "security", "share")),
)
STARTS_BROKERS = {"ottla.testing", "ottla.cli.embedded"}


def is_in(package: str, outer: str) -> bool:
    return package == outer or package.startswith(outer + ".")


def refused_in(package: str) -> Iterator[str]:
    """The names of `IMPORTS` that no module of this package may import."""
    if not is_in(package, "ottla.aio"):
        yield "aiokafka"
    if not is_in(package, "ottla.sync"):
        yield "confluent_kafka"
    if package != "ottla.cli.demo":
        yield "rich"
    if any(is_in(package, pure) for pure in PURE):
        yield "socket"
    if not is_in(package, "broker_embedded") and package not in STARTS_BROKERS:
        yield "broker_embedded.cluster"
    if not is_in(package, "ottla"):
        yield "ottla"


def package_of(file: Path, root: Path) -> str:
    return ".".join(file.parent.relative_to(root).parts)


def test_every_package_refuses_what_it_must_not_import(tmp_path: Path) -> None:
    sources = dict.fromkeys(("ottla", "ottla_wire"), tmp_path / "src") | {"broker_embedded": tmp_path}
    packages = set()
    for name, root in sources.items():
        original = ROOT / root.relative_to(tmp_path) / name
        shutil.copytree(original, root / name, ignore=lambda _, names: [each for each in names if not is_source(each)])
        for file in (root / name).rglob("__init__.py"):
            packages.add(package_of(file, root))
            # In a function: what `ottla` itself imports at its start must not wait for these.
            lines = "".join(f"    import {each}\n" for each in IMPORTS)
            (file.parent / f"{PROBE}.py").write_text(f"def never_called() -> None:\n{lines}")
    shutil.copy(ROOT / ".importlinter", tmp_path)

    chosen = [argument for contract in CONTRACTS for argument in ("--contract", contract)]
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as run; run()",
            "--no-cache",
            *chosen,
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'src'}{os.pathsep}{tmp_path}", "COLUMNS": "500"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    said = re.findall(rf"(\S+)\.{PROBE} -> (\S+)", ended.stdout)
    refused = {package: {found for who, found in said if who == package} for package in packages}
    assert refused == {package: set(refused_in(package)) for package in packages}, ended.stdout + ended.stderr


def is_source(name: str) -> bool:
    return name.endswith(".py") or "." not in name
