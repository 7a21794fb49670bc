"""The tutorial, step by step, in an empty folder: its files, commands, outputs and interrupted terminals."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from follow_page import Follower, PageIsWrong, blocks_of, follow, matcher

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BIN = Path(sys.executable).parent
SPARK = "Spark"

pytestmark = [
    pytest.mark.complete,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not there"),
]


def test_every_step_before_spark_does_what_the_page_says(tmp_path: Path) -> None:
    assert follow(PAGE, tmp_path, BIN, without=SPARK) > 15


@pytest.mark.spark
def test_the_table_in_spark_is_what_the_page_shows(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    follower = Follower(tmp_path, BIN)
    try:
        for block in blocks_of(PAGE):
            is_needed = block.title in ("events.py", "send.py", "terminal: broker") or "send.py" in block.text
            if is_needed or SPARK in block.section:
                follower.follow(block)
    finally:
        follower.close()


def test_a_page_that_shows_another_output_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("## One\n\n```console\n$ echo one\ntwo\n```\n")
    with pytest.raises(PageIsWrong, match="wanted 'two'"):
        follow(page, tmp_path, BIN)
    page.write_text('```python title="a.py"\nx = 1\n```\n\n```diff title="a.py"\n y = 1\n+z = 1\n```\n')
    with pytest.raises(PageIsWrong, match="stand there 0 times"):
        follow(page, tmp_path, BIN)


def test_dots_stand_for_anything_and_spaces_do_not_count() -> None:
    assert matcher("a ... d")("a  b c d")
    assert matcher("...b...")("abc")
    assert not matcher("a")("ab")
