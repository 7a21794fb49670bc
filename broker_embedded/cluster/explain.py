"""Explains why a high watermark does not move, a produce is refused or a reader stops. Pure: facts in, sentences out.

The first sentence describes the state. The others name causes, the most important first, each with a remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker_embedded.cluster.explain_shares import explain_shares
from broker_embedded.cluster.facts import (
    NO_NODE,
    EmbeddedClusterFacts,
    FaultFacts,
    NodeState,
    PartitionFacts,
    ReplicaFacts,
)
from broker_embedded.controller.broker_heartbeats import LINGER_MS

_READ_OR_WRITE = (None, "PRODUCE", "FETCH")
"""APIs whose faults concern a partition even if they name no topic."""


def explain(
    facts: EmbeddedClusterFacts, topic: str, partition: int, *, offset: int | None = None, group: str | None = None
) -> list[str]:
    """Explain the state of `topic`-`partition`; one sentence if nothing is wrong. The last ones are about share groups:
    all that have fetched from it, or `group`, and what is with the record at `offset`."""
    state = facts.partitions.get((topic, partition))
    if state is None:
        return [_unknown(facts, topic, partition)]
    causes = [*_causes(facts, state)]
    causes = causes or ["Nothing is in its way: it takes records, and readers see them all."]
    return [_how_it_stands(state), *causes, *explain_shares(state, offset=offset, group=group)]


def _unknown(facts: EmbeddedClusterFacts, topic: str, partition: int) -> str:
    known = sorted(number for name, number in facts.partitions if name == topic)
    if known:
        return f"{topic}-{partition} does not exist: {topic} has partitions {known[0]} to {known[-1]}."
    return f"{topic}-{partition} does not exist: the cluster has no topic {topic}."


def _how_it_stands(state: PartitionFacts) -> str:
    isr, replicas = _list(state.isr), _list(state.replicas)
    if state.leader == NO_NODE:
        return f"{state.name} has no leader (epoch {state.leader_epoch}); replicas {replicas}, in sync {isr}."
    led = state.led
    offsets = (
        "its copy cannot be asked"
        if led is None
        else f"high watermark {led.high_watermark}, log end {led.log_end_offset}"
    )
    leader = f"leader {state.leader} (epoch {state.leader_epoch})"
    return f"{state.name}: {leader}, replicas {replicas}, in sync {isr}; {offsets}."


def _causes(facts: EmbeddedClusterFacts, state: PartitionFacts) -> Iterator[str]:
    yield from _controller(facts)
    if state.leader == NO_NODE:
        yield from _no_leader(facts, state)
    else:
        yield from _leader_is_down(facts, state)
        yield from _leader_is_cut_off(facts, state)
        yield from _disk(facts, state)
        yield from _too_few_in_sync(facts, state)
        yield from _waits_for_followers(facts, state)
        yield from _out_of_sync(facts, state)
        yield from _pending(state)
        yield from _transactions(state)
    yield from _faults(facts, state)


# --- one cause each


def _controller(facts: EmbeddedClusterFacts) -> Iterator[str]:
    if facts.controller != NO_NODE:
        return
    voters = [node for node in facts.nodes.values() if node.is_voter]
    up = [node.node for node in voters if node.is_up]
    majority = len(voters) // 2 + 1
    if voters and len(up) < majority:
        down = [node.node for node in voters if not node.is_up]
        yield (
            f"No controller is active: of the voters {_list(n.node for n in voters)} only {_list(up)} run, a majority"
            f" is {majority}. No leader can be elected and no ISR changed until node {_one_of(down)} is started."
        )
    else:
        yield "No controller is active: the quorum is electing one. Leaders and ISRs stay as they are until then."


def _no_leader(facts: EmbeddedClusterFacts, state: PartitionFacts) -> Iterator[str]:
    missing = [_missing(facts, state, node) for node in state.isr]
    reasons = [reason for reason in missing if reason is not None]
    if len(reasons) == len(state.isr):
        why = ", ".join(reasons) or "none"
        others = [node for node in state.replicas if node not in state.isr and _missing(facts, state, node) is None]
        if state.allows_unclean_election and not others:
            remedy = "start any of its replicas"
        elif state.allows_unclean_election:
            remedy = f"unclean election is allowed and {_list(others)} could lead: the controller has not decided yet"
        elif others:
            remedy = (
                f"{_start(facts, state)}; or set unclean.leader.election.enable=true, then"
                f" {_list(others)} may lead and what only the in-sync replicas have is lost"
            )
        else:
            remedy = _start(facts, state)
        yield (
            f"Nobody may lead: of the in-sync replicas {_list(state.isr)} none is there ({why}), and"
            f" unclean.leader.election.enable is {_true(state.allows_unclean_election)}. To end it: {remedy}."
        )
    elif facts.controller != NO_NODE:
        able = [node for node in state.isr if _missing(facts, state, node) is None]
        yield f"{_list(able)} could lead; the controller has not elected it yet."


def _start(facts: EmbeddedClusterFacts, state: PartitionFacts) -> str:
    """Return what brings an in-sync replica back."""
    runs = [node for node in state.isr if node in facts.nodes and facts.nodes[node].is_up]
    if len(runs) == len(state.isr):
        return f"start broker {_one_of(state.isr)} again, with a disk that works"
    return f"start broker {_one_of([node for node in state.isr if node not in runs])}"


def _missing(facts: EmbeddedClusterFacts, state: PartitionFacts, node: int) -> str | None:
    """Return why a node can neither lead nor follow this partition, as far as the reason lies in the node itself."""
    found = facts.nodes.get(node)
    if found is None:
        return f"{node} is not part of the cluster"
    if found.state is not NodeState.RUNNING:
        return f"{node} is {found.state.value}"
    if found.is_fenced:
        return f"{node} is fenced"
    copy = state.copies.get(node)
    if copy is not None and copy.offline_reason is not None:
        return f"the log directory of its copy on {node} is offline: {copy.offline_reason}"
    return None


def _leader_is_down(facts: EmbeddedClusterFacts, state: PartitionFacts) -> Iterator[str]:
    leader = facts.nodes.get(state.leader)
    if leader is None or leader.is_up:
        return
    session = facts.settings.get("broker.session.timeout.ms")
    if session and facts.settings.get("peer.death.detection.enable") == "True":
        session = str(max(int(session), LINGER_MS))  # who could be replaced has been, the rest waits for the fencing
    within = f" at most {session} ms after its last heartbeat" if session else ""
    yield (
        f"Its leader {state.leader} is {leader.state.value} and the controller has not noticed yet: it fences the"
        f" broker{within} and elects another."
    )


def _leader_is_cut_off(facts: EmbeddedClusterFacts, state: PartitionFacts) -> Iterator[str]:
    cut = facts.cut_links.get((state.leader, facts.controller))
    if cut is not None:
        yield (
            f"Its leader {state.leader} cannot ask controller {facts.controller} to change the ISR: {cut}. It is fenced"
            " when its session ends, and another is elected."
        )


def _disk(facts: EmbeddedClusterFacts, state: PartitionFacts) -> Iterator[str]:
    led = state.led
    if led is not None and led.offline_reason is not None:
        yield (
            f"The log directory of its leader {state.leader} is offline ({led.offline_reason}): reads and writes are"
            f" answered KAFKA_STORAGE_ERROR until broker {state.leader} is started again with a disk that works."
        )
    for fault in facts.disk_faults:
        if led is not None and led.directory and not led.directory.startswith(fault.path.rstrip("/") + "/"):
            continue
        if fault.broker == state.leader and fault.kind == "full":
            yield (
                f"The disk of its leader {state.leader} is full ({fault.path}): appends are refused with"
                " KAFKA_STORAGE_ERROR, reads go on; it takes records again when there is room."
            )
        elif fault.broker == state.leader:
            yield f"The disk of its leader {state.leader} has a fault: {fault.kind} ({fault.path})."


def _too_few_in_sync(facts: EmbeddedClusterFacts, state: PartitionFacts) -> Iterator[str]:
    missing = state.min_insync_replicas - len(state.isr)
    if missing <= 0:
        return
    absent = [node for node in state.replicas if node not in state.isr]
    yield (
        f"A produce with acks=all is refused with NOT_ENOUGH_REPLICAS: {len(state.isr)} in sync {_list(state.isr)},"
        f" min.insync.replicas wants {state.min_insync_replicas}; it ends when {missing} of {_list(absent)} caught up."
        " Until then the high watermark stays, so that records of acks=1 are not shown to consumers."
    )


def _waits_for_followers(facts: EmbeddedClusterFacts, state: PartitionFacts) -> Iterator[str]:
    """Return the in-sync replicas that hold the high watermark back."""
    led = state.led
    if led is None or led.high_watermark >= led.log_end_offset:
        return
    for node in state.isr:
        copy = state.copies.get(node)
        if node == state.leader or (copy is not None and copy.log_end_offset >= led.log_end_offset):
            continue
        lag_ms = facts.settings.get("replica.lag.time.max.ms")
        leaves = (
            f"it leaves the ISR after replica.lag.time.max.ms ({lag_ms} ms)" if lag_ms else "it leaves the ISR then"
        )
        yield (
            f"The high watermark waits at {led.high_watermark} for in-sync replica {node}"
            f"{_how_far(led, copy)}{_because(facts, state, node)}. If that lasts {leaves}, and the high watermark goes"
            " on without it."
        )


def _out_of_sync(facts: EmbeddedClusterFacts, state: PartitionFacts) -> Iterator[str]:
    led = state.led
    for node in state.replicas:
        if node in state.isr or node == state.leader:
            continue
        copy = state.copies.get(node)
        far = "" if led is None else _how_far(led, copy)
        yield f"Replica {node} is not in sync{far}{_because(facts, state, node)}. It joins again when it has caught up."


def _how_far(led: ReplicaFacts, copy: ReplicaFacts | None) -> str:
    if copy is None:
        return ""
    behind = led.log_end_offset - copy.log_end_offset
    since = "" if copy.behind_for_ms is None else f" for {copy.behind_for_ms} ms"
    return f", which is {behind} records behind{since}" if behind > 0 else ""


def _because(facts: EmbeddedClusterFacts, state: PartitionFacts, node: int) -> str:
    """Return why a follower does not follow."""
    reasons: list[str] = []
    missing = _missing(facts, state, node)
    if missing is not None:
        reasons.append(missing)
    cut = facts.cut_links.get((node, state.leader))
    if cut is not None:
        reasons.append(cut)
    slow = facts.slow_links.get((node, state.leader))
    if slow:
        reasons.append(f"what it asks its leader arrives {slow} ms late")
    copy = state.copies.get(node)
    if copy is not None and copy.fetch_error is not None and cut is None:
        reasons.append(f"its fetch ended with {copy.fetch_error}")
    return f": {'; '.join(reasons)}" if reasons else ""


def _pending(state: PartitionFacts) -> Iterator[str]:
    if state.pending_isr is not None:
        yield (
            f"Its leader has asked the controller for the ISR {_list(state.pending_isr)}. Until that is decided the"
            " high watermark waits for the members of both."
        )


def _transactions(state: PartitionFacts) -> Iterator[str]:
    led = state.led
    if led is None or led.last_stable_offset >= led.high_watermark:
        return
    oldest = min(state.open_transactions, key=lambda each: each.first_offset, default=None)
    if oldest is None:
        yield (
            f"Readers with read_committed stop at {led.last_stable_offset}, below the high watermark"
            f" {led.high_watermark}: the marker that ends a transaction is not replicated yet."
        )
        return
    name = f" ({oldest.transactional_id})" if oldest.transactional_id else ""
    since = "" if oldest.open_for_ms is None else f" for {oldest.open_for_ms} ms"
    yield (
        f"Readers with read_committed stop at {led.last_stable_offset}: producer {oldest.producer_id}{name} has had a"
        f" transaction open{since}, from offset {oldest.first_offset} on. It ends when the producer commits or aborts,"
        " or when its transaction.timeout.ms is over."
    )


def _faults(facts: EmbeddedClusterFacts, state: PartitionFacts) -> Iterator[str]:
    for fault in facts.faults:
        if not _concerns(fault, state):
            continue
        held = f", holds {fault.held}" if fault.held else ""
        yield f"Fault {fault.fault_id} is armed: {fault.description} ({fault.hits} hits{held}). It ends when removed."


def _concerns(fault: FaultFacts, state: PartitionFacts) -> bool:
    return (
        fault.topic in (None, state.topic)
        and fault.partition in (None, state.partition)
        and fault.broker in (None, *state.replicas)
        and (fault.topic is not None or fault.api in _READ_OR_WRITE)
    )


# --- words


def _list(nodes: Sequence[int] | Iterator[int]) -> str:
    return "[" + ", ".join(str(node) for node in nodes) + "]"


def _one_of(nodes: Sequence[int]) -> str:
    return " or ".join(map(str, nodes))


def _true(value: bool) -> str:
    return "true" if value else "false"
