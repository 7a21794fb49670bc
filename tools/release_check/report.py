"""What was found, as Markdown: sizes, dependencies with their licences, what ran where and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Report:
    """Lines are added as steps end."""

    version: str
    steps: list[tuple[str, str, float]] = field(default_factory=list)
    dependencies: dict[str, list[tuple[str, str, int, str]]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def step(self, what: str, result: str, seconds: float) -> None:
        self.steps.append((what, result, seconds))

    def text(self) -> str:
        page = f"# Release check of {self.version}\n\n"
        page += "".join(f"- **wrong**: {each}\n" for each in self.problems) or "Nothing is wrong.\n"
        page += "".join(f"- not done: {each}\n" for each in self.skipped)
        page += "\n| step | result | seconds |\n|---|---|---|\n"
        page += "".join(f"| {what} | {result} | {seconds:.1f} |\n" for what, result, seconds in self.steps)
        for title, rows in self.dependencies.items():
            total = sum(size for _, _, size, _ in rows)
            page += f"\n## Installed {title}: {len(rows)} distributions, {megabytes(total)}\n\n"
            page += "| distribution | version | size | licence |\n|---|---|---|---|\n"
            page += "".join(
                f"| {name} | {version} | {megabytes(size)} | {licence} |\n" for name, version, size, licence in rows
            )
        return page


def megabytes(size: int) -> str:
    return f"{size / 1e6:.2f} MB"
