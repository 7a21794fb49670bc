"""The pages in the system's own Chromium. A tab must say nothing on its console and ask nobody but the server."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pytest
from console_kit import TOKEN

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


@contextmanager
def started() -> Iterator[Any]:
    """A browser; skips the test where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for found in map(shutil.which, names) if found), None)
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium")
    rules = f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1"
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox", rules])
        yield browser
        browser.close()


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
