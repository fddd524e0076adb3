"""Build the site of docs/ into site/. A broken link fails, and so does anything that is loaded from another host.

    make docs        # then open site/index.html

The search runs in a worker. A browser refuses to start a worker from a file, so the builder loads a script from another
host for that. Here a local script replaces it: it starts the same worker from memory.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
REMOTE = "https://unpkg.com/iframe-worker/shim"
LOCAL = "assets/javascripts/worker.js"
SCRIPT = """if (location.protocol === "file:") {
  const source = %s;
  window.Worker = class extends Worker {
    constructor() { super(URL.createObjectURL(new Blob([source], { type: "text/javascript" }))); }
  };
}
"""
LOADED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)", re.I)


def make_local(site: Path) -> None:
    """Replace the script of another host by one of our own."""
    (worker,) = site.glob("assets/javascripts/workers/search.*.js")
    (site / LOCAL).write_text(SCRIPT % json.dumps(worker.read_text(encoding="utf-8")), encoding="utf-8")
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        local = os.path.relpath(site / LOCAL, page.parent)
        page.write_text(text.replace(REMOTE, Path(local).as_posix()), encoding="utf-8")


def loaded_from_elsewhere(site: Path) -> list[str]:
    """What a browser would fetch from another host, page by page; links that a reader follows are fine."""
    pages = [*site.rglob("*.html")]
    found = [f"{page.relative_to(site)}: {url}" for page in pages for url in LOADED.findall(page.read_text("utf-8"))]
    styles = [
        (style, re.findall(r"url\([\"']?(https?:[^)]+)", style.read_text("utf-8"))) for style in site.rglob("*.css")
    ]
    return found + [f"{style.relative_to(site)}: {url}" for style, urls in styles for url in urls]


def main() -> None:
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(ROOT / "mkdocs.yml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"docs: the site cannot be built\n{done.stdout}{done.stderr}")
    make_local(SITE)
    if outside := loaded_from_elsewhere(SITE):
        sys.exit("docs: the site would load from other hosts:\n  " + "\n  ".join(outside))
    print(f"docs: {len(list(SITE.rglob('*.html')))} pages, {SITE.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
