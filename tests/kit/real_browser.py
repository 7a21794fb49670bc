"""The system's own Chromium, driven by Playwright. Tests that need it are skipped where one of the two is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is the same engine without the windows of a browser around each page, which take most of the processor's
time: Playwright's own choice where no window is shown.
"""


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """A browser without a window. `arguments` go to its command line."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'ottla[browser]'")
    path = next((found for found in map(shutil.which, NAMES) if found), None)
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium-headless-shell, or chromium")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=path, args=["--no-sandbox", *arguments])
        yield started
        started.close()
