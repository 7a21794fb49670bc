"""One scrape of several processes: Prometheus' text of each, with the label `worker` on each of its samples."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


def merged_text(texts: Mapping[int, str]) -> str:
    """Return the texts as one, by worker. Samples of a metric stand together, as the format demands."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for worker, text in texts.items():
        heads, samples = families.setdefault("", ([], []))
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                kind, name = line[2:].split(" ", 2)[:2]
                heads, samples = families.setdefault(name, ([], []))
                if not any(head.startswith(f"# {kind} ") for head in heads):
                    heads.append(line)
            elif line and not line.startswith("#"):
                samples.append(_labelled(line, worker))
    lines = [line for heads, samples in families.values() for line in (*heads, *samples)]
    return "\n".join(lines) + "\n" if lines else ""


def _labelled(sample: str, worker: int) -> str:
    """Add the label. A label of that name is called `exported_worker`, as Prometheus itself calls it in a conflict."""
    brace, space = sample.find("{"), sample.find(" ")
    if brace < 0 or 0 <= space < brace:
        return f'{sample[:space]}{{worker="{worker}"}}{sample[space:]}'
    labels = sample[brace + 1 :]
    if 'worker="' in labels:
        labels = _LABEL.sub(lambda pair: f"exported_{pair[0]}" if pair[1] == "worker" else pair[0], labels)
    separator = "" if labels.startswith("}") else ","
    return f'{sample[: brace + 1]}worker="{worker}"{separator}{labels}'
