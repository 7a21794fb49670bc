"""The cluster's metrics in Prometheus' text format, under Kafka's own names as its JMX exporter writes them.

What is true now comes from `EmbeddedClusterFacts`, what was counted from the brokers' tallies. Nothing is kept here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final

from broker_embedded.cluster.facts import EmbeddedClusterFacts
from ottla_wire.facts import fact

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@fact
class BrokerFigures:
    """Counters of one running broker."""

    connections: int = 0
    fetches_waiting: int = 0
    produces_waiting: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    requests: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """API → requests so far, and their bytes."""
    log_sizes: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Topic and partition → bytes of its log here."""


Sample = tuple[dict[str, str], float]

_FAMILIES: Final[Mapping[str, tuple[str, str]]] = {
    "kafka_controller_kafkacontroller_activecontrollercount": ("gauge", "1 on the active controller"),
    "kafka_controller_kafkacontroller_offlinepartitionscount": ("gauge", "partitions without a leader"),
    "kafka_controller_kafkacontroller_fencedbrokercount": ("gauge", "brokers that the controller does not count on"),
    "kafka_server_replicamanager_partitioncount": ("gauge", "replicas on the broker"),
    "kafka_server_replicamanager_leadercount": ("gauge", "partitions that the broker leads"),
    "kafka_server_replicamanager_underreplicatedpartitions": ("gauge", "led partitions whose ISR lacks a replica"),
    "kafka_server_replicamanager_underminisrpartitioncount": ("gauge", "led partitions below min.insync.replicas"),
    "kafka_server_replicamanager_isrshrinks_total": ("counter", "ISR shrinks that the broker asked for"),
    "kafka_server_replicamanager_isrexpands_total": ("counter", "ISR expansions that the broker asked for"),
    "kafka_server_delayedoperationpurgatory_purgatorysize": ("gauge", "requests that wait for an event"),
    "kafka_server_socketservermetrics_connection_count": ("gauge", "open connections"),
    "kafka_network_requestmetrics_requests_total": ("counter", "requests, by API"),
    "kafka_network_requestmetrics_requestbytes_total": ("counter", "bytes of requests, by API"),
    "kafka_coordinator_group_groupmetadatamanager_numgroups": ("gauge", "groups, by state"),
    "kafka_coordinator_group_members": ("gauge", "members of a group"),
    "kafka_log_log_logendoffset": ("gauge", "log end offset, by replica"),
    "kafka_log_log_size": ("gauge", "bytes of the log, by replica"),
    "kafka_server_fetcherlagmetrics_consumerlag": ("gauge", "records that a follower is behind its leader"),
}


def metrics_text(facts: EmbeddedClusterFacts, figures: Mapping[int, BrokerFigures]) -> str:
    """Return everything, of the brokers that run."""
    samples: dict[str, list[Sample]] = {}
    for name, labels, value in _samples(facts, figures):
        samples.setdefault(name, []).append((labels, value))
    return "".join(_family(name, samples[name]) for name in _FAMILIES if name in samples)


def _samples(
    facts: EmbeddedClusterFacts, figures: Mapping[int, BrokerFigures]
) -> Iterator[tuple[str, dict[str, str], float]]:
    partitions = list(facts.partitions.values())
    controller = "kafka_controller_kafkacontroller"
    for node in facts.nodes:
        yield f"{controller}_activecontrollercount", {"broker": str(node)}, node == facts.controller
    yield f"{controller}_offlinepartitionscount", {}, sum(each.leader < 0 for each in partitions)
    yield f"{controller}_fencedbrokercount", {}, sum(node.is_fenced for node in facts.nodes.values())
    for node, broker in figures.items():
        yield from _of_broker(node, broker)
        led = [each for each in partitions if each.leader == node]
        replicas = "kafka_server_replicamanager"
        labels = {"broker": str(node)}
        yield f"{replicas}_partitioncount", labels, sum(node in each.replicas for each in partitions)
        yield f"{replicas}_leadercount", labels, len(led)
        yield f"{replicas}_underreplicatedpartitions", labels, sum(len(x.isr) < len(x.replicas) for x in led)
        yield f"{replicas}_underminisrpartitioncount", labels, sum(len(x.isr) < x.min_insync_replicas for x in led)
    states = [group.state for group in facts.groups.values()]
    for state in sorted(set(states)):
        yield "kafka_coordinator_group_groupmetadatamanager_numgroups", {"state": state}, states.count(state)
    for group in facts.groups.values():
        yield "kafka_coordinator_group_members", {"group": group.group, "state": group.state}, group.members
    for each in partitions:
        for node, copy in each.copies.items():
            labels = {"broker": str(node), "topic": each.topic, "partition": str(each.partition)}
            yield "kafka_log_log_logendoffset", labels, copy.log_end_offset
            if each.led is not None and node != each.leader:
                behind = max(0, each.led.log_end_offset - copy.log_end_offset)
                yield "kafka_server_fetcherlagmetrics_consumerlag", labels, behind


def _of_broker(node: int, broker: BrokerFigures) -> Iterator[tuple[str, dict[str, str], float]]:
    own = {"broker": str(node)}
    yield "kafka_server_replicamanager_isrshrinks_total", own, broker.isr_shrinks
    yield "kafka_server_replicamanager_isrexpands_total", own, broker.isr_expands
    purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize"
    yield purgatory, {**own, "delayedOperation": "Fetch"}, broker.fetches_waiting
    yield purgatory, {**own, "delayedOperation": "Produce"}, broker.produces_waiting
    yield "kafka_server_socketservermetrics_connection_count", own, broker.connections
    for api, (count, size_bytes) in broker.requests.items():
        yield "kafka_network_requestmetrics_requests_total", {**own, "request": api}, count
        yield "kafka_network_requestmetrics_requestbytes_total", {**own, "request": api}, size_bytes
    for (topic, partition), size_bytes in broker.log_sizes.items():
        yield "kafka_log_log_size", {**own, "topic": topic, "partition": str(partition)}, size_bytes


def _family(name: str, samples: Iterable[Sample]) -> str:
    kind, meaning = _FAMILIES[name]
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines.append(f"{name}{{{shown}}} {int(value)}" if shown else f"{name} {int(value)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Return a label's value with special characters escaped: a group's name may be any text."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
