"""The pages in the system's own Chromium. A tab must say nothing on its console and ask nobody but the server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import pytest
from console_kit import TOKEN
from real_browser import chromium

playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'ottla[browser]'")
expect = playwright.expect

PATIENCE_MS = 60_000
FOREIGN = "evil.example"
"""A name that leads to this machine, as one does after DNS rebinding."""

Opened = Callable[..., Any]


class Served(Protocol):
    """What a page is opened of."""

    @property
    def url(self) -> str: ...


def started() -> AbstractContextManager[Any]:
    """A browser; skips the test where there is none."""
    return chromium(f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1")


@contextmanager
def tab(browser: Any, console: Served, path: str = "/", *, token: str = TOKEN, **options: Any) -> Iterator[Any]:
    """A page that has the token."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on(
        "request",
        lambda request: None if request.url.startswith((console.url, "data:")) else said.append(request.url),
    )
    try:
        page.goto(f"{console.url}{path}#token={token}")
        yield page
        assert said == []
    finally:
        context.close()


def shows(page: Any, text: str | re.Pattern[str]) -> None:
    """Wait until the page has the text."""
    expect(page.locator("main")).to_contain_text(text, timeout=PATIENCE_MS)


def menu_of(page: Any, width: int) -> list[str]:
    """The entries of the menu, each of them whole on a screen of this width."""
    links = page.locator("#top nav a").all()
    for link in links:
        box = link.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width, "a menu that is cut"
    return [link.inner_text() for link in links]
