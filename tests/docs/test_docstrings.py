"""Every public name says what it means, its numbers have units, and what it raises is said."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("griffe", reason="pip install 'ottla[docs]'")
import griffe
from docs_site.api_objects import api_objects, inherited_members, load
from docs_site.docstrings import problems, problems_of
from docs_site.inherited import InheritedDocstrings

from ottla import SendOptions


def test_every_public_name_says_what_it_means() -> None:
    assert len(list(api_objects())) > 1_000
    assert problems() == []


def test_members_of_bases_that_are_not_public_have_their_place_with_the_class() -> None:
    assert {"ack", "retry", "dead", "seek"} <= set(inherited_members(load("ottla.aio.consume.consumer.AsyncConsumer")))


@pytest.mark.parametrize("home", ["ottla.sync", "ottla.aio"])
def test_methods_and_arguments_that_a_base_describes_have_its_words_in_the_reference(home: str) -> None:
    kind = "Async" if home == "ottla.aio" else ""
    consumer = load(f"{home}.consume.consumer.{kind}Consumer")
    producer = load(f"{home}.produce.producer.{kind}Producer")
    shown = [consumer.members[name] for name in ("poll", "commit", "start", "close", "seek_to_time")]
    shown += [producer.members[name] for name in ("__init__", "flush", "transaction")]

    assert [each.path for each in shown if each.docstring is None] == []
    assert "`start_timeout_s`" in producer.members["__init__"].docstring.value  # type: ignore[union-attr]


@pytest.mark.parametrize("home", ["ottla.sync", "ottla.aio"])
def test_the_reference_lists_the_options_of_a_send(home: str) -> None:
    send = load(f"{home}.produce.producer.{'Async' if home == 'ottla.aio' else ''}Producer").members["send"]

    assert SendOptions.__optional_keys__ <= {each.name for each in send.parameters}


SOURCE = '''
class Speed:
    """How fast. `limit` is in records per second."""

    limit: int
    window: float
    topic: str

    def __init__(self) -> None:
        self.count = 0

    def bare(self): ...

    def wait(self, timeout: float, delay_ms: int) -> None:
        """Wait."""
        raise TimeoutError("late")

    def clear(self, timeout: float) -> None:
        """Wait for `timeout` seconds. Raises `TimeoutError`."""
        raise TimeoutError("late")

    def sure(self) -> None:
        """Never fails."""
        try:
            raise ValueError("x")
        except ValueError:
            pass


class Faster(Speed):
    """The same, faster."""

    def clear(self, timeout: float) -> None:
        raise TimeoutError("late")
'''


def test_what_is_missing_is_found_and_what_is_said_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docs_site.docstrings.ROOT", tmp_path)
    (tmp_path / "speedy.py").write_text(SOURCE)
    as_pages = griffe.load_extensions(InheritedDocstrings)
    module = griffe.load("speedy", search_paths=[tmp_path], extensions=as_pages)
    found = [
        line.split("speedy.", 1)[1].split(" ", 1)[1].removeprefix("speedy.")
        for name in ("Speed", "Faster")
        for member in module[name].members.values()
        for line in problems_of(member)
    ]
    assert found == [
        "Speed.window: no docstring says what it means",
        "Speed.window: no unit",
        "Speed.bare: no docstring says what it means",
        "Speed.wait: no unit of `timeout`",
        "Speed.wait: does not say that it raises TimeoutError",
    ]


def test_a_check_without_the_words_of_bases_finds_what_the_page_would_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docs_site.docstrings.ROOT", tmp_path)
    (tmp_path / "bare.py").write_text(SOURCE)
    clear = griffe.load("bare", search_paths=[tmp_path])["Faster"].members["clear"]

    assert any(line.endswith("no docstring says what it means") for line in problems_of(clear))
