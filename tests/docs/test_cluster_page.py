"""The page on several brokers runs, and its table of times is what a cluster uses."""

from __future__ import annotations

import json
import re
from pathlib import Path

from broker_embedded.cluster.cluster import SEVERAL_NODES
from broker_embedded.common.broker_settings import BROKER_SETTINGS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cluster.md").read_text(encoding="utf-8")


def test_the_examples_run() -> None:
    namespace: dict[str, object] = {"__name__": "cluster_page"}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    for code in blocks:
        exec(compile(code, "cluster.md", "exec", dont_inherit=True), namespace)


def test_the_times_are_those_that_a_cluster_uses_and_those_of_kafka() -> None:
    rows = re.findall(r"\| `([\w.]+)` \| (\d+|true) \| (?:no such setting: )?(\d+|false) \|", PAGE)
    shown = {name: (json.loads(here), json.loads(kafka)) for name, here, kafka in rows}
    used = {name: (value, BROKER_SETTINGS[name].default) for name, value in SEVERAL_NODES.items()}
    assert shown == used
