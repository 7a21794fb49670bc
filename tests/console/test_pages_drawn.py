"""What pages draw of an answer, by the page's own scripts in Node: without a browser, so only what is described."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

DOCTOR = """
import { readFileSync } from "node:fs";
const answer = JSON.parse(readFileSync("answer.json"));
globalThis.document = { getElementById: () => null, addEventListener() {}, cookie: "" };
globalThis.addEventListener = () => {};
globalThis.location = { origin: "http://console", pathname: "/doctor" };
globalThis.fetch = async () => ({ ok: true, status: 200, json: async () => answer });
const { doctorPage } = await import("./pages-operate.js");
const page = doctorPage({ session: {}, draw() {} });
await page.load();
const each = (node, found = []) => {
  if (Array.isArray(node)) node.forEach((one) => each(one, found));
  else if (node && typeof node === "object") { found.push(node); each(node.children, found); }
  return found;
};
const drawn = () => {
  const nodes = each(page.view());
  return {
    cards: nodes.filter((node) => node.tag === "li" && String(node.props.class).startsWith("finding")).length,
    folds: nodes.filter((node) => node.props["aria-expanded"] !== undefined),
  };
};
const told = [];
const note = () => {
  const { cards, folds } = drawn();
  told.push([cards, folds.map((fold) => fold.children[0])]);
  return folds[0];
};
note().props.onclick();
note().props.onclick();
note();
console.log(JSON.stringify(told));
"""


def run(script: str, folder: Path, answer: dict[str, Any]) -> Any:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node")
    static = resources.files("ottla.console").joinpath("static")
    for file in static.iterdir():
        if file.name.endswith(".js"):
            folder.joinpath(file.name).write_bytes(file.read_bytes())
    folder.joinpath("package.json").write_text('{"type": "module"}')
    folder.joinpath("answer.json").write_text(json.dumps(answer))
    folder.joinpath("drawn.js").write_text(script)
    ended = subprocess.run([node, "drawn.js"], cwd=folder, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr[-2_000:]
    return json.loads(ended.stdout)


def finding(id: str, number: int, severity: str = "warning") -> dict[str, str]:
    return {
        "id": id,
        "severity": severity,
        "subject": f"t-{number}",
        "message": f"t-{number} is wrong",
        "title": f"What {id} finds",
        "why": "because",
        "fix": "ottla topics list",
    }


def test_thousands_of_findings_of_one_kind_are_folded_until_somebody_opens_them(tmp_path: Path) -> None:
    items = [*(finding("GRP04", number) for number in range(2_002)), *(finding("STO05", number) for number in range(3))]
    answer = {
        "items": items,
        "counts": {"error": 0, "warning": len(items), "note": 0},
        "checked": ["GRP04", "STO05"],
        "left_out": 0,
        "accepted": [],
        "not_checked": [],
        "age_ms": 5,
        "asked": {"age_ms": 5, "problem": None},
    }
    folded, opened, again = run(DOCTOR, tmp_path, answer)
    assert folded == [6, ["1,999 more of GRP04: What GRP04 finds"]]
    assert opened == [2_005, ["Show the first 3"]]
    assert again == folded
