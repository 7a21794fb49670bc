"""The system's own Chromium, driven by Playwright. Tests that need it are skipped where one of the two is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """A browser without a window. `arguments` go to its command line."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'ottla[browser]'")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for found in map(shutil.which, names) if found), None)
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=path, args=["--no-sandbox", *arguments])
        yield started
        started.close()
