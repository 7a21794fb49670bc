"""A broker joins its cluster, stays in it and leaves it: what `broker_state_machine` decides, sent to the controller.

One request is under way at a time. A timer starts the next one; so does metadata that a fenced broker has waited for,
which is why a start takes two requests and no pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.peers import ControllerRequests
from broker_embedded.controller import features
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.server.life.broker_state_machine import (
    REFUSED_FOR_GOOD,
    Beat,
    BrokerState,
    BrokerStateMachine,
    Register,
)
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

log = logging.getLogger(__name__)

REGISTRATION_VERSION = 4
HEARTBEAT_VERSION = 2
START_TIMEOUT_MS = 60_000
"""As Kafka's initial.broker.registration.timeout.ms."""
_PLAINTEXT = 0


class BrokerLifecycle:
    """The life of one process under one broker id. A restart is another one, with another incarnation id."""

    def __init__(
        self,
        *,
        node_id: int,
        host: str,
        port: int,
        controller: ControllerRequests,
        metadata: MetadataCache,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        rack: str | None = None,
        log_dirs: Sequence[bytes] = (),
    ) -> None:
        """`host` and `port`: where clients and peers reach it. `log_dirs`: the ids of its log directories."""
        self.node_id = node_id
        self.incarnation_id = random.randbytes(16)
        self._host = host
        self._port = port
        self._controller = controller
        self._metadata = metadata
        self._loop = loop
        self._rack = rack
        self._log_dirs = list(log_dirs)
        self._offline_log_dirs: list[bytes] = []
        self._cordoned_log_dirs: list[bytes] = []
        self._life = BrokerStateMachine(heartbeat_interval_ms=config.broker_heartbeat_interval_ms)
        self._request_timeout_ms = max(config.broker_session_timeout_ms // 2, 1)
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: asyncio.Future[Message] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._shutdown_allowed: asyncio.Future[bool] | None = None
        metadata.add_listener(self._on_metadata)

    @property
    def state(self) -> BrokerState:
        return self._life.state

    @property
    def epoch(self) -> int:
        """The broker epoch of the registration; -1 before there is one."""
        return self._life.epoch

    @property
    def is_fenced(self) -> bool:
        """Return whether the controller's last response, or the metadata, has this broker fenced."""
        return self._life.is_fenced

    async def start(self, timeout_ms: int = START_TIMEOUT_MS) -> None:
        """Join. Returns when the controller has let this broker in and its own metadata shows it.

        BrokerError if it is refused for good, or not let in within the timeout.
        """
        self._ready = self._loop.create_future()
        self._life.start()
        self._step()
        problem = f"broker {self.node_id} was not let into the cluster within {timeout_ms} ms"
        expiry = self._loop.call_later(
            timeout_ms / 1000, self._fail_start, BrokerError(ErrorCode.REQUEST_TIMED_OUT, problem)
        )
        try:
            await self._ready
        finally:
            expiry.cancel()

    async def controlled_shutdown(self, timeout_ms: int) -> bool:
        """Let others take over, then return True; False if the controller did not see to it in time."""
        if not self._life.begin_shutdown():
            self.close()
            return False
        self._shutdown_allowed = self._loop.create_future()
        expiry = self._loop.call_later(timeout_ms / 1000, self._settle_shutdown, False)
        self._step()
        try:
            return await self._shutdown_allowed
        finally:
            expiry.cancel()
            self.close()

    def close(self) -> None:
        """Send nothing any more. Without a controlled shutdown before, the others find out by the session's end."""
        self._life.end()
        self._cancel_timer()
        if self._under_way is not None:
            self._under_way.cancel()
            self._under_way = None
        self._fail_start(BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {self.node_id} was stopped"))
        self._settle_shutdown(False)

    def log_dir_failed(self, directory_id: bytes) -> None:
        """Report a failed log directory to the controller."""
        if directory_id not in self._offline_log_dirs:
            self._offline_log_dirs.append(directory_id)
            if set(self._log_dirs) <= set(self._offline_log_dirs):
                log.error("broker %d has no log directory left: it asks to be fenced", self.node_id)
                self._life.has_storage = False
            self._step()

    def cordon(self, directory_ids: Sequence[bytes]) -> None:
        """Report to the controller which log directories take no new replicas."""
        if list(directory_ids) != self._cordoned_log_dirs:
            self._cordoned_log_dirs = list(directory_ids)
            if self._life.state is BrokerState.RUNNING:
                self._step()

    # --- one step after the other

    def _step(self) -> None:
        """Send the next request, unless a response is pending: that one leads to the next step."""
        if self._under_way is not None:
            return
        self._cancel_timer()
        step = self._life.next_step()
        if isinstance(step, Register):
            self._under_way = self._send_registration()
            self._under_way.add_done_callback(self._registration_answered)
        elif isinstance(step, Beat):
            self._under_way = self._send_heartbeat(step)
            self._under_way.add_done_callback(self._heartbeat_answered)

    def _after(self, delay_ms: int) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(delay_ms / 1000, self._step)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_registration(self) -> asyncio.Future[Message]:
        body = {
            "broker_id": self.node_id,
            "cluster_id": self._metadata.image.cluster_id,
            "incarnation_id": self.incarnation_id,
            "listeners": [
                {"name": "PLAINTEXT", "host": self._host, "port": self._port, "security_protocol": _PLAINTEXT}
            ],
            "features": [
                {
                    "name": feature.name,
                    "min_supported_version": feature.min_level,
                    "max_supported_version": feature.max_level,
                }
                for feature in features.SUPPORTED
            ],
            "rack": self._rack,
            "log_dirs": [directory for directory in self._log_dirs if directory not in self._offline_log_dirs],
            "previous_broker_epoch": -1,
        }
        return self._controller.send(
            ApiKey.BROKER_REGISTRATION, REGISTRATION_VERSION, body, timeout_ms=self._request_timeout_ms
        )

    def _send_heartbeat(self, step: Beat) -> asyncio.Future[Message]:
        body = {
            "broker_id": self.node_id,
            "broker_epoch": step.epoch,
            "current_metadata_offset": self._metadata.image.offset,
            "want_fence": step.want_fence,
            "want_shut_down": step.want_shut_down,
            "offline_log_dirs": list(self._offline_log_dirs),
            "cordoned_log_dirs": list(self._cordoned_log_dirs),
        }
        return self._controller.send(
            ApiKey.BROKER_HEARTBEAT, HEARTBEAT_VERSION, body, timeout_ms=self._request_timeout_ms
        )

    def give_up_start(self, error: BrokerError) -> None:
        """Fail a start for good."""
        if self._ready is not None and not self._ready.done():
            self._life.end()
            self._fail_start(error)

    # --- answers

    def _registration_answered(self, done: asyncio.Future[Message]) -> None:
        answer = self._take(done)
        if answer is None:
            return
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NONE:
            self._after(self._life.on_registered(answer.broker_epoch, metadata_offset=self._metadata.image.offset))
            return
        log.warning("broker %d: the controller refuses its registration: %s", self.node_id, error.name)
        if error in REFUSED_FOR_GOOD and self._ready is not None and not self._ready.done():
            self.give_up_start(BrokerError(error, f"the controller refuses broker {self.node_id}: {error.name}"))
            return
        self._after(self._life.on_registration_refused())

    def _heartbeat_answered(self, done: asyncio.Future[Message]) -> None:
        answer = self._take(done)
        if answer is None:
            return
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            log.warning("broker %d: the controller refuses its heartbeat: %s", self.node_id, error.name)
            self._after(self._life.on_heartbeat_refused(error))
        else:
            delay_ms = self._life.on_heartbeat_answered(
                is_fenced=answer.is_fenced, should_shut_down=answer.should_shut_down
            )
            # The metadata that it waited for may have come while the answer was on its way.
            has_caught_up_since = not answer.is_caught_up and self._life.may_get_in_at(self._metadata.image.offset)
            self._after(0 if has_caught_up_since else delay_ms)
            self._look_whether_ready()
        if self._life.state is BrokerState.SHUTTING_DOWN:
            self._settle_shutdown(error is ErrorCode.NONE)

    def _take(self, done: asyncio.Future[Message]) -> Message | None:
        """Return the response. None if it is obsolete or missing: then the request is sent again."""
        if done is not self._under_way:
            return None
        self._under_way = None
        error = None if done.cancelled() else done.exception()
        if not done.cancelled() and error is None:
            return done.result()
        if isinstance(error, BrokerError):
            log.info("broker %d: %s", self.node_id, error.message)
        elif error is not None:
            log.error("broker %d: asking the controller failed", self.node_id, exc_info=error)
        self._after(self._life.on_no_answer())
        return None

    # --- metadata

    def _on_metadata(self, delta: MetadataDelta, image: ClusterImage) -> None:
        if delta.brokers_changed:
            own = image.brokers.get(self.node_id)
            before = delta.base.brokers.get(self.node_id)
            if own is not None and own.epoch == self._life.epoch and own.fenced and before and not before.fenced:
                log.warning("broker %d is fenced", self.node_id)
                self._life.is_fenced = True
            self._look_whether_ready()
        if self._life.may_get_in_at(image.offset):
            self._loop.call_soon(self._step_if_fenced)

    def _step_if_fenced(self) -> None:
        if self._life.may_get_in_at(self._metadata.image.offset):
            self._step()

    def _look_whether_ready(self) -> None:
        """Complete the start once controller and metadata have this node unfenced."""
        if self._ready is None or self._ready.done() or self._life.state is not BrokerState.RUNNING:
            return
        own = self._metadata.image.brokers.get(self.node_id)
        if own is not None and own.epoch == self._life.epoch and not own.fenced:
            self._ready.set_result(None)

    def _fail_start(self, error: BrokerError) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # nobody may be waiting any more

    def _settle_shutdown(self, is_allowed: bool) -> None:
        if self._shutdown_allowed is not None and not self._shutdown_allowed.done():
            self._shutdown_allowed.set_result(is_allowed)
