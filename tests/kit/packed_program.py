"""The lines of the page about clusters that pack an environment and submit a program with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "spark-on-a-cluster.md").read_text(encoding="utf-8")


def run_lines(title: str, folder: Path, **environment: str) -> str:
    """Run the block of this title, and return what it prints. A wheel of this checkout replaces the package."""
    if not (wheels := list(folder.glob("ottla-*.whl"))):
        build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
        subprocess.run(build, check=True, capture_output=True, timeout=300)
        wheels = list(folder.glob("ottla-*.whl"))
    (lines,) = re.findall(rf'^```bash title="{title}"\n(.*?)^```', PAGE, re.DOTALL | re.MULTILINE)
    # A session in this process has set which Pythons Spark starts: the lines say it themselves.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ran = subprocess.run(
        ["bash", "-euc", lines.replace("'ottla[arrow]'", f"'{wheels[0]}[arrow]'")],
        cwd=folder,
        env=environ | environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    errors = "\n".join(line for line in ran.stderr.splitlines() if not line.lstrip().startswith("at "))
    assert ran.returncode == 0, ran.stdout[-2_000:] + errors[-8_000:]
    return ran.stdout
