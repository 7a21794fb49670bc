"""The text that Prometheus reads: its own parser understands each line, whatever names are in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ottla.exporter.cluster_metrics_table import CLUSTER_METRICS
from ottla.exporter.prometheus_text import MOST_LABEL_CHARACTERS, MetricFamilies, label_value

LAG = "ottla_cluster_group_lag_records"


def parsed(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


@given(st.text(max_size=40).filter(lambda name: "\r" not in name), st.integers(0, 2**63 - 1))
def test_any_name_is_read_as_it_is(group: str, lag: int) -> None:
    families = MetricFamilies(most_series=10)
    families.add([(LAG, (group, "orders"), lag)])
    text = families.text()
    ((place, value),) = parsed(text).items()
    assert place == (LAG, (("group", group), ("topic", "orders")))
    assert value in (lag, float(lag)), "Prometheus itself has floats"
    assert text.endswith(f" {lag}\n".encode()), "all digits of an offset"


def test_a_name_cannot_begin_another_line() -> None:
    families = MetricFamilies(most_series=10)
    families.add([(LAG, ('a"} 1\nottla_cluster_up 0\\', "orders"), 5)])
    text = families.text()
    samples = [line for line in text.decode().splitlines() if not line.startswith("#")]
    assert len(samples) == 1
    assert list(parsed(text).values()) == [5.0]


def test_long_names_are_cut_and_two_stay_two() -> None:
    one, other = "g" * 32_000 + "1", "g" * 32_000 + "2"
    assert len(label_value(one)) == MOST_LABEL_CHARACTERS
    assert label_value(one) != label_value(other)
    assert label_value("g" * MOST_LABEL_CHARACTERS) == "g" * MOST_LABEL_CHARACTERS


def test_a_lone_surrogate_is_written_as_an_escape() -> None:
    families = MetricFamilies(most_series=10)
    families.add([(LAG, ("\udc80", "orders"), 1)])
    assert rb"\udc80" in families.text()


def test_series_above_the_bound_are_counted_and_left_out() -> None:
    families = MetricFamilies(most_series=3)
    families.add((LAG, (f"group-{number}", "orders"), number) for number in range(10))
    families.add([("ottla_cluster_topics", (), 7), (LAG, ("group-0", "orders"), 5)])
    assert families.count == 4
    assert families.dropped == {LAG: 7}
    assert families.values(LAG)["group-0", "orders"] == 5


def test_the_table_follows_the_conventions_of_prometheus() -> None:
    for name, metric in CLUSTER_METRICS.items():
        assert name.isascii()
        assert name == name.lower()
        assert name.startswith(("ottla_cluster_", "ottla_doctor_", "ottla_exporter_", "process_"))
        assert name.endswith("_total") is (metric.kind == "counter")
        assert metric.meaning.endswith(".")
        assert not {"le", "quantile", "job", "instance"} & set(metric.labels)
        for word in ("_ms", "_millis", "_minutes", "_kb", "_mb"):
            assert word not in name, "base units only"
