"""Changes of a console: planned, refused, applied, and what the audit file has of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from console_kit import Running


def planned(console: Running, kind: str, **given: Any) -> dict[str, Any]:
    answered = console.post("change/plan", kind=kind, **given)
    assert answered.status == 200, answered.content
    found: dict[str, Any] = answered.json
    return found


def refused(console: Running, name: str, **given: Any) -> str:
    answered = console.post(name, **given)
    assert answered.status in (400, 404, 502), answered.content
    return str(answered.json["error"]["message"])


def applied(console: Running, plan: dict[str, Any], **agreed: Any) -> str:
    answered = console.post("change/apply", plan=plan["plan"], **agreed)
    assert answered.status == 200, answered.content
    return str(answered.json["done"])


def audit(folder: Path) -> list[dict[str, Any]]:
    file = folder / "ottla-console-audit.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def rows(plan: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {each["name"]: (each["old"], each["new"]) for each in plan["items"]}
