"""The page about clusters: its lines for a packed environment run, and Kubernetes takes its manifests."""

from __future__ import annotations

import re

import pytest
from packed_program import ROOT, run_lines

HOW_TO = ROOT / "docs" / "how-to"

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
    (tmp_path / "program.py").write_text(
        PROGRAM.replace("TOPIC", topic).replace("SERVERS", kafka.bootstrap_servers), encoding="utf-8"
    )
    printed = run_lines("pack and submit", tmp_path, MASTER=cluster.url)
    (found,) = [line for line in printed.splitlines() if line.startswith("FOUND")]
    _, count, *prefixes = found.split()
    assert count == "20"
    assert all(prefix.startswith(str(cluster.folder / "work")) for prefix in prefixes), prefixes
