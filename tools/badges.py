"""Write the README's badges: what `pyproject.toml` says, as SVG files. No server is asked, so they cannot be wrong.

python tools/badges.py
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"


def badges() -> dict[str, str]:
    """Return the SVG of each badge, by file name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [
        found[1]
        for line in project["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
    ]
    shown = {
        "badge-licence": ("licence", project["license"].replace("-", " ")),
        "badge-python": ("python", " | ".join(versions)),
        "badge-typed": ("typed", "mypy --strict"),
    }
    return {f"{name}.svg": draw(*words) for name, words in shown.items()}


def draw(label: str, value: str) -> str:
    """Return a badge that says `label` on the left and `value` on the right."""
    left, right = 14 + 7 * len(label), 14 + 7 * len(value)
    width = left + right
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="22" role="img" '
        f'aria-label="{label}: {value}"><title>{label}: {value}</title>\n'
        f'<rect width="{width}" height="22" rx="4" fill="#1f5fbf"/>'
        f'<path d="M4 0H{left}V22H4a4 4 0 0 1-4-4V4a4 4 0 0 1 4-4z" fill="#454d57"/>\n'
        '<g fill="#fff" font-family="DejaVu Sans,Verdana,Geneva,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2:g}" y="15">{label}</text><text x="{left + right / 2:g}" y="15">{value}</text></g></svg>\n'
    )


if __name__ == "__main__":
    for name, svg in badges().items():
        (FOLDER / name).write_text(svg, encoding="utf-8")
