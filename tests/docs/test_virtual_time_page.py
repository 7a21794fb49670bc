"""The page on virtual time runs, top to bottom."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "virtual-time.md"


def test_the_virtual_time_page_is_true() -> None:
    lines, is_code = [], False
    for line in PAGE.read_text(encoding="utf-8").splitlines():  # line numbers stay the page's
        if line.startswith("```"):
            is_code = line == "```python"
            lines.append("")
        else:
            lines.append(line if is_code else "")
    assert any(lines)
    exec(compile("\n".join(lines), str(PAGE), "exec", dont_inherit=True), {"__name__": "virtual_time_page"})
