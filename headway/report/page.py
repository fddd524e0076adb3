"""Self-contained HTML pages: templates with style and script inside, without any network request."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")
CHARTS = "charts.js"
"""The script of reports and comparisons."""


@cache
def _environment(script_name: str = CHARTS) -> Environment:
    """The templates, and one script; all values are escaped."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals |= {
        "style": Markup((TEMPLATES / "page.css").read_text(encoding="utf-8") + style_text()),
        "script": Markup(script_text(script_name)),
        "policy": Markup(policy(script_name)),
    }
    return made


@cache
def style_text() -> str:
    """The style of charts, in reports and in the studio."""
    return (TEMPLATES / "charts.css").read_text(encoding="utf-8")


@cache
def script_text(name: str = CHARTS) -> str:
    """The only script that a page's policy allows: by default the module of charts, which the studio has, too."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def policy(name: str = CHARTS) -> str:
    """The Content-Security-Policy of a page: nothing is loaded, and this script alone runs."""
    digest = base64.b64encode(hashlib.sha256(script_text(name).encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    )


def render_page(name: str, values: dict[str, Any], script: str = CHARTS) -> str:
    """A whole page."""
    return _environment(script).get_template(name).render(values)


def render_macro(file: str, name: str, *values: Any) -> Markup:
    """A part of a page: one macro of a template file."""
    made: Markup = getattr(_environment().get_template(file).module, name)(*values)
    return made
