"""The README as a package index shows it, without the repository around it. The build runs this as a metadata hook.

A link to a file of the repository leads to that file at the tag of the version, below the project URL `Repository`, and
an image loads from there. While the project has no public address, the words of such a link stay, and links and images
are removed: an invented address is worse than none.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_IMAGE_OF_A_FILE = re.compile(r"!\[([^\]\n]*)\]\((?!https?://)([^)\n]+)\)")
_LINK_TO_A_FILE = re.compile(r"\[([^\]\n]+)\]\((?!https?://)([^)\n]+)\)")


def for_the_index(readme: str, *, repository: str | None, version: str) -> str:
    """`repository` is an address such as `https://forge.example/ottla`; None while there is none."""
    if repository is None:
        without_images = re.sub(r"\n *\n(?: *\n)+", "\n\n", _IMAGE_OF_A_FILE.sub("", readme))
        return _LINK_TO_A_FILE.sub(r"\1", without_images)
    address = repository.rstrip("/")
    with_images = _IMAGE_OF_A_FILE.sub(rf"![\1]({address}/raw/v{version}/\2)", readme)
    return _LINK_TO_A_FILE.sub(rf"[\1]({address}/blob/v{version}/\2)", with_images)


class IndexReadme(MetadataHookInterface):
    """Sets `readme`, which `pyproject.toml` calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        shown = for_the_index(text, repository=repository, version=metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}
