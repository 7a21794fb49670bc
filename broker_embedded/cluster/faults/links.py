"""The links between the nodes of a cluster: whole, slow, or cut; each direction by itself.

A link carries the connections that its source opens to its target: requests in that direction and their responses.
Clients have no link; for them there are faults of requests. A cut link closes its connections: `on_change` is called
after every change, for the owners of connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from broker_embedded.cluster.faults.on_loop import OnLoop
from broker_embedded.cluster.faults.selector import InvalidFault

Link = tuple[int, int]


class Links:
    """`problem` and `delay_ms` are asked on the cluster's thread; the rest may be called on any."""

    def __init__(self, on_loop: OnLoop | None = None, *, nodes: Callable[[], Iterable[int]] | None = None) -> None:
        """Take all `nodes`, so that one that does not exist is refused by name."""
        self._on_loop = on_loop or OnLoop()
        self._nodes = nodes
        self._cut: dict[Link, str] = {}
        self._slow: dict[Link, int] = {}
        self._isolated: set[int] = set()
        self._listeners: list[Callable[[], None]] = []

    # --- asked for each request between nodes

    def problem(self, source: int, target: int) -> str | None:
        """Return why no request gets from `source` to `target`, or None."""
        if self._isolated and source != target:
            for node in (source, target):
                if node in self._isolated:
                    return f"node {node} is isolated"
        return self._cut.get((source, target)) if self._cut else None

    def delay_ms(self, source: int, target: int) -> int:
        """Return how much later than usual it arrives."""
        return self._slow.get((source, target), 0) if self._slow else 0

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the cluster's thread after each change."""
        self._listeners.append(listener)

    # --- changed by tests

    def cut(self, a: int, b: int, *, one_way: bool = False) -> None:
        """Cut the link between two nodes. `one_way`: only what `a` asks `b`."""
        self._check(a, b)
        reason = f"the link from node {a} to node {b} is cut"
        cut = {(a, b): reason}
        if not one_way:
            cut[b, a] = f"the link from node {b} to node {a} is cut"
        self._change(lambda: self._cut.update(cut))

    def slow(self, a: int, b: int, *, delay_ms: int, one_way: bool = False) -> None:
        """Delay requests between two nodes by `delay_ms`; 0 is the usual speed."""
        self._check(a, b)
        if delay_ms < 0:
            raise InvalidFault(f"delay_ms: found {delay_ms}, wanted 0 or more")
        links = [(a, b)] if one_way else [(a, b), (b, a)]
        self._change(lambda: self._slow.update(dict.fromkeys(links, delay_ms)))

    def isolate(self, node: int) -> None:
        """Cut a node off from all others, also from those that join later."""
        self._check(node)
        self._change(lambda: self._isolated.add(node))

    def heal(self, a: int | None = None, b: int | None = None) -> None:
        """Make everything whole again; or everything at one node; or what is between two."""
        if a is None and b is not None:
            raise InvalidFault(f"heal: found one end, node {b}, as the second; name it first")
        for node in (a, b):
            if node is not None:
                self._check(node)

        def heal() -> None:
            for links in (self._cut, self._slow):
                for link in [link for link in links if _concerns(link, a, b)]:
                    del links[link]
            self._isolated = {node for node in self._isolated if not (a is None or (b is None and node == a))}

        self._change(heal)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the links that are cut or slow, as the control API shows them."""
        cut = [{"source": a, "target": b, "state": "cut"} for a, b in sorted(self._cut)]
        slow = [
            {"source": a, "target": b, "state": "slow", "delay_ms": delay_ms}
            for (a, b), delay_ms in sorted(self._slow.items())
            if delay_ms
        ]
        return [*cut, *slow, *({"node": node, "state": "isolated"} for node in sorted(self._isolated))]

    def _change(self, change: Callable[[], object]) -> None:
        def run() -> None:
            change()
            for listener in self._listeners:
                listener()

        self._on_loop(run)

    def _check(self, *nodes: int) -> None:
        if len(set(nodes)) != len(nodes):
            raise InvalidFault(f"link: found node {nodes[0]} at both ends, wanted two nodes")
        known = None if self._nodes is None else set(self._nodes())
        for node in nodes:
            if known is not None and node not in known:
                raise InvalidFault(f"node: found {node}, wanted one of {', '.join(map(str, sorted(known)))}")


def _concerns(link: Link, a: int | None, b: int | None) -> bool:
    if a is None:
        return True
    return a in link if b is None else set(link) == {a, b}
