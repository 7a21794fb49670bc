"""What becomes of a page of the repository on the site, without a build."""

from __future__ import annotations

import pytest

pytest.importorskip("zensical", reason="pip install 'ottla[docs]'")
from docs_site.assemble import within_site

PAGES = {"how-to/consuming.md", "changelog.md"}


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("[consume](consuming.md#x)", "[consume](consuming.md#x)"),
        ("[`@app.handler`](consuming.md)", "[`@app.handler`](consuming.md)"),
        ("[the script](../../benchmarks/sdk.py)", "the script"),
        ("[changes](../../CHANGELOG.md)", "[changes](../changelog.md)"),
        ("`Json[Order](order)`", "`Json[Order](order)`"),
        (r"| `Json[Order \| None](Order)` | a \| b |", r"| `Json[Order | None](Order)` | a \| b |"),
        (r"`a \| b`", r"`a \| b`"),
    ],
)
def test_links_stay_within_the_site_and_code_is_kept(line: str, shown: str) -> None:
    assert within_site("how-to/page.md", line, PAGES) == shown
