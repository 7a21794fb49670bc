"""The page on changing a live service, followed literally."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from follow_page import follow

pytestmark = pytest.mark.complete

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "change-a-live-service.md"


@pytest.mark.timeout(300)
def test_every_step_does_what_the_page_says(tmp_path: Path) -> None:
    assert follow(PAGE, tmp_path, Path(sys.executable).parent) >= 3
