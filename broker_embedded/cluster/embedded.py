"""`EmbeddedCluster`: a Kafka cluster inside this process, for tests.

The cluster lives on one asyncio loop in one daemon thread; this class may be used from any thread. While one runs, the
interpreter's switch interval is lowered: a CPU-bound thread beside the broker would otherwise hold it up for 5 ms at a
time (10 ms measured per produce, 0.3 ms with the lower interval).
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from broker_embedded.cluster.cluster import Cluster
from broker_embedded.cluster.control.local import LocalControl
from broker_embedded.cluster.control.waits import NotMet, WantedState, wait_for
from broker_embedded.cluster.explain import explain
from broker_embedded.cluster.facts import EmbeddedClusterFacts
from broker_embedded.cluster.faults import OnLoop
from broker_embedded.cluster.new_topics import create_topic
from broker_embedded.cluster.node import HOST
from broker_embedded.cluster.time import new_event_loop, settle, time_passing
from broker_embedded.common.clock import Clock, SystemClock
from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.requests import UNSET, NewTopic
from broker_embedded.metadata.records import quota_entity

if TYPE_CHECKING:
    from broker_embedded.controller.client_quotas import QuotaAlteration
    from broker_embedded.controller.controller import Controller
    from broker_embedded.security.settings import Security

T = TypeVar("T")

SWITCH_INTERVAL_S = 0.0001
WAIT_S = 30.0
"""How long `wait_for_...` wait unless told otherwise."""

_switching = threading.Lock()
_running_clusters = 0
_interval_before = 0.0


class EmbeddedCluster:
    """Brokers on loopback, speaking Kafka's protocol. `with EmbeddedCluster(brokers=3) as kafka: ...`"""

    def __init__(
        self,
        brokers: int = 1,
        port: int = 0,
        data_dir: str | Path | None = None,
        config: Mapping[str, object] | None = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        racks: Sequence[str] | None = None,
        log_dirs: int = 1,
        log_dir_bytes: Sequence[int] | None = None,
        security: Security | None = None,
        first_broker_id: int = 1,
        ports: Sequence[int] | None = None,
        advertised_host: str | None = None,
        listen_host: str = HOST,
    ) -> None:
        """`racks`: that of each broker, in order. `log_dirs`: how many log directories each broker has. `security`:
        what clients have to show; anybody may connect, in plain text, without it. `first_broker_id`: of the first
        broker, 0 or more; the others follow. `ports`: that of each broker, where they do not follow each other from
        `port` on; 0 is a free one. `advertised_host`: the host name that clients get. The brokers
        listen on `listen_host`, which is 127.0.0.1 by default. `log_dir_bytes`: how many bytes each log
        directory of a broker holds, in order, or one size for all; as much as the machine's disk if it is left out.
        """
        self._clock = clock or SystemClock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._on_loop = OnLoop(lambda: self._loop)
        self._cluster = Cluster(
            brokers=brokers,
            port=port,
            data_dir=data_dir,
            config=config,
            clock=self._clock,
            random=random,
            racks=racks,
            log_dirs=log_dirs,
            log_dir_bytes=log_dir_bytes,
            security=security,
            first_broker_id=first_broker_id,
            ports=ports,
            advertised_host=advertised_host,
            listen_host=listen_host,
        )
        self._control = LocalControl(self._cluster)
        self.faults = self._cluster.faults
        """Faults of requests."""
        self.links = self._cluster.links
        """The links between the brokers."""
        self.disks = self._cluster.disks
        """The brokers' disks."""

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, comma-separated. Ports are known once the cluster has started, and stay."""
        return self._cluster.bootstrap_servers

    @property
    def clock(self) -> Any:
        """The clock the cluster was given; a `VirtualClock` can be moved. Any, so that its own methods are seen."""
        return self._clock

    @property
    def is_running(self) -> bool:
        """Return whether it was started and not stopped."""
        return self._thread is not None

    def start(self) -> Self:
        """Start; returns when clients can connect. Raises StartupError if something it needs cannot be had.

        Raises RuntimeError if it runs already.
        """
        if self._thread is not None:
            raise RuntimeError("the cluster is running")
        self._loop = new_event_loop(self._clock)
        self._thread = threading.Thread(target=self._loop.run_forever, name="embedded-kafka", daemon=True)
        self._thread.start()
        _lower_switch_interval()
        try:
            self._change(self._cluster.start())
        except BaseException:
            self._end_thread()
            raise
        return self

    def stop(self) -> None:
        """Stop the brokers and close their logs.

        May be started again: same ports, and same data if a data_dir was given.
        """
        if self._thread is None:
            return
        try:
            self._call(self._cluster.stop())
        finally:
            self._end_thread()

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = UNSET,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic; when this returns every broker knows it. BrokerError if it cannot be."""
        configs = {key: _setting_text(value) for key, value in (config or {}).items()}
        wanted = NewTopic(name=name, partitions=partitions, replication_factor=replication_factor, configs=configs)
        self._change(create_topic(self._cluster, wanted))

    def set_quotas(self, entity: Mapping[str, str | None], **quotas: float | None) -> None:
        """Set quotas of an entity, as in `set_quotas({"client-id": "app"}, producer_byte_rate=1_000_000)`; when this
        returns every broker holds clients to them.

        `entity` names a `user`, a `client-id`, both, or an `ip`; None is all that have no quota of their own. A quota
        of None is removed. BrokerError if it cannot be.
        """
        from broker_embedded.controller.client_quotas import QuotaAlteration  # few tests have quotas

        ops = [(key, None if value is None else float(value)) for key, value in quotas.items()]
        self._change(self._set_quotas(QuotaAlteration(entity=quota_entity(entity.items()), ops=ops)))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # --- brokers that die, stop and come back

    @property
    def broker_ids(self) -> list[int]:
        """Every broker, whether it runs or not."""
        return self._cluster.node_ids

    @property
    def running_broker_ids(self) -> list[int]:
        """The brokers that were not killed or stopped."""
        return sorted(self._cluster.nodes)

    def kill(self, broker: int, *, lose_unsynced: bool = False) -> None:
        """End a broker as `kill -9` does. `lose_unsynced`: as when the power goes, what was not fsynced is lost too."""
        self._call(self._control.kill_broker(broker, lose_unsynced=lose_unsynced))

    def stop_broker(self, broker: int) -> None:
        """Shut a broker down cleanly: its leaderships move first, then its logs are closed."""
        self._call(self._control.stop_broker(broker))

    def start_broker(self, broker: int) -> None:
        """Start a broker that was killed or stopped, on the same port, with what its directories hold."""
        self._change(self._control.start_broker(broker))

    def pause(self, broker: int) -> None:
        """Suspend a broker, as SIGSTOP does: it neither reads nor sends requests, and its connections stay open."""
        self._call(self._control.pause_broker(broker))

    def resume(self, broker: int) -> None:
        """Let a paused broker go on where it was."""
        self._change(self._control.resume_broker(broker))

    def add_broker(self, *, rack: str | None = None) -> int:
        """Return a further broker; returns its id. New partitions get replicas there, old ones by reassignment."""
        return self._change(self._cluster.add_broker(rack=rack))

    # --- how things are

    @property
    def controller_id(self) -> int:
        """The broker whose controller is active, -1 while there is none."""
        return self._call(self._cluster.controller_id())

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the broker that leads a partition, -1 if it has no leader. Raises KeyError if there is no such
        partition."""
        return self._call(self._cluster.partition_state(topic, partition)).leader

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """Return the in-sync replicas of a partition."""
        return sorted(self._call(self._cluster.partition_state(topic, partition)).isr)

    def facts(self) -> EmbeddedClusterFacts:
        """Return the facts of every broker at one moment."""
        return self._on_loop(self._control.facts)

    def explain(
        self, topic: str, partition: int = 0, *, offset: int | None = None, group: str | None = None
    ) -> list[str]:
        """Explain in words why a high watermark stays, a produce is refused, a reader stops, or a record is not
        delivered to a share group; or that all is well."""
        return explain(self.facts(), topic, partition, offset=offset, group=group)

    # --- waiting for how they should be

    def wait_for_leader(
        self, topic: str, partition: int = 0, *, leader: int | None = None, timeout_s: float = WAIT_S
    ) -> int:
        """Wait until a partition is led, by `leader` if that is given, and the leader knows; returns the leader."""
        return self._call(self._cluster.wait_for_leader(topic, partition, leader=leader, timeout_s=timeout_s))

    def wait_for_isr(
        self, topic: str, partition: int = 0, *, isr: Iterable[int] | None = None, timeout_s: float = WAIT_S
    ) -> None:
        """Wait until exactly `isr` is in sync; all replicas if it is not given."""
        wanted = None if isr is None else set(isr)
        self._call(self._cluster.wait_for_isr(topic, partition, isr=wanted, timeout_s=timeout_s))

    def wait_for_group(self, group: str, *, members: int, timeout_s: float = WAIT_S) -> None:
        """Wait until a group is stable (empty for 0) with so many members."""
        wanted = WantedState(group=group, members=members, state="Stable" if members else "Empty")
        self._call(self._wait(wanted, timeout_s))

    async def _wait(self, wanted: WantedState, timeout_s: float) -> None:
        try:
            await wait_for(wanted, self._control.facts, self.faults, timeout_ms=int(timeout_s * 1000))
        except NotMet as missing:
            raise TimeoutError(str(missing)) from None

    async def _set_quotas(self, wanted: QuotaAlteration) -> None:
        async def alter(controller: Controller) -> None:
            outcomes = await controller.alter_client_quotas([wanted], validate_only=False)
            error = outcomes[wanted.entity]
            if error is not None:
                raise BrokerError(error.code, error.message)
            await self._cluster.until_known(controller.image.offset)

        await self._cluster.have_changed(alter)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the cluster's loop and wait for it."""
        if self._loop is None:
            work.close()
            raise RuntimeError("the cluster is not running: use it in a `with` block, or call start()")
        with time_passing(self._clock):
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _change(self, work: Coroutine[Any, Any, T]) -> T:
        """As `_call`, and on a frozen clock the nodes come to rest afterwards."""
        result = self._call(work)
        settle(self._clock, brokers=len(self.broker_ids))
        return result

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._call(_let_connections_end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None
        _restore_switch_interval()


async def _let_connections_end() -> None:
    """Wait a few turns of the loop until connections that were just opened or cut are closed."""
    for _ in range(10):
        await asyncio.sleep(0)


def _setting_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _lower_switch_interval() -> None:
    global _running_clusters, _interval_before
    with _switching:
        _running_clusters += 1
        if _running_clusters == 1:
            _interval_before = sys.getswitchinterval()
            sys.setswitchinterval(min(_interval_before, SWITCH_INTERVAL_S))


def _restore_switch_interval() -> None:
    """Restore the earlier value, unless other code has replaced it since."""
    global _running_clusters
    with _switching:
        _running_clusters -= 1
        if _running_clusters == 0 and abs(sys.getswitchinterval() - SWITCH_INTERVAL_S) < 1e-9:
            sys.setswitchinterval(_interval_before)
