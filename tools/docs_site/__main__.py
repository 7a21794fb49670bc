"""`python -m docs_site build|serve|check`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from prose import problems as problems_of_prose

from docs_site.assemble import DOCS, ROOT, assemble, copy_pages, made_from_code
from docs_site.docstrings import problems as problems_of_docstrings
from docs_site.for_machines import write_for_machines
from docs_site.links import problems
from docs_site.spelling import misspelt
from docs_site.versions import add_version

SOURCES = (ROOT / "src" / "ottla", ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md")
"""What is written for users beside the pages: docstrings, help texts, messages, and the files of a forge."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="docs_site", description=__doc__)
    parser.add_argument("action", choices=["build", "serve", "check"])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "docs-site", help="where everything is written")
    parser.add_argument("--version", help="also put the site beside those of other versions, in BUILD/versions")
    parser.add_argument("--address", default="127.0.0.1:8000", help="where `serve` listens")
    options = parser.parse_args()
    build: Path = options.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    if options.action == "serve":
        return serve(build, options.address)
    if options.action == "build":
        began = time.monotonic()
        done = subprocess.run(
            zensical("build", "--strict", assemble(build, has_versions=bool(options.version))), cwd=build, check=False
        )
        if done.returncode:
            return done.returncode
        write_for_machines(build, build / "site")
        print(f"built in {time.monotonic() - began:.1f} s")
    failed = report(build / "site", misspelt(build / "docs", *SOURCES) + problems_of_docstrings() + problems_of_prose())
    if options.version and not failed:
        add_version(build / "site", build / "versions", options.version)
    return failed


def report(site: Path, of_words: list[str]) -> int:
    """Say what is in the site and what is wrong with it; 1 if something is."""
    found = problems(site) + of_words
    for problem in found:
        print(problem)
    pages = len(list(site.rglob("*.html")))
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    print(f"{site}: {pages} pages, {size / 1e6:.1f} MB, {len(found)} problems")
    return 1 if found else 0


def serve(build: Path, address: str) -> int:
    """Build, serve, and copy pages of `docs/` as they change; pages made from the code are those of the start."""
    generated = made_from_code()
    server = subprocess.Popen(zensical("serve", "--dev-addr", address, assemble(build, generated=generated)), cwd=build)
    try:
        seen = newest()
        while server.poll() is None:
            time.sleep(0.5)
            if (now := newest()) != seen:
                seen = now
                copy_pages(build / "docs", generated)
    except KeyboardInterrupt:
        pass
    finally:
        server.terminate()
        server.wait()
    return 0


def newest() -> float:
    return max(path.stat().st_mtime for path in DOCS.rglob("*.md"))


def zensical(action: str, *arguments: str | Path) -> list[str]:
    """The command of this environment. The last argument is the configuration."""
    *options, config = map(str, arguments)
    # One build makes little garbage: to look for it takes a sixth of the time. One that serves may go on for days.
    collects = "" if action == "serve" else "import gc; gc.disable(); "
    program = f"{collects}from zensical.main import cli; cli(prog_name='zensical')"
    return [sys.executable, "-c", program, action, *options, "--config-file", config]


if __name__ == "__main__":
    sys.exit(main())
