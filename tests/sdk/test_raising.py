"""Errors that are raised more than once keep no call that they were raised for, and no module holds one."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla import Producer
from ottla.errors import LifecycleError
from ottla.raising import again


def frames(error: BaseException) -> int:
    found, entry = 0, error.__traceback__
    while entry is not None:
        found, entry = found + 1, entry.tb_next
    return found


def fails() -> None:
    raise ValueError("first")


def test_an_error_that_is_raised_again_keeps_where_it_came_from_and_nothing_more() -> None:
    kept: ValueError

    def refuse() -> None:
        raise again(kept)

    def refuse_elsewhere() -> None:
        raise again(kept)

    try:
        fails()
    except ValueError as error:
        kept = error
    lengths = []
    for _ in range(50):
        for place in (refuse, refuse_elsewhere):
            with pytest.raises(ValueError, match="first"):
                place()
            lengths.append(frames(kept))
    entry = kept.__traceback__
    names = []
    while entry is not None:
        names.append(entry.tb_frame.f_code.co_name)
        entry = entry.tb_next
    assert names[-1] == "fails"
    assert max(lengths) == max(lengths[:4])


def test_no_module_and_no_class_holds_an_exception_object() -> None:
    printed = subprocess.run(
        [sys.executable, str(Path(__file__).parents[1] / "kit" / "held_exceptions.py")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert printed.returncode == 0, printed.stderr
    count, *found = printed.stdout.split()
    assert int(count) > 900
    assert found == []


@pytest.fixture(scope="module")
def closed() -> Iterator[Producer]:
    with EmbeddedCluster() as cluster:
        producer = Producer(cluster.bootstrap_servers)
        producer.close()
        yield producer


@pytest.mark.parametrize("send", [lambda p: p.send("t", b"x"), lambda p: p.send_many("t", [b"x"])])
def test_a_closed_producer_keeps_none_of_the_calls_that_it_refused(
    closed: Producer, send: Callable[[Producer], object]
) -> None:
    class Call:
        """What a request has in its hands."""

    def request() -> None:
        call = Call()
        try:
            send(closed)
        except LifecycleError as error:
            lengths.append(frames(error))
        del call

    lengths: list[int] = []
    for _ in range(30):
        request()
    gc.collect()
    assert len(set(lengths)) == 1
    assert sum(type(each) is Call for each in gc.get_objects()) <= 1  # isinstance would ask lazy objects of Django
