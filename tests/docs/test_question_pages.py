"""The pages that answer a question run: commands are followed, Python is executed on the embedded broker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from follow_page import follow

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


@pytest.mark.parametrize(("page", "blocks"), [("install.md", 1)])
def test_a_page_of_commands_does_what_it_says(page: str, blocks: int, tmp_path: Path) -> None:
    assert follow(HOW_TO / page, tmp_path, Path(sys.executable).parent) >= blocks
