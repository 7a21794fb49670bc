"""`ottla consume` where a person reads: a table, nothing that a terminal obeys, no more than can be read."""

from __future__ import annotations

import re
import signal

import pytest
from terminal import Terminal

from ottla.testing import Kafka


def test_a_person_sees_a_table_and_no_record_moves_the_cursor(kafka: Kafka, make_topic) -> None:
    topic = make_topic("orders")
    kafka.produce(topic, [b"caf\xc3\xa9", b"\x1b[2Jgone\x07\x9b"], headers=[("\x1b", b"\x1b]0;x\x07")])
    kafka.produce(topic, [None])
    terminal = Terminal("consume", topic, "-b", kafka.bootstrap_servers)
    shown = terminal.read(lambda text: False)
    assert terminal.end() == (0, "")
    assert set(re.findall("\x1b.{0,3}", shown)) <= {"\x1b[2m", "\x1b[0m", "\x1b[0m\n"}, shown
    lines = re.sub("\x1b\\[[02]m", "", shown).splitlines()
    assert [line.split()[0] for line in lines] == ["0:0", "0:1", "0:2"]
    assert "café" in lines[0]
    assert "\\x1b[2Jgone\\x07" in lines[1]
    assert lines[2].split()[2:] == ["null", "null"]


@pytest.mark.parametrize(("options", "variable"), [(["--no-color"], ""), ([], "1")], ids=["option", "environment"])
def test_no_color_means_none(
    kafka: Kafka, make_topic, monkeypatch: pytest.MonkeyPatch, options: list[str], variable: str
) -> None:
    topic = make_topic("orders")
    kafka.produce(topic, [b"x"])
    monkeypatch.setenv("NO_COLOR", variable)
    terminal = Terminal("consume", topic, "-b", kafka.bootstrap_servers, *options)
    assert "\x1b" not in terminal.read(lambda text: False)
    assert terminal.end()[0] == 0


def test_a_fast_topic_is_thinned_out_for_who_follows_it(kafka: Kafka, make_topic) -> None:
    topic = make_topic("fast")
    kafka.produce(topic, [b"x" * 10] * 20_000)
    terminal = Terminal("consume", topic, "-f", "--from", "earliest", "-b", kafka.bootstrap_servers)
    terminal.read(lambda text: text.count("\n") >= 1_000)
    later = 0

    def shows_a_later_one(text: str) -> bool:
        nonlocal later
        if "later" in text:
            return True
        later += kafka.produce(topic, [b"later"])  # left out too, while it is the same second
        return False

    terminal.read(shows_a_later_one)
    terminal.read(lambda text: text.endswith("\n"))
    terminal.process.send_signal(signal.SIGINT)
    shown = terminal.shown.count("\n")
    code, err = terminal.end()
    assert code == 130
    left_out = sum(int(found.replace(",", "")) for found in re.findall(r"([\d,]+) records were left out", err))
    assert left_out >= 18_000
    assert shown + left_out <= 20_000 + later
