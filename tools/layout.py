"""Write the layout of headway/ into docs/architecture.md: each folder and module, with its docstring's first line."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- layout: written by tools/layout.py -->\n```\n", "```\n<!-- end of layout -->\n"


def purpose(path: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n", 1)[0].removesuffix(".")


def layout(folder: Path, depth: int = 0) -> Iterator[str]:
    """One line per module, folders after modules."""
    indent = "  " * depth
    head = purpose(folder / "__init__.py")
    yield f"{indent}{folder.name}/".ljust(26) + head
    for path in sorted(folder.glob("*.py")):
        if not path.name.startswith("__"):
            yield f"{indent}  {path.stem}".ljust(26) + purpose(path)
    for inner in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield from layout(inner, depth + 1)


def page() -> str:
    """The page with the layout as the tree has it now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = "\n".join(line.rstrip() for line in layout(ROOT / "headway"))
    return f"{before}{BEGIN}{lines}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}\n")
