"""The document as a page: all of it, as text that no browser takes for markup."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from real_browser import chromium

from ottla import App, RetryTopics, Str, TopicSpec
from ottla.asyncapi import document_of, page_of
from ottla.serdes import Avro, Json


class _Reader(HTMLParser):
    """Reads the tags and the text, and that each tag which is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile() -> App:
    app = App(
        "<b>billing</b>",
        bootstrap_servers="one:9092",
        dead_letter_topic="dead",
        create_topics={"orders": TopicSpec(partitions=6)},
    )
    app.producer(value=Avro({"type": "string", "doc": "<i>"}), key=Str())

    @app.handler("orders", value=Json(dict[str, int]), retry_topics=RetryTopics(delays_s=(1,)), group="billing")
    def on_order(order: dict[str, int]) -> None:
        """Bill <script>alert(1)</script> & more."""

    return app


def test_the_page_has_every_operation_and_no_markup_of_the_service() -> None:
    page = page_of(document_of(hostile()))
    reader = _Reader()
    reader.feed(page)
    assert reader.open == []
    assert not {"script", "b", "i", "link", "img"} & set(reader.tags)
    for wanted in ("on_order", "Bill <script>alert(1)</script> & more.", "<b>billing</b>", "one:9092", "producer-1"):
        assert wanted in reader.text
    assert page_of(document_of(hostile())) == page


def test_an_app_without_declarations_has_a_page() -> None:
    assert "<h1>billing</h1>" in page_of(document_of(App("billing")))


@pytest.mark.complete
def test_a_browser_shows_it_without_complaints(tmp_path: Path) -> None:
    file = tmp_path / "asyncapi.html"
    file.write_text(page_of(document_of(hostile())), "utf-8")
    said: list[Any] = []
    with chromium() as browser:
        page = browser.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(error))
        page.goto(file.as_uri())
        page.locator("summary").first.click()
        assert page.locator("pre").first.is_visible()
        assert "Bill <script>" in page.inner_text("main")
    assert said == []
