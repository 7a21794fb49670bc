"""The files of the pages: colours with contrast, and nothing that is loaded from elsewhere."""

from __future__ import annotations

import re
from importlib import resources
from typing import Final

import pytest

STATIC: Final = resources.files("ottla.console").joinpath("static")
FILES: Final = {each.name: each.read_text() for each in STATIC.iterdir() if each.is_file()}
READ_ON: Final = {
    "text": ("back", "sheet", "hover", "code"),
    "quiet": ("back", "sheet", "hover", "code"),
    "accent": ("back", "sheet", "hover"),
    "good": ("back", "sheet", "hover"),
    "bad": ("back", "sheet", "hover", "bad-back"),
    "warn": ("back", "sheet", "warn-back"),
    "accent-text": ("accent",),
    "sheet": ("bad",),
}
"""Colours of text, and what it stands on."""
LEAST_CONTRAST: Final = 4.5
"""WCAG 2.2 AA, for text of any size."""


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(scheme: str) -> None:
    style = FILES["style.css"]
    block = style.partition("prefers-color-scheme: dark")[2] if scheme == "dark" else style
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block.partition("}")[0]))
    for ink, grounds in READ_ON.items():
        for ground in grounds:
            bright, dim = sorted((luminance(colours[ink]), luminance(colours[ground])), reverse=True)
            assert (bright + 0.05) / (dim + 0.05) >= LEAST_CONTRAST, (scheme, ink, ground)


def test_the_pages_are_made_of_files_that_are_here() -> None:
    """No module of somebody else is among them, so none needs a licence or a checksum."""
    for name, content in FILES.items():
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", content)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, name
        assert "@import" not in content, name
        assert name != "style.css" or "url(" not in content
        for module in re.findall(r'(?:from|import) "([^"]+)"', content):
            assert module.startswith("./"), (name, module)
            assert module[2:] in FILES, (name, module)
