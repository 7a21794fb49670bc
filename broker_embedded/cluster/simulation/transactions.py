"""Records the outcome of each client's transactions, and checks the logs against it: a log holds a transaction as a
whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker_embedded.cluster.simulation.committed import CommittedLog
from broker_embedded.cluster.simulation.scenario import TOPIC
from broker_embedded.cluster.simulation.violation import InvariantViolated


class ObservedTransaction:
    """One transaction as its client saw it."""

    def __init__(self, *, who: str) -> None:
        self.who = who
        self.topic = TOPIC
        self.values: list[tuple[int, bytes]] = []
        """(partition, value) of everything that was sent, acknowledged or not."""
        self.asked: str | None = None
        """COMMIT or ABORT, once the client has requested it; everything was acknowledged before."""
        self.told: str | None = None
        """The same, once the coordinator has confirmed it."""


def check_transactions(transactions: Iterable[ObservedTransaction], log_of: Callable[[str, int], CommittedLog]) -> None:
    """Check the transactions at the end of a run, when every one is decided."""
    for transaction in transactions:
        decisions: dict[str, bytes] = {}
        missing: list[bytes] = []
        for partition, value in transaction.values:
            log = log_of(transaction.topic, partition)
            offset = log.offsets_of.get(value)
            if offset is None:
                missing.append(value)
            else:
                decisions[log.decision(offset)] = value
        _check(transaction, decisions, missing)


def check_copies(originals: CommittedLog, copies: CommittedLog) -> None:
    """Check that each record appears once to readers of committed records."""
    wanted = {value for offset, value in originals.values.items() if originals.decision(offset) != "ABORT"}
    found: dict[bytes, bytes] = {}
    for offset, value in copies.values.items():
        if copies.decision(offset) != "COMMIT":
            continue
        original = value.rpartition(b"@")[0]
        if original in found:
            raise InvariantViolated("a record is copied once", f"{original!r}: {found[original]!r} and {value!r}")
        found[original] = value
    if found.keys() != wanted:
        missing, surplus = sorted(wanted - found.keys())[:5], sorted(found.keys() - wanted)[:5]
        raise InvariantViolated("every record is copied", f"{copies.place}: missing {missing}, surplus {surplus}")


def _check(transaction: ObservedTransaction, decisions: dict[str, bytes], missing: list[bytes]) -> None:
    who = transaction.who
    if len(decisions) > 1:
        raise InvariantViolated("a transaction is committed as a whole or not at all", f"{who}: {decisions}")
    decision = next(iter(decisions), None)
    if decision in ("OPEN", "NONE"):
        raise InvariantViolated("every transaction comes to an end", f"{who}: {decisions}")
    if decision == "COMMIT":
        if transaction.asked != "COMMIT":
            raise InvariantViolated("nothing is committed that nobody committed", f"{who}: {decisions}")
        if missing:
            raise InvariantViolated("a transaction is committed as a whole", f"{who}: {missing} are not there")
    if transaction.told == "COMMIT" and decision != "COMMIT" and transaction.values:
        raise InvariantViolated("a committed transaction stays committed", f"{who}: {decisions}, missing {missing}")
