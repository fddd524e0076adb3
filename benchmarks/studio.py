"""The studio with many runs and with a long one: when the list is there, how fast a curve of a million points answers.

python benchmarks/studio.py [--runs 500] [--points 1000000] [--rounds 10]

Makes folders of runs with made-up logs, serves them on a free port, and measures in Chromium (found as the tests find
it): `first_row` is the time from the request of the page until a run can be seen, `all_rows` until all have been read.
Curves are asked for over HTTP, at random parts of the axis; `draw` is a redraw of the page's chart after a zoom.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
from common import emit, machine
from playwright.sync_api import sync_playwright
from uvicorn import Config, Server

from headway.serve.auth import listen, loopback_names, url
from headway.studio.app import create_app
from headway.studio.context import Studio

TOKEN = "b" * 43
RECIPE = 'task = "lm"\nseed = {seed}\n[data]\nlength = 64\n[model]\ndepth = 2\n[train]\nsteps = {steps}\nlr = 0.002\n'


def write_run(folder: Path, seed: int, steps: int) -> None:
    """A run with a step in each line, evaluated twenty times."""
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "recipe.toml").write_text(RECIPE.format(seed=seed, steps=steps))
    (folder / "model.safetensors").write_bytes(b"weights")
    draw = random.Random(seed)
    with (folder / "run" / "log.jsonl").open("w") as file:
        file.write(json.dumps({"event": "start", "time": 1.8e9, "step": 0, "parameters": 834_000}) + "\n")
        for step in range(1, steps + 1):
            facts = {"time": 1.8e9 + 0.1 * step, "step": step, "tokens": 2048 * step, "seconds": 0.1 * step}
            loss = 2 + 3 * math.exp(-5 * step / steps) + draw.gauss(0, 0.1)
            more = {"loss": loss, "lr": 0.001, "grad_norm": draw.random(), "share": step / steps}
            file.write(json.dumps({"event": "step", **facts, **more}) + "\n")
            if step % max(1, steps // 20) == 0:
                file.write(json.dumps({"event": "eval", **facts, "valid": loss}) + "\n")
        file.write(json.dumps({"event": "end", "time": 1.8e9 + 0.1 * steps, "step": steps, "signal": 0}) + "\n")


def seen(address: str, runs: int) -> dict[str, float]:
    """Seconds until a row, and until all rows, can be seen; milliseconds of a zoom of the long curve."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        browser.new_page().goto(f"{address}/files/icon.svg")  # the browser itself has started
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        begin = time.perf_counter()
        page.goto(f"{address}/runs?token={TOKEN}")
        page.locator("tbody .status.finished").first.wait_for()
        first = time.perf_counter() - begin
        page.locator(f"tbody tr:nth-child({runs}) .status.finished").wait_for(timeout=120_000)
        whole = time.perf_counter() - begin
        page.goto(f"{address}/run/long")
        page.locator(".panel .area").first.wait_for(timeout=120_000)
        page.wait_for_timeout(1000)
        page.locator(".charts").first.focus()
        drawn = page.evaluate(
            """async () => {
              const group = document.querySelector(".charts"), times = [];
              for (const key of ["+", "+", "+", "-", "-", "+", "-", "+"]) {
                const begin = performance.now();
                group.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
                times.push(performance.now() - begin);
                await new Promise(done => setTimeout(done, 500));
              }
              return times.sort((a, b) => a - b)[4];
            }"""
        )
        browser.close()
    return {"first_row_s": first, "all_rows_s": whole, "draw_ms": drawn}


def parts(client: httpx.Client, points: int, rounds: int) -> dict[str, float]:
    """Seconds of the first answer, and of later ones for random parts of the axis."""
    draw = random.Random(0)

    def ask(**part: Any) -> float:
        begin = time.perf_counter()
        client.get("/api/run/curves", params={"name": "long", "smooth": 0.025, **part}).raise_for_status()
        return time.perf_counter() - begin

    first, whole = ask(), statistics.median(ask() for _ in range(rounds))
    zoomed = []
    for _ in range(rounds):
        low = draw.uniform(0, points * 0.8)
        zoomed.append(ask(low=low, high=low + draw.choice((0.001, 0.01, 0.2)) * points))
    return {"curve_first_s": first, "curve_whole_s": whole, "curve_part_s": statistics.median(zoomed)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "runs"
        write_run(out / "long", 0, args.points)
        for i in range(args.runs - 1):
            write_run(out / f"tiny-{i:04}", i, 400)
        studio = Studio(out, TOKEN, Path(place) / "state")
        with listen("127.0.0.1", 0) as sock:
            config = Config(create_app(studio, loopback_names(sock)), log_level="critical", ws="none", lifespan="off")  # type: ignore[arg-type]
            server = Server(config)
            thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
            thread.start()
            found = seen(url(sock), args.runs)
            headers = {"authorization": f"Bearer {TOKEN}"}
            studio.histories = type(studio.histories)()  # the first answer reads the log
            with httpx.Client(base_url=url(sock), headers=headers, timeout=300) as client:
                found |= parts(client, args.points, args.rounds)
            server.should_exit = True
            thread.join(20)
    emit(runs=args.runs, points=args.points, **found, **machine())


if __name__ == "__main__":
    main()
