"""The page about clusters: its lines for a packed environment run, and Kubernetes takes its manifests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
PAGE = (HOW_TO / "spark-on-a-cluster.md").read_text(encoding="utf-8")

PROGRAM = """
import sys
from pathlib import Path
import ottla.spark
spark = ottla.spark.session("packed", config={"spark.executor.memory": "512m"})
rows = ottla.spark.read(spark, "TOPIC", bootstrap_servers="SERVERS")
where = rows.rdd.mapPartitions(lambda rows: [(sys.prefix, len(list(rows)))]).collect()
print("FOUND", sum(count for _, count in where), *{prefix for prefix, _ in where})
"""


@pytest.mark.parametrize("page", ["spark-on-a-cluster.md", "production.md", "bridge.md"])
def test_kubernetes_takes_the_manifests_of_the_pages(page):
    validator = pytest.importorskip("kubernetes_validate", reason="needs pip install kubernetes-validate")
    yaml = pytest.importorskip("yaml")
    text = (HOW_TO / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    manifests = [each for block in blocks for each in yaml.safe_load_all(block) if "apiVersion" in each]
    assert manifests
    for manifest in manifests:
        validator.validate(manifest, validator.latest_version(), strict=True)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_lines_for_a_packed_environment_run(kafka, cluster, make_topic, tmp_path):
    """With a wheel of this checkout in place of the released package."""
    cluster.close_driver()
    topic = make_topic(partitions=2)
    kafka.produce(topic, [str(i) for i in range(20)])
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("ottla-*.whl")
    (tmp_path / "program.py").write_text(
        PROGRAM.replace("TOPIC", topic).replace("SERVERS", kafka.bootstrap_servers), encoding="utf-8"
    )
    (lines,) = re.findall(r'^```bash title="pack and submit"\n(.*?)^```', PAGE, re.DOTALL | re.MULTILINE)
    lines = lines.replace("'ottla[arrow]'", f"'{wheel}[arrow]'")
    environ = os.environ | {
        "MASTER": cluster.url,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ran = subprocess.run(
        ["bash", "-euc", lines], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=800, check=False
    )
    assert ran.returncode == 0, ran.stdout[-2_000:] + ran.stderr[-4_000:]
    (found,) = [line for line in ran.stdout.splitlines() if line.startswith("FOUND")]
    _, count, *prefixes = found.split()
    assert count == "20"
    assert all(prefix.startswith(str(cluster.folder / "work")) for prefix in prefixes), prefixes
