"""Write the tables of settings into docs/reference/broker.md from the definitions that the broker itself reads.

    python tools/broker_settings.py

A setting is marked "not acted on" when no code of the broker reads it: it is accepted and described, so that a config
made for Kafka starts, and that is all. A test fails when the page is behind.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from broker_embedded.common.broker_settings import BROKER_SETTINGS
from broker_embedded.common.config_definition import Definition, UpdateMode
from broker_embedded.common.group_bounds import BOUNDS
from broker_embedded.common.group_settings import GROUP_SETTINGS
from broker_embedded.common.topic_settings import TOPIC_SETTINGS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "broker.md"
BEGIN, END = "<!-- settings: written by tools/broker_settings.py -->\n", "<!-- end of settings -->\n"
DEFINED_IN = ROOT / "broker_embedded" / "common"
RESOLVED_IN = "config.py"
"""Among the definitions, but it reads settings of the broker for those of a topic."""

GROUPS = """
### Of a group

All can be set while the broker runs, also for a group that does not exist yet: `IncrementalAlterConfigs` of the
resource `GROUP`, as `kafka-configs.sh --entity-type groups` sends it. A member hears of a change with its next
heartbeat. A value outside of the broker's bounds (`group.consumer.min.session.timeout.ms` and its like) is refused;
tests that want short sessions start the broker with a lower bound.

"""

CHANGES = {
    UpdateMode.READ_ONLY: "at start",
    UpdateMode.PER_BROKER: "while it runs",
    UpdateMode.CLUSTER_WIDE: "while it runs",
}


def render() -> str:
    """All tables."""
    product = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "broker_embedded").rglob("*.py")
        if path.parent != DEFINED_IN or path.name == RESOLVED_IN
    )
    named = (*TOPIC_SETTINGS, *BROKER_SETTINGS, *GROUP_SETTINGS)
    acted_on = {name for name in named if _attribute_is_in(product, name)}
    acted_on |= {name for names in BOUNDS.values() for name in names}
    inherited = (*TOPIC_SETTINGS.items(), *GROUP_SETTINGS.items())
    acted_on |= {each.synonym for name, each in inherited if name in acted_on and each.synonym}
    page = "\n### Of a broker\n\n| setting | type | default | can be set | what it does |\n|---|---|---|---|---|\n"
    page += "".join(_row(each, CHANGES[each.update_mode], name in acted_on) for name, each in BROKER_SETTINGS.items())
    page += "\n### Of a topic\n\nAll can be set while the broker runs.\n\n" + _inherited(TOPIC_SETTINGS, acted_on)
    page += GROUPS + _inherited(GROUP_SETTINGS, acted_on)
    return page + "\n"


def _inherited(settings: Mapping[str, Definition], acted_on: set[str]) -> str:
    """Settings of a resource that have their default from the broker."""
    table = "| setting | type | default | default from | what it does |\n|---|---|---|---|---|\n"
    return table + "".join(
        _row(each, f"`{each.synonym}`" if each.synonym in BROKER_SETTINGS else "", name in acted_on)
        for name, each in settings.items()
    )


def _attribute_is_in(product: str, name: str) -> bool:
    return re.search(rf"\b{name.replace('.', '_')}\b", product) is not None


def _row(setting: Definition, extra: str, is_acted_on: bool) -> str:
    default = setting.format(setting.default) or ""
    does = setting.doc.replace("|", "\\|") + ("" if is_acted_on else " (**not acted on**)")
    return f"| `{setting.name}` | {setting.type.name.lower()} | `{default}` | {extra} | {does} |\n".replace("``", "")


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(before + BEGIN + render() + END + after, encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
