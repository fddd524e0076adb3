"""Pictures of the studio for the docs: python tools/screens.py [--runs FOLDER] (needs Chromium; some minutes).

Without --runs it trains a few small models first. It opens each page as a person would: docs/images/studio-*.png.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
RUNS = (
    ["tiny", "train.steps=400", "train.eval_every=50", "train.sample_every=100"],
    ["tiny", "model.norm=rmsnorm", "train.steps=400", "train.eval_every=50", "train.sample_every=100"],
    ["classify", "train.steps=150"],
)
WIDE, PHONE = {"width": 1400, "height": 900}, {"width": 390, "height": 844}


def train(folder: Path) -> None:
    for words in RUNS:
        command = [sys.executable, "-m", "headway", "train", *words, f"out={folder}", "--quiet"]
        subprocess.run(command, check=True, cwd=ROOT)


def typed(page: Page, text: str) -> None:
    page.locator("textarea").first.fill(text)


def playground(page: Page) -> None:
    typed(page, "The import statement")
    page.get_by_role("button", name="Generate").first.click()
    page.wait_for_timeout(6000)


def xray(page: Page) -> None:
    page.wait_for_timeout(4000)


def new(page: Page) -> None:
    page.get_by_text("a step on this machine").wait_for(timeout=60_000)  # the estimate is there


def nothing(page: Page) -> None:
    page.wait_for_timeout(2500)


PAGES: tuple[tuple[str, str, Any], ...] = (
    ("runs", "/runs", nothing),
    ("run", "/run/tiny-0001", nothing),
    ("new", "/new?task=classify", new),
    ("playground", "/playground?model=tiny-0001", playground),
    ("xray", "/xray?model=tiny-0001", xray),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("--phone", action="store_true", help="as on a phone, in dark colours")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headway-") as place:
        folder = given.runs or Path(place) / "runs"
        if given.runs is None:
            train(folder)
        given.out.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "headway", "studio", "--port", "0", "--out", str(folder)]
        env = {**os.environ, "XDG_STATE_HOME": place}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env) as studio:
            assert studio.stdout is not None
            address, token = studio.stdout.readline().strip().split("/?token=")
            try:
                shoot(address, token, given.out, phone=given.phone)
            finally:
                studio.terminate()


def shoot(address: str, token: str, out: Path, *, phone: bool) -> None:
    with sync_playwright() as playwright:
        found = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        context = browser.new_context(viewport=PHONE if phone else WIDE, color_scheme="dark" if phone else "light")
        page = context.new_page()
        page.on("console", lambda message: print(message.text, file=sys.stderr) if message.type == "error" else None)
        page.goto(f"{address}/?token={token}")
        for name, path, act in PAGES:
            page.goto(address + path)
            page.wait_for_timeout(1500)
            act(page)
            page.screenshot(path=out / f"studio-{name}.png")
            print(name, file=sys.stderr)
        browser.close()


if __name__ == "__main__":
    main()
