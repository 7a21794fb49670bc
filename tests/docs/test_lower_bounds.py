"""The lower bounds of the dependencies are the versions that `tools/run lowest` runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = (
    *("avro", "protobuf", "pydantic", "arrow", "otel", "postgres", "redis", "sqlalchemy", "amqp", "console", "tls"),
    *("oauth", "msk-iam", "containers", "delta", "reload"),
)


def test_each_lower_bound_is_the_version_that_is_run() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounded = [
        *project["dependencies"],
        *(each for extra in EXTRAS for each in project["optional-dependencies"][extra]),
    ]
    bounds = dict(re.split(r">=", each.partition(",")[0]) for each in bounded)
    lines = (ROOT / "tests" / "lowest.txt").read_text().splitlines()
    run = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert run.keys() == bounds.keys()
    for name, version in run.items():
        assert version == bounds[name] or version.startswith(f"{bounds[name]}."), name
