"""The site: generated pages are current, and nothing would be loaded from another host."""

from __future__ import annotations

import re
from pathlib import Path

from tools.reference import DOCS, pages
from tools.site import LOCAL, REMOTE, loaded_from_elsewhere, make_local

ROOT = DOCS.parent


def test_generated_pages_are_current(toy: None) -> None:
    old = [str(page.relative_to(ROOT)) for page, text in pages().items() if page.read_text(encoding="utf-8") != text]
    assert old == [], "run: python tools/reference.py"


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_what_would_be_loaded_from_elsewhere_is_found_and_the_worker_is_local(tmp_path: Path) -> None:
    page = tmp_path / "tasks" / "lm.html"
    (tmp_path / "assets" / "javascripts" / "workers").mkdir(parents=True)
    (tmp_path / "assets" / "javascripts" / "workers" / "search.1.min.js").write_text('onmessage = () => "`</script>"')
    page.parent.mkdir()
    page.write_text(f'<script src="{REMOTE}"></script><a href="https://example.org">a link is fine</a>')
    assert loaded_from_elsewhere(tmp_path) == [f"tasks/lm.html: {REMOTE}"]
    make_local(tmp_path)
    assert loaded_from_elsewhere(tmp_path) == [] and f'src="../{LOCAL}"' in page.read_text()
    (tmp_path / "a.css").write_text("@font-face { src: url(https://fonts.example.org/x.woff2) }")
    assert len(loaded_from_elsewhere(tmp_path)) == 1
