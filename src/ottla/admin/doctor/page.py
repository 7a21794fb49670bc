"""docs/reference/doctor.md, made from the registry: `python -m ottla.admin.doctor.page > docs/reference/doctor.md`."""

from __future__ import annotations

import sys

from ottla.admin.doctor.check_registry import Check
from ottla.admin.doctor.examination import all_checks

_TOP = """# What the doctor checks

<!-- Made by `python -m ottla.admin.doctor.page`; a test compares. -->

`ottla doctor` reads the facts of a cluster and makes these checks. An error puts data or availability at risk now. A
warning will cause trouble later. A note is worth knowing. A check whose facts cannot be read is reported as not
checked. Checks with samples compare facts that were read some time apart (`--samples`). Checks with a service need its
declaration (`--app module:app`), and those with declarations need files of `ottla apply` (`--declared`).

The doctor changes nothing. It reads no records, except those of schedules that no scheduler serves (SCH01), and with
`--deep` those of `__consumer_offsets`, for checks that read commit_times.
"""


def page() -> str:
    """Return the whole page."""
    checks = all_checks()
    rows = ["| id | severity | found when |", "|---|---|---|"]
    rows += [f"| [{each.id}](#{each.id.lower()}) | {each.severity} | {each.title} |" for each in checks.values()]
    return "\n".join([_TOP, *rows, "", *(_entry(each) for each in checks.values())])


def _entry(each: Check) -> str:
    needs: list[str] = [*sorted(each.reads)]
    if each.samples > 1:
        needs.append(f"{each.samples} samples")
    if each.needs_app:
        needs.append("a service")
    if each.needs_declared:
        needs.append("declarations")
    return f"""## {each.id}

**{each.title}** ({each.severity}). {each.why}

- Fix: {each.fix}
- Reads: {", ".join(needs)}
"""


if __name__ == "__main__":
    sys.stdout.write(page())
