"""What `ottla` says to a misspelt command, and where an extra is not installed: one line each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
sys.argv = ["ottla", *{arguments!r}]
from ottla.cli import main
main()
"""


def run_without(missing: list[str], *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`ottla` in a process whose Python finds none of `missing`."""
    program = WITHOUT.format(missing=missing, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=folder)


PIPELINE = """
from ottla import Json
from ottla.spark import Pipeline

pipeline = Pipeline("reports", bootstrap_servers="localhost:1", checkpoint="checkpoints")
pipeline.read_topic("orders", value=Json())
pipeline.write_parquet("orders", "orders")
"""


@pytest.mark.parametrize(
    ("missing", "arguments", "told"),
    [
        (["pyspark"], ["pipeline", "run", "reports:pipeline"], "Spark needs pyspark 4.2 or newer: pip install"),
        (["pyspark"], ["pipeline", "prepare"], "pyspark, which is not installed: pip install"),
        (["pyarrow"], ["pipeline", "describe", "reports:pipeline"], "pyarrow, which is not installed: pip install"),
    ],
)
def test_a_pipeline_command_without_its_extra_is_one_line(
    missing: list[str], arguments: list[str], told: str, tmp_path: Path
) -> None:
    (tmp_path / "reports.py").write_text(PIPELINE)
    ended = run_without(missing, *arguments, folder=tmp_path)
    assert ended.returncode == 2
    errors = [line for line in ended.stderr.splitlines() if not line.startswith("ottla: running reports:pipeline")]
    assert len(errors) == 1
    assert told in errors[0]
    assert "'ottla[spark]'" in errors[0]


def test_a_pipeline_is_described_where_spark_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "reports.py").write_text(PIPELINE)
    ended = run_without(["pyspark"], "pipeline", "describe", "reports:pipeline", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "progress shown as consumer group reports.v1.orders" in ended.stdout


def test_a_users_module_that_lacks_something_else_keeps_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "reports.py").write_text("import there_is_no_such_package\n")
    ended = run_without([], "pipeline", "describe", "reports:pipeline", folder=tmp_path)
    assert ended.returncode == 1
    assert "ModuleNotFoundError: No module named 'there_is_no_such_package'" in ended.stderr


def test_quotas_need_no_arrow(kafka) -> None:
    ended = run_without(
        ["pyarrow", "numpy", "pyspark"], "quotas", "list", "--bootstrap-servers", kafka.bootstrap_servers
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "no quotas\n"), ended.stderr


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("brokr", "No such command 'brokr'. Did you mean 'broker'?"),
        ("qoutas", "No such command 'qoutas'. Did you mean 'quotas'?"),
        ("xyzzy", "No such command 'xyzzy'. There are acls, apply, asyncapi, bridge, broker,"),
    ],
)
def test_a_misspelt_command_gets_the_nearest_one(typed: str, told: str) -> None:
    ended = run_without([], typed)
    assert ended.returncode == 2
    assert told in ended.stderr
