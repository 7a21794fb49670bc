from __future__ import annotations

import asyncio
import itertools
import math
from datetime import timedelta
from typing import Any

import pytest

from ottla import ConfigError
from ottla.testing import wait_until, wait_until_async


def test_it_returns_the_first_true_value() -> None:
    answers = iter([0, None, "", "found"])
    assert wait_until(lambda: next(answers)) == "found"


def test_a_condition_that_never_holds_times_out_with_its_name_and_what_was_seen() -> None:
    with pytest.raises(TimeoutError, match=r"still waiting for the lag to reach 0 after 0.02 s; last seen: 0"):
        wait_until(lambda: 0, 0.02, what="the lag to reach 0")


def test_the_condition_is_looked_at_once_even_with_no_time() -> None:
    assert wait_until(lambda: True, 0)


async def test_the_event_loop_runs_between_two_looks() -> None:
    done = asyncio.Event()
    asyncio.get_running_loop().call_soon(done.set)
    assert await wait_until_async(done.is_set)
    with pytest.raises(TimeoutError, match="last seen: False"):
        await wait_until_async(lambda: False, 0.02)


def test_an_error_in_the_condition_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: next(itertools.count()) / 0)


@pytest.mark.parametrize("timeout_s", [math.nan, True, "1"])
def test_what_is_no_time_is_refused(timeout_s: Any) -> None:
    with pytest.raises(ConfigError, match="wait_until: timeout_s must be a number of seconds or a timedelta"):
        wait_until(lambda: False, timeout_s)


def test_a_timedelta_is_a_time() -> None:
    with pytest.raises(TimeoutError, match=r"after 0\.001 s"):
        wait_until(lambda: False, timedelta(milliseconds=1))
