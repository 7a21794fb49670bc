"""How far a run of a plan is, as it is told: in all, and for each broker that receives. No cluster, and no clock."""

from __future__ import annotations

import io

import pytest

from ottla.admin.placement.deciding import MoveState, Status
from ottla.admin.placement.move_plan import Move
from ottla.admin.placement.move_progress import Meter, MoveProgress
from ottla.cli.operations.plan.progress_view import ProgressView

MIB = 1 << 20


def status(number: int, new: tuple[int, ...], state: MoveState, **copied_mib: int) -> Status:
    """A move of 10 MiB from broker 1. `on_4=3`: three MiB of it are on broker 4."""
    move = Move(topic="t", partition=number, bytes=10 * MIB, old=(1,), new=new)
    copied_to = {int(name.removeprefix("on_")): size * MIB for name, size in copied_mib.items()}
    return Status(move=move, state=state, copied=sum(copied_to.values()), copied_to=copied_to)


def looks() -> list[MoveProgress]:
    meter = Meter()
    first_done, second_done = (
        status(0, (4,), MoveState.DONE, on_4=10),
        status(1, (4, 5), MoveState.DONE, on_4=10, on_5=10),
    )
    return [
        meter.progress((status(0, (4,), MoveState.MOVING), status(1, (4, 5), MoveState.WAITING)), now=100.0),
        meter.progress(
            (status(0, (4,), MoveState.MOVING, on_4=4), status(1, (4, 5), MoveState.MOVING, on_5=1)), now=102.0
        ),
        meter.progress((first_done, status(1, (4, 5), MoveState.MOVING, on_5=4)), now=104.0),
        meter.progress((first_done, second_done), now=108.0),
    ]


def test_each_broker_has_its_bytes_its_rate_and_the_time_that_is_left() -> None:
    first, second, third, last = looks()
    assert [(each.broker, each.rate, each.left_s) for each in first.brokers] == [(4, None, None), (5, None, None)]
    four, five = second.brokers
    assert (four.moves, four.copied, four.bytes) == (2, 4 * MIB, 20 * MIB)
    assert (four.rate, four.left_s) == (2 * MIB, 8.0)
    assert (five.moves, five.rate, five.left_s) == (1, MIB / 2, 18.0)
    assert (second.copied, second.bytes, second.rate) == (5 * MIB, 30 * MIB, 2.5 * MIB)
    assert sum(each.rate or 0 for each in third.brokers) == third.rate
    assert (last.done, last.copied, last.left_s) == (2, last.bytes, 0.0)


def test_a_pipe_gets_lines_every_ten_seconds_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 0.0, 4.0, 9.9, 20.0, 20.0])
    telling = ProgressView(stream=io.StringIO(), now=lambda: next(seconds))
    for progress in looks():
        telling(progress)
    assert capsys.readouterr().err.splitlines() == [
        "0 of 2 partitions, 0 B of 30.0 MiB",
        "  broker 4: 0 B of 20.0 MiB, 1 move to it",
        "  broker 5: 0 B of 10.0 MiB, 0 moves to it",
        "2 of 2 partitions, 30.0 MiB of 30.0 MiB, 3.8 MiB/s, 0 s left",
    ]


class Screen(io.StringIO):
    """A terminal that knows what is written here: back to the start, up, and all below cleared."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        shown, at = [""], 0
        for part in self.getvalue().replace("\x1b[", "\0").split("\0"):
            if part.startswith("J"):
                shown, part = [*shown[:at], ""], part[1:]
            elif part[1:2] == "A":
                at, part = at - int(part[0]), part[2:]
            for number, text in enumerate(part.replace("\r", "").split("\n")):
                if number:
                    shown.append("")
                    at += 1
                shown[at] += text
        return shown


def test_on_a_terminal_lines_are_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    screen = Screen()
    telling = ProgressView(stream=screen)
    seen = looks()
    telling(seen[0])
    telling(seen[1])
    assert screen.lines() == [
        "0 of 2 partitions, 5.0 MiB of 30.0 MiB, 2.5 MiB/s, 10 s lef",
        "  broker 4: 4.0 MiB of 20.0 MiB, 2.0 MiB/s, 8 s left, 2 mov",
        "  broker 5: 1.0 MiB of 10.0 MiB, 512.0 KiB/s, 18 s left, 1 ",
    ]
    telling(seen[3])
    assert screen.lines() == ["2 of 2 partitions, 30.0 MiB of 30.0 MiB, 3.8 MiB/s, 0 s lef", ""]
