"""The relay of an outbox: reads its rows, writes them to Kafka, and deletes what is acknowledged.

Any number may run, in apps and as commands; one works, and another one takes over when its lease has run out or it
stops. What is decided of rows is in `ottla.outbox.relaying`; this waits and calls.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias
from uuid import uuid4

from ottla.clock import Clock, SystemClock
from ottla.config import producer_settings
from ottla.consumer.readiness.health import DEFAULT_UNREADY_AFTER_S, Health, unready_after_ms
from ottla.errors import ConfigError, InputError, OttlaError
from ottla.failures.exceptions import described
from ottla.outbox.outbox import Outbox, headers_of
from ottla.outbox.relaying import NEEDED_SETTINGS, RELAY_DEFAULTS, Blame, Relaying, SettledRows, blame_of
from ottla.producer.record_sends import never_in_handlers
from ottla.quantities import Span, count, seconds
from ottla.stores.outbox_sessions import OutboxLag, OutboxRow, OutboxSession
from ottla.sync.produce.producer import Producer
from ottla.telemetry import Hooks, Listeners, log_event

_PATIENCE_S: Final = 0.5
"""How long rows of other topics wait for a topic whose records are not acknowledged."""

_MEASURE_EVERY_MS: Final = 5_000
_FIRST_WAIT_S: Final = 0.25
_LONGEST_WAIT_S: Final = 15.0


_Reports: TypeAlias = "SimpleQueue[tuple[OutboxRow, BaseException | None]]"


class OutboxRelay:
    """Relays one outbox to one cluster, until `stop`.

        OutboxRelay(outbox, "localhost:9092").run()

    `interval_s` is how often the database is asked while nothing waits. At most `batch_rows` rows, and `batch_bytes`
    unless one row has more, are read at a time and are on their way. A relay that dies is replaced after `lease_s`; one
    that stops, at once. It is not ready once rows have waited for `unready_after_s`. `settings` are a producer's.
    """

    def __init__(
        self,
        outbox: Outbox,
        bootstrap_servers: Any = None,
        *,
        settings: Mapping[str, Any] | None = None,
        interval_s: Span = 0.1,
        batch_rows: int = 500,
        batch_bytes: int = 4 * 1024 * 1024,
        lease_s: Span = 10.0,
        unready_after_s: Span = DEFAULT_UNREADY_AFTER_S,
        drain_s: Span = 10.0,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._interval_s = seconds("relay", "interval_s", interval_s, above=0)
        self._lease_ms = max(1, round(seconds("relay", "lease_s", lease_s, above=0) * 1_000))
        self._drain_s = seconds("relay", "drain_s", drain_s)
        count("relay", "batch_rows", batch_rows)
        count("relay", "batch_bytes", batch_bytes)
        for name in NEEDED_SETTINGS:
            if name in (settings or {}):
                raise ConfigError(
                    f"relay: settings: found {name}, which the relay sets itself to keep the order of keys"
                )
        self.outbox = outbox
        self._servers = bootstrap_servers
        self._settings = {**RELAY_DEFAULTS, **(settings or {}), **NEEDED_SETTINGS}
        producer_settings(bootstrap_servers, settings=self._settings)  # raises for what is wrong in them, now
        self._unready_after_ms = unready_after_ms(unready_after_s, "relay")
        self._hooks = Listeners.of(hooks)
        self._clock = clock or SystemClock()
        self._relaying = Relaying(most_rows=batch_rows, most_bytes=batch_bytes)
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._session: OutboxSession | None = None
        self._producer: Producer[Any, Any] | None = None
        self._reports: _Reports = SimpleQueue()
        self._own_check = outbox.check_size
        self._lag: OutboxLag | None = None
        self._lag_at_ms = 0
        self._claimed_ms: int | None = None
        """When the lease was last renewed; None while another relay works."""
        self._wait_s = 0.0
        self._problem = ""
        self._stopping = threading.Event()
        self.relayed = 0
        """How many rows this relay has seen acknowledged."""

    # Running

    def start(self) -> None:
        """Look at the tables. Raises `ConfigError` if they are missing or this role may not change them, and what the
        database raises if it is away."""
        if self._session is None:
            session = self.outbox.session()
            try:
                session.check_rights()
            except BaseException:
                session.close()
                raise
            self._session = session

    def run(self) -> None:
        """Relay until `stop`. Raises `ConfigError` at the start only; later whatever happens is waited for."""
        try:
            self.start()
        except ConfigError:
            raise
        except Exception as error:
            self._wait_for_database(error)
        log_event("outbox_relay_started", "info", {"relay": self._owner})
        try:
            while not self._stopping.is_set():
                try:
                    self.turn()
                except Exception as error:
                    self._wait_for_database(error)
        finally:
            self._end()
            log_event("outbox_relay_stopped", "info", {"relay": self._owner, "relayed": self.relayed})

    def stop(self) -> None:
        """Ask `run` to end: what is on its way is waited for, nothing new is read. From any thread."""
        self._stopping.set()

    def turn(self) -> None:
        """Read waiting rows, send them, and record their results; wait if there was none."""
        self.start()
        if not self._is_the_one():
            self._wait_s, self._problem = 0.0, ""
            self._pause(min(1.0, self._lease_ms / 3_000))
            return
        self._write_down()  # what was not written while the database was away: those rows are not to be read again
        rows = self._read()
        self._relaying.began()
        for row in rows:
            self._hand_over(row)
        self._await_reports(_PATIENCE_S)
        self._write_down()
        self._renew_producer()
        self._measure()
        self._wait_s, self._problem = 0.0, ""
        if not rows and not self._relaying.flying:
            self._pause(self._interval_s)

    # Steps: a test ends the process before and after each of them

    def _is_the_one(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if self._claimed_ms is not None and now_ms < self._claimed_ms + self._lease_ms // 3:
            return True
        was = self._claimed_ms is not None
        is_claimed = self._open.claim(self._owner, self._lease_ms)
        self._claimed_ms = now_ms if is_claimed else None
        if is_claimed != was:
            log_event("outbox_relay_active" if is_claimed else "outbox_relay_waits", "info", {"relay": self._owner})
        if not is_claimed:
            self._settle_reports(0)
            self._write_down()
            self._measured(None)
        return is_claimed

    def _read(self) -> Sequence[OutboxRow]:
        most_rows, most_bytes = self._relaying.room
        if not most_rows or not most_bytes:
            return ()
        skipped = self._relaying.skipped(self._clock.monotonic_ms())
        return self._open.read(skipped=skipped, most_rows=most_rows, most_bytes=most_bytes)

    def _hand_over(self, row: OutboxRow) -> None:
        now_ms = self._clock.monotonic_ms()
        if not self._relaying.takes(row, now_ms):
            return
        reports = self._reports
        try:
            headers = headers_of(row)
            self._producing.send(
                row.topic,
                row.value,
                key=row.key,
                headers=headers,
                partition=row.partition,
                timestamp_ms=row.timestamp_ms,
                on_delivery=lambda delivery: _report(reports, row, delivery),
            )
        except (OttlaError, TypeError, ValueError, OverflowError) as error:  # the others: of what is in the row
            own = error if isinstance(error, OttlaError) else InputError(f"{row.topic}: {error!r}")
            self._relaying.not_sent(row, own, now_ms)
            self._say(row, own)
        else:
            self._relaying.sent(row)

    def _await_reports(self, most_s: float) -> None:
        """Wait until nothing is in flight, or for so long."""
        until_ms = self._clock.monotonic_ms() + round(most_s * 1_000)
        if self._producer is not None:
            self._producer._reports.someone_waits()
        while self._relaying.flying and (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            self._settle_reports(left_ms / 1_000)

    def _settle_reports(self, wait_s: float) -> None:
        try:
            row, error = self._reports.get(timeout=wait_s) if wait_s else self._reports.get_nowait()
            while True:
                if error is None:
                    self._relaying.acknowledged(row)
                    self.relayed += 1
                else:
                    self._relaying.failed(row, error, self._clock.monotonic_ms())
                    self._say(row, error)
                row, error = self._reports.get_nowait()
        except Empty:
            return

    def _write_down(self) -> None:
        settled = self._relaying.settled()
        if settled.delete:
            self._delete(settled.delete)
            self._relaying.written(SettledRows(delete=settled.delete))
        for number, reason in settled.park:
            self._park(number, reason)
            self._relaying.written(SettledRows(park=((number, reason),)))

    def _delete(self, ids: Sequence[int]) -> None:
        self._open.delete(ids)

    def _park(self, number: int, reason: str) -> None:
        self._open.park(number, reason)
        log_event("outbox_row_parked", "error", {"row": number, "error": reason})
        self._lag_at_ms = 0

    def _renew_producer(self) -> None:
        is_over = self._producer is not None and self._producer._has_fatal_error
        if is_over or self._relaying.needs_new_producer:
            self._end_producer()
            self._relaying.renewed()
            self._reports = SimpleQueue()  # rows whose report is that late are sent again

    # Parts

    @property
    def _open(self) -> OutboxSession:
        assert self._session is not None
        return self._session

    @property
    def _producing(self) -> Producer[Any, Any]:
        if self._producer is None:
            self._producer = Producer(self._servers, settings=self._settings, hooks=self._hooks)
            never_in_handlers(self._producer)
            self.outbox.check_size = self._producer._check_size
        return self._producer

    def _end_producer(self) -> None:
        """Close the producer. All records are settled then: acknowledged, or not known to be delivered."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        self.outbox.check_size = self._own_check
        try:
            producer.close(0)
        except OttlaError:
            pass  # each record has said so itself
        self._await_reports(5.0)

    def _end(self) -> None:
        try:
            self._await_reports(self._drain_s)
            self._end_producer()
            if self._session is not None:
                self._write_down()
                self._open.release(self._owner)
        except Exception as error:
            log_event("outbox_store_unavailable", "warning", {"error": described(error), "for_s": 0})
        finally:
            self._close_session()
            self._measured(None)

    def _wait_for_database(self, error: Exception) -> None:
        self._close_session()
        self._claimed_ms = None
        self._wait_s = min(_LONGEST_WAIT_S, max(_FIRST_WAIT_S, 2 * self._wait_s))
        self._problem = f"{self.outbox.store!r}: {described(error)}"
        is_outage = self.outbox.store.is_outage(error)
        level = "warning" if is_outage else "error"
        log_event("outbox_store_unavailable", level, {"error": described(error), "for_s": self._wait_s})
        self._pause(self._wait_s)

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()
            except Exception:
                pass  # it is broken, or it would not be closed here

    def _pause(self, seconds: float) -> None:
        if self._relaying.flying:
            self._settle_reports(min(seconds, 0.1))
        else:
            self._stopping.wait(seconds)

    def _say(self, row: OutboxRow, error: BaseException) -> None:
        if blame_of(error) is not Blame.PRODUCER:  # then all have failed, and the one that is to blame says why
            log_event("outbox_row_failed", "warning", {"row": row.id, "topic": row.topic, "error": described(error)})

    # How it stands

    def _measure(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._lag is None or now_ms >= self._lag_at_ms + _MEASURE_EVERY_MS:
            self._lag_at_ms = now_ms
            self._measured(self._open.lag())

    def _measured(self, lag: OutboxLag | None) -> None:
        """Report the lag of the outbox; None if another relay is active and reports it."""
        if lag is None and self._lag is None:
            return
        self._lag = lag
        self._hooks.refresh()
        self._hooks.outbox_measured(
            relay=self._owner,
            waiting=None if lag is None else lag.waiting,
            oldest_age_s=0.0 if lag is None else lag.oldest_ms / 1_000,
            parked=0 if lag is None else lag.parked,
        )

    @property
    def lag(self) -> OutboxLag | None:
        """Return the size of the backlog, as read within the last seconds; None while another relay is active."""
        return self._lag

    def health(self) -> Health:
        """Return the health: not ready while the database is unavailable, or once rows have waited too long."""
        problems = []
        if self._problem:
            problems.append(f"outbox: {self._problem}")
        lag = self._lag
        if lag is not None and lag.oldest_ms >= self._unready_after_ms:
            problems.append(f"outbox: {lag.waiting:,} rows wait, the oldest for {lag.oldest_ms / 1_000:.0f} s")
            problems += [f"outbox: {topic}: {reason}" for topic, reason in self._relaying.problems.items()]
            if lag.parked:
                problems.append(f"outbox: {lag.parked:,} rows were refused, the first because of {lag.reason}")
        return Health(is_alive=True, is_ready=not problems, problems=tuple(problems))


def _report(reports: _Reports, row: OutboxRow, delivery: Any) -> None:
    """Keep a delivery report. In the producer's own thread."""
    error = delivery.exception(0)
    if error is not None:
        delivery.mark_handled()
    reports.put((row, error))
