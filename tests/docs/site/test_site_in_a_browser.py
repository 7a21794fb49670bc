"""The documentation in a real Chromium, on a phone and on a desktop, light and dark: no page breaks, search finds."""

from __future__ import annotations

import functools
import http.server
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from real_browser import chromium

pytest.importorskip("zensical", reason="pip install 'ottla[docs]'")
playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'ottla[browser]'")

PICTURES = os.environ.get("OTTLA_SITE_PICTURES")
"""A folder that gets a picture of each page at each width."""
PAGES = {
    "landing": "",
    "api": "reference/api/ottla/",
    "guide": "how-to/consuming/",
    "table": "reference/compatibility/",
    "command": "reference/cli/topics/",
    "error": "errors/unknown-topic/",
    "figures": "benchmarks/",
}
"""One page of each kind."""
QUESTIONS = {
    "which tool when": "which-tool",
    "why was my record handled twice": "handled-twice",
    "my lag does not fall": "lag-does-not-fall",
    "errors and retries": "errors-and-retries",
    "configuration precedence": "configuration",
    "logging sentry": "logging",
    "larger service": "larger-service",
    "changing a live service": "change-a-live-service",
    "docker compose": "local-development",
    "tuning": "tuning",
    "troubleshooting": "troubleshooting",
    "OttlaLagHigh": "runbooks",
    "send from a database transaction": "outbox",
}
"""What somebody types, and the guide that answers it."""
WIDTHS = {"phone": (390, 844), "desktop": (1440, 900)}

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the built site. OTTLA_SITE is a folder with one that was built before."""
    folder = os.environ.get("OTTLA_SITE") or str(request.getfixturevalue("built_site"))
    handler = functools.partial(Silent, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="site")
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *said: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(params=[(width, scheme) for width in WIDTHS for scheme in ("light", "dark")], ids="-".join)
def tab(request: pytest.FixtureRequest, browser: Any, site: str) -> Iterator[Any]:
    """A tab whose page must say nothing on the console and load nothing from elsewhere. `tab.look` is its name."""
    width, scheme = request.param
    size = dict(zip(("width", "height"), WIDTHS[width], strict=True))
    context = browser.new_context(viewport=size, color_scheme=scheme, has_touch=width == "phone")
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.look = f"{width}-{scheme}"
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("request", lambda asked: None if asked.url.startswith((site, "data:", "blob:")) else said.append(asked.url))
    yield page
    context.close()
    assert said == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_width(tab: Any, site: str, name: str) -> None:
    tab.goto(site + PAGES[name])
    tab.wait_for_load_state("networkidle")
    if PICTURES:
        tab.screenshot(path=str(Path(PICTURES) / f"{name}-{tab.look}.png"))
    if PICTURES and name == "landing":
        tab.screenshot(path=str(Path(PICTURES) / f"whole-{name}-{tab.look}.png"), full_page=True)
    room = tab.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert room[0] <= room[1], "the page scrolls sideways"
    playwright.expect(tab.locator("h1").first).to_be_visible()
    broken = "[...document.images].filter(each => each.complete && !each.naturalWidth).map(each => each.src)"
    assert tab.evaluate(broken) == []
    shade = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", shade)[:3])) / 3
    assert (brightness < 100) == tab.look.endswith("dark"), shade


def test_a_page_has_no_finding_of_axe(tab: Any, site: str) -> None:
    """Contrast, links that are not known by their colour alone, names of controls: WCAG 2.1 A and AA."""
    axe_of = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install 'ottla[browser]'")
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
    found = {}
    for name, path in PAGES.items():
        tab.goto(site + path)
        tab.wait_for_load_state("networkidle")
        for finding in axe_of.Axe().run(tab, options=rules).response["violations"]:
            found[name, finding["id"]] = [node["html"][:120] for node in finding["nodes"]][:3]
    assert found == {}


def test_the_search_finds_a_name_and_goes_there(tab: Any, site: str) -> None:
    tab.goto(site)
    tab.wait_for_load_state("networkidle")
    tab.keyboard.press("/")
    tab.keyboard.type("RetryPolicy", delay=20)
    found = tab.locator("a", has_text="RetryPolicy").first
    playwright.expect(found).to_be_visible()
    if PICTURES:
        tab.screenshot(path=str(Path(PICTURES) / f"search-{tab.look}.png"))
    found.click()
    playwright.expect(tab.locator("main")).to_contain_text("RetryPolicy")


def test_the_search_ranks_the_page_of_a_question_first(tab: Any, site: str) -> None:
    if tab.look != "desktop-light":
        pytest.skip("the same index for each width and scheme: one is enough")
    tab.goto(site)
    tab.wait_for_load_state("networkidle")
    tab.keyboard.press("/")
    for question, page in QUESTIONS.items():
        tab.keyboard.press("Control+A")
        tab.keyboard.type(question)
        first = tab.locator(f"a[href*='?h={quote_plus(question)}']").first
        wanted = re.compile(f"/how-to/{page}/")
        playwright.expect(first, question).to_have_attribute("href", wanted, timeout=60_000)
