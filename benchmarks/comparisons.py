"""Write the tables of docs/compared/comparisons.md from what `headway compare NAME` has measured.

    headway compare norms
    python benchmarks/comparisons.py [--out runs] [--page docs/compared/comparisons.md]

A comparison that is not below the folder, or not complete, keeps what the page has of it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.report.comparison import length_rows, rows, verdict_lines
from headway.runs.shipped import Shipped, read_shipped, shipped_names


def begin(name: str) -> str:
    return f"<!-- {name}: written by benchmarks/comparisons.py -->\n"


END = "<!-- end -->\n"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, numbers to the right."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def measured(found: dict[str, Any]) -> str:
    """The tables and verdicts of a comparison, with the command and the machine."""
    parts = [f"`{found['command']}`\n", table(*rows(found))]
    if (lengths := length_rows(found))[1]:
        parts.append(table(*lengths))
    if terms := [f"- {v['name']}: {v['terms']}\n" for v in found["variants"] if v["terms"]]:
        parts.append(f"Equal {found['equal']}:\n\n{''.join(terms)}")
    if said := verdict_lines(found):
        head, *lines = said
        parts.append(f"{head[:1].upper()}{head[1:]}\n\n" + "".join(f"- {line.strip()}\n" for line in lines))
    seeds = ", ".join(map(str, found["seeds"]))
    parts.append(f"Seeds {seeds}; {'; '.join(found['machines'])}.\n")
    return "\n".join(parts)


def section(name: str, file: Shipped, inside: str) -> str:
    return f"## {name}\n\n**{file.title}.** {file.why}\n\n{begin(name)}{inside}{END}"


def kept(page: str, name: str, file: Shipped) -> str:
    """What the page has of a comparison."""
    old = re.search(re.escape(begin(name)) + "(.*?)" + re.escape(END), page, re.DOTALL)
    wanted = " ".join(f"{key}=org/name" for key in file.needs)
    return old[1] if old else f"Not measured yet: `headway compare {name}{wanted and ' '}{wanted}`, {file.size}.\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="runs", type=Path)
    parser.add_argument("--page", default="docs/compared/comparisons.md", type=Path)
    args = parser.parse_args()
    page = args.page.read_text(encoding="utf-8")
    parts = [page.partition("\n## ")[0].rstrip() + "\n"]
    for name in shipped_names():
        file, path = read_shipped(name), args.out / f"compare-{name}" / "compare.json"
        path = path if path.exists() else next(args.out.glob(f"compare-{name}-*/compare.json"), path)
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"waiting": 1}
        done = not found["waiting"] and all(r["status"] != "failed" for v in found["variants"] for r in v["runs"])
        parts.append(section(name, file, measured(found) if done else kept(page, name, file)))
    args.page.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
