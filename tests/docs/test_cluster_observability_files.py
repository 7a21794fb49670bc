"""The dashboard and the alert rules of clusters name metrics and labels that `ottla exporter` has; so does its page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from rule_files import alert_queries, dashboard_queries

from ottla.exporter.cluster_metrics_table import CLUSTER_METRICS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "observability"
ALERTS = FOLDER / "ottla-cluster-alerts.yml"
DASHBOARD = FOLDER / "ottla-cluster-dashboard.json"
TESTS = FOLDER / "ottla-cluster-alerts.test.yml"
OF_PROMETHEUS = {"instance", "job"}
"""Labels that a scrape adds."""
OF_JMX = {"kafka_server_socket_server_metrics_connection_accept_rate": ("listener",)}
"""Of Prometheus' JMX exporter in a broker, whose names are in docs/how-to/watch-a-cluster.md."""
LABELS = {**{name: row.labels for name, row in CLUSTER_METRICS.items()}, **OF_JMX}
PROMQL = {
    *("absent", "and", "by", "count", "increase", "max", "min", "on", "or", "predict_linear", "rate", "sum", "topk"),
}


def words(query: str) -> set[str]:
    """The names in a query: without texts, durations and Grafana's variables."""
    bare = re.sub(r'"[^"]*"|\[[^]]*\]', "", query)
    return set(re.findall(r"[a-z][a-z_]+", bare))


def test_every_query_was_found() -> None:
    assert len(alert_queries(ALERTS)) == ALERTS.read_text().count("- alert:") > 12
    assert len(dashboard_queries(DASHBOARD)) > 20


@pytest.mark.parametrize("query", [*dashboard_queries(DASHBOARD), *alert_queries(ALERTS)])
def test_metrics_and_labels_are_those_of_the_exporter(query: str) -> None:
    metrics = words(query) & set(LABELS)
    labels = words(query) - metrics - PROMQL
    assert metrics
    assert labels <= OF_PROMETHEUS.union(*(LABELS[metric] for metric in metrics))


@pytest.mark.parametrize("query", alert_queries(ALERTS))
def test_an_alert_needs_no_option(query: str) -> None:
    assert not any(CLUSTER_METRICS[name].is_of_partition for name in words(query) & set(CLUSTER_METRICS))


def test_a_counter_is_asked_for_its_increase_and_a_gauge_is_not() -> None:
    for query in (*alert_queries(ALERTS), *dashboard_queries(DASHBOARD)):
        for name in words(query) & set(CLUSTER_METRICS):
            is_rated = re.search(rf"(?:rate|increase)\({name}\b", query) is not None
            assert is_rated is (CLUSTER_METRICS[name].kind == "counter"), query


def test_labels_in_texts_are_those_of_the_alert() -> None:
    for block in ALERTS.read_text().split("- alert: ")[1:]:
        (query,) = re.findall(r"expr: (?:>-\n((?:          .*\n)+)|(.+)\n)", block)
        metric = next(name for name in re.findall(r"(?:ottla|kafka)_\w+", "".join(query)))
        for label in re.findall(r"\$labels\.(\w+)", block):
            assert label in {*LABELS[metric], *OF_PROMETHEUS}


def test_every_series_of_the_rule_tests_is_in_the_table() -> None:
    series = re.findall(r"series: '(\w+)(?:\{([^}]*)\})?'", TESTS.read_text())
    assert len(series) == TESTS.read_text().count("- series:") > 20
    for name, labels in series:
        given = {pair.partition("=")[0] for pair in labels.split(",") if pair}
        assert given - OF_PROMETHEUS == set(LABELS[name]), name


def test_the_connect_rate_of_brokers_is_found_under_that_name() -> None:
    (metric,) = OF_JMX
    for page in ("how-to/watch-a-cluster.md", "reference/exporter.md"):
        assert "Connect rate" in (ROOT / "docs" / page).read_text()
    assert metric in (ROOT / "docs/how-to/watch-a-cluster.md").read_text()
    assert any(metric in query for query in alert_queries(ALERTS))
    assert any(metric in query for query in dashboard_queries(DASHBOARD))


def test_every_alert_has_a_test_in_which_it_fires() -> None:
    fires = set(re.findall(r"alertname: (\w+)\n +exp_alerts:", TESTS.read_text()))
    assert fires == set(re.findall(r"- alert: (\w+)", ALERTS.read_text()))


@pytest.mark.parametrize("name", ["cluster_dashboard", "exporter_page"])
def test_what_is_written_from_the_code_is_current(name: str) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / f"{name}.py"))
    file = tool["FILE"] if "FILE" in tool else tool["PAGE"]
    assert file.read_text(encoding="utf-8") == tool["render"](), f"run: python tools/{name}.py"
