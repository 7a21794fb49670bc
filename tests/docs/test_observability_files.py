"""The dashboard and the alert rules name metrics and labels that exist; promtool agrees, where it is installed."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from dashboard import PANELS
from dashboard_picture import Drawn, Line, draw
from rule_files import alert_queries, dashboard_queries

from ottla.telemetry.metrics.metrics_table import METRICS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "observability"
ALERTS = FOLDER / "ottla-alerts.yml"
DASHBOARD = FOLDER / "ottla-dashboard.json"
OF_CLUSTERS = FOLDER / "ottla-cluster-alerts.yml", FOLDER / "ottla-cluster-dashboard.json"
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool on PATH, nor in $PROMTOOL")


def labels_by_name() -> dict[str, set[str]]:
    """What Prometheus calls each series, with its labels."""
    names: dict[str, set[str]] = {}
    for row in METRICS.values():
        labels = {attribute.replace(".", "_") for attribute in row.attributes}
        if row.kind == "histogram":
            for suffix in ("_bucket", "_sum", "_count"):
                names[row.prometheus_name + suffix] = labels | {"le"}
        else:
            names[row.prometheus_name] = labels
    return names


def test_every_query_was_found() -> None:
    assert len(alert_queries(ALERTS)) == ALERTS.read_text().count("- alert:") > 9
    assert len(dashboard_queries(DASHBOARD)) > 15


@pytest.mark.parametrize("query", [*dashboard_queries(DASHBOARD), *alert_queries(ALERTS)])
def test_metrics_and_labels_are_those_of_the_table(query: str) -> None:
    known = labels_by_name()
    words = set(re.findall(r"\b(?:ottla|messaging|error)_\w+", re.sub(r'"[^"]*"', '""', query)))
    metrics = {word for word in words if word in known}
    labels = words - metrics
    assert metrics, "no metric of the table"
    assert labels <= set().union(*(known[metric] for metric in metrics))


def test_every_series_of_the_rule_tests_is_in_the_table() -> None:
    series = re.findall(r"series: '(\w+)\{([^}]*)\}'", (FOLDER / "ottla-alerts.test.yml").read_text())
    known = labels_by_name()
    assert series
    for name, labels in series:
        assert {pair.split("=")[0] for pair in labels.split(",")} <= known[name], name


def test_the_dashboard_is_current() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "dashboard.py"))

    assert tool["FILE"].read_text() == tool["render"](), "run: python tools/dashboard.py"


def test_the_picture_shows_every_panel_of_the_dashboard_with_data_and_loads_nothing() -> None:
    picture = (FOLDER / "dashboard.svg").read_text(encoding="utf-8")
    shown = [group for group in ElementTree.fromstring(picture) if group.tag.endswith("}g")]
    titles = [next(text.text for text in group if text.get("font-weight")) for group in shown]
    panels = [title for title, *_ in PANELS]  # those of queues are not in it: the service has none

    assert titles == panels, "run: python tools/dashboard_picture.py"
    assert all(any(part.tag.endswith("}polyline") for part in group) for group in shown)
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", picture) == []


def test_a_picture_is_drawn_of_series_and_their_legends() -> None:
    lines = [Line(f"<{number}>", [(0.0, 0.0), (5.0, number * 1_000.0)]) for number in range(1, 7)]
    picture = draw([Drawn("Sends & more", "ops", lines), Drawn("Nothing", "s", [])], 10.0)
    root = ElementTree.fromstring(picture)
    words = [text.text for text in root.iter() if text.tag.endswith("}text")]

    assert {"Sends & more", "Nothing", "6e+03/s", "<6>", "<3> (+2)"} <= set(words)
    assert "<2>" not in words
    assert len([line for line in root.iter() if line.tag.endswith("}polyline")]) == 6


@needs_promtool
@pytest.mark.parametrize("rules", [ALERTS, OF_CLUSTERS[0]], ids=lambda file: file.stem)
def test_prometheus_loads_the_rules_and_they_fire_for_what_they_are_for(rules: Path) -> None:
    for command in (["check", "rules", str(rules)], ["test", "rules", str(rules.with_suffix(".test.yml"))]):
        done = subprocess.run([str(PROMTOOL), *command], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("dashboard", [DASHBOARD, OF_CLUSTERS[1]], ids=lambda file: file.stem)
def test_prometheus_parses_each_query_of_the_dashboard(dashboard: Path, tmp_path: Path) -> None:
    queries = [
        query.replace("$__rate_interval", "5m").replace("$group", ".*") for query in dashboard_queries(dashboard)
    ]
    rules = "".join(
        f"      - record: panel:{number}\n        expr: {json.dumps(query)}\n" for number, query in enumerate(queries)
    )
    file = tmp_path / "panels.yml"
    file.write_text(f"groups:\n  - name: panels\n    rules:\n{rules}")
    done = subprocess.run([str(PROMTOOL), "check", "rules", str(file)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
