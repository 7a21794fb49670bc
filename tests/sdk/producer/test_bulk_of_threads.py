"""A bulk whose records have deliveries of their own, as with Ottla's partitioners and in transactions."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import DeliveryError, RetriableError
from ottla.producer import DeliveryTracker
from ottla.sync.produce.bulk import Bulk
from ottla.sync.produce.delivery import Delivery
from ottla.sync.produce.reports import ReportService


def sent(reports: ReportService) -> Delivery:
    return Delivery("t", b"k", reports)


@pytest.mark.parametrize("others", ["flush", "fail"])
def test_a_bulk_has_failed_also_when_somebody_else_was_told_or_nobody_could_remember(others: str) -> None:
    client: Any = None
    explain: Any = None
    reports = ReportService(client, explain=explain, longest_wait_s=1, name="t")
    bulk = Bulk("t", reports)
    if others == "fail":
        for _ in range(DeliveryTracker.KEEP_FAILURES):
            reports.fail(sent(reports), RetriableError("they failed before"))
    acknowledged, failed = sent(reports), sent(reports)
    acknowledged._message = True
    reports.fail(failed, RetriableError("broken"))
    if others == "flush":
        reports.tracker.take_failures()

    bulk.settled_as(acknowledged)
    bulk.settled_as(failed)
    bulk.all_sent(2)
    with pytest.raises(DeliveryError) as raised:
        bulk.result(10)
    (undelivered,) = raised.value.undelivered
    assert (undelivered.key, undelivered.error) == (b"k", "broken")
