"""Program that renders chat templates in a separate process: `client` starts it, nothing imports it.

A template is an untrusted program. Jinja's sandbox hides the interpreter from it, but nothing inside an interpreter can
stop one long operation (`9 ** (9 ** 9)`) or bound its memory; the operating system does both.

Each line of stdin is a JSON request `{"source", "seconds", "limit", "renders": [variables, …]}`, each line of
stdout its answer: `{"renders": [{"text", "spans"}, …]}` or `{"error", "message", "line"}`.
"""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Refused(TemplateError):
    """The template itself rejects a conversation."""


class TooLong(Exception):
    """The output is longer than the limit."""


class Generation(Extension):
    """The tag `{% generation %}` … `{% endgeneration %}` around answers; records their spans."""

    tags = {"generation"}  # noqa: RUF012 - as its base class has it

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.written = 0
        self.found: list[tuple[int, str]] = []
        environment.generation = self

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("note"), [], [], body).set_lineno(line)

    def note(self, caller: Callable[[], str]) -> str:
        text = caller()
        self.found.append((self.written, text))
        return text


def raise_exception(message: str) -> None:
    raise Refused(message)


def strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON without Jinja's escapes for HTML, which no model was trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment() -> Any:
    """The Jinja environment that chat templates expect."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = tojson
    made.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
    return made


@lru_cache(maxsize=8)
def compiled(source: str) -> Template:
    template: Template = environment().from_string(source)
    return template


def render(template: Template, variables: dict[str, Any], limit: int) -> dict[str, Any]:
    """Render a template; returns the text and the spans of its answers."""
    tracker: Generation = template.environment.generation  # type: ignore[attr-defined]
    tracker.written, tracker.found = 0, []
    parts: list[str] = []
    size = 0
    for part in template.generate(**variables):
        size += len(part.encode("utf-8", "surrogatepass"))
        if size > limit:
            raise TooLong(f"more than {limit:,} bytes of text")
        parts.append(part)
        tracker.written += len(part)
    text = "".join(parts)
    for start, written in tracker.found:
        if not text.startswith(written, start):  # the block is in a macro, a filter or a variable
            raise TemplateError("a generation block inside a macro or a set block: its position is unknown")
    return {"text": text, "spans": [(start, start + len(written)) for start, written in tracker.found]}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    done = []
    try:
        for variables in request["renders"]:
            # CPU time, so that a good template never fails on a busy machine. The signal ends the process.
            bound_time(request["seconds"])
            done.append(render(compiled(request["source"]), variables, request["limit"]))
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)[:500], "line": line_of(error)}
    finally:
        bound_time(0.0)
    return {"renders": done}


def line_of(error: Exception) -> int:
    """Return the line of the template with the error; 0 if unknown."""
    if isinstance(error, TemplateSyntaxError):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    return (lines[-1] if lines else 0) or 0


def bound_time(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def bound_memory(size: int) -> None:
    """Limit the memory, and forbid writing to files."""
    try:
        import resource
    except ImportError:
        return
    for kind, bound in ((resource.RLIMIT_AS, size), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (bound, bound))


def main() -> None:
    bound_memory(int(sys.argv[1]))
    write = sys.stdout.buffer
    write.write(b"ready\n")
    write.flush()
    for line in sys.stdin.buffer:
        answered = answer(json.loads(line))
        write.write(json.dumps(answered).encode() + b"\n")
        write.flush()


if __name__ == "__main__":
    main()
