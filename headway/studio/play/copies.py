"""What was tried on the page as a command, as Python, and as a request to `headway serve`; each works as pasted."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.reference.settings import shown
from headway.serve.page.examples import Example
from headway.tasks.base import Task

Json = dict[str, Any]
URL = "http://127.0.0.1:8000"
"""Where `headway serve` listens if nobody says otherwise."""
SERVED = {
    **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens")},
    **{"presence": "presence_penalty", "frequency": "frequency_penalty", "repetition": "repetition_penalty"},
    "stop_strings": "stop",
}
"""Settings of sampling → fields of a request."""
FLAGS = {"context": "--context", "labels": "--labels", "language": "--language", "horizon": "--horizon"} | {
    "beam": "--beam", "seed": "--seed", "steps": "--steps", "guidance": "--guidance",
}  # fmt: skip
"""Fields of a form → options of `headway run`; top and n_best are settings there."""
SWITCHES = {"align": "--align", "score": "--score", "words": "--words"}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What was tried."""

    place: str
    """The model, as a command names it."""
    served: str
    """Its name on a server."""
    kind: str
    """generate, chat, beams, score or task."""
    text: str = ""
    messages: Sequence[Mapping[str, Any]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    task: Task | None = None
    form: Mapping[str, Any] = field(default_factory=dict)
    """Fields that are not empty; an uploaded file by its name."""
    uploads: Sequence[str] = ()
    """Fields that are files."""

    def to_dict(self) -> dict[str, str]:
        return {"command": self.command(), "python": self.python(), "curl": self.curl()}

    # --- command

    def command(self) -> str:
        """A line for a shell."""
        if self.task is not None:
            return self._task_command(self.task)
        words = [f"{name}={shown(value)}" for name, value in self.settings.items()]
        if self.kind == "score":
            return self._run(["--score"], [self.text])
        if self.kind == "beams":
            width = self.settings.get("width", 4)
            return self._run(["--beam", str(width)], [self.text, *(w for w in words if not w.startswith("width="))])
        if self.kind == "generate":
            return self._run([], [self.text, *words])
        turns = [str(each["content"]) for each in self.messages if each["role"] == "user"]
        note = "# a command has no system message: Python does\n" if len(self._roles - {"user", "assistant"}) else ""
        if len(turns) == 1:
            return note + self._run(["--chat"], [turns[0], *words])
        return f"{note}printf '%s\\n' {shlex.join(turns)} | {self._run(['--chat'], words)}"

    @property
    def _roles(self) -> set[str]:
        return {str(each["role"]) for each in self.messages}

    def _run(self, options: Sequence[str], words: Sequence[str]) -> str:
        """`--` stands before a text that looks like an option."""
        dashes = ["--"] if any(word.startswith("-") for word in words) else []
        return shlex.join(["headway", "run", self.place, *options, *dashes, *words])

    def _task_command(self, task: Task) -> str:
        form, value = dict(self.form), self.form.get("input", "")
        options = [word for name, flag in FLAGS.items() if name in form for word in (flag, str(form[name]))]
        options += [flag for name, flag in SWITCHES.items() if form.get(name)]
        settings = [f"task={task.name}", *(f"{name}={form[name]}" for name in ("top", "n_best") if name in form)]
        if "class" in task.options:
            return self._run(["--grid", f"1x{form.get('count', 1)}", *options], [f"class={value}", *settings])
        if form.get("look") == "heads":
            options += ["--attention", "looks.png"]
        elif form.get("look") in ("rollout", "gradient"):
            options += ["--rollout", "looks.png"]
            settings += ["rollout=gradient"] if form["look"] == "gradient" else []
        if task.second == "pair" and "pair" in form:
            settings += [f"pair={form['pair']}"]
        if task.joined and task.joined in form:
            value = f"{value},{form[task.joined]}"
        if isinstance(value, Mapping):
            return f"echo {shlex.quote(json.dumps(value))} | {self._run(options, settings)}"
        if task.takes == "table" and "\n" in str(value).strip() and any(map(str.isalpha, str(value))):
            written = f"printf '%s\\n' {shlex.quote(str(value).strip())} > series.csv"
            return f"{written}\n{self._run(['--file', 'series.csv', *options], settings)}"
        lines = str(value).splitlines() if self._several(task) else [str(value)]
        return self._run(options, [*lines, *settings])

    @staticmethod
    def _several(task: Task) -> bool:
        return "nearest" in task.options and task.takes == "text"

    # --- Python

    def python(self) -> str:
        """Lines of Python."""
        head = f"import headway\n\nmodel = headway.load({self.place!r})\n"
        more = "".join(f", {name}={value!r}" for name, value in self.settings.items())
        if self.task is not None:
            return head + self._task_python(self.task)
        if self.kind == "score":
            return f"{head}print(model.score({self.text!r}))\n"
        if self.kind == "beams":
            return f"{head}for text, score in model.beams({self.text!r}{more}):\n    print(score, text)\n"
        if self.kind == "generate":
            return f'{head}for piece in model.stream({self.text!r}{more}):\n    print(piece, end="", flush=True)\n'
        return f"{head}print(model.chat({[dict(each) for each in self.messages]!r}{more}))\n"

    def _task_python(self, task: Task) -> str:
        form = dict(self.form)
        options = {name: form[name] for name in sorted(task.options & form.keys()) if name not in ("seed", "steps")}
        options.pop("guidance", None)
        words = "".join(f", {name}={value!r}" for name, value in {"task": task.name, **options}.items())
        if "class" in task.options:
            raws = f"[{self._asked()!r} | {{'number': number}} for number in range({form.get('count', 1)})]"
            save = "    open(f\"{found['class']}-{found['number']}.png\", 'wb').write(base64.b64decode(found['png']))\n"
            return f"import base64\n\nfor found in model.predict({raws}{words}):\n{save}"
        return f"print(model.predict({self._raw(task)!r}{words}))\n"

    def _asked(self) -> Json:
        """What to draw, without the number of the image."""
        more = {name: self.form[name] for name in ("seed", "steps", "guidance") if name in self.form}
        return {"class": self.form.get("input"), **more}

    def _raw(self, task: Task) -> Any:
        """The input as Python and a request have it."""
        value = self.form.get("input", "")
        if task.joined and task.joined in self.form:
            return {task.takes: value, task.joined: self.form[task.joined]}
        if task.second and task.second in self.form:
            return {"input": value, task.second: self.form[task.second]}
        return str(value).splitlines() if self._several(task) else value

    # --- request

    def curl(self) -> str:
        """A server in one terminal, and a request to it."""
        start = f"headway serve {shlex.quote(self.place)}    # in another terminal\n"
        if self.task is not None:
            return start + self._task_curl(self.task)
        if self.kind == "beams":
            return "# the server samples: headway run --beam searches\n"
        known = {SERVED[name]: value for name, value in self.settings.items() if name in SERVED}
        body = {"model": self.served, **known}
        other = [name for name in self.settings if name not in SERVED]
        note = f"# the server has no setting {', '.join(other)}\n" if other else ""
        if self.kind == "chat":
            body["messages"] = [dict(each) for each in self.messages]
            found = Example("chat", "/v1/chat/completions", body)
        elif self.kind == "score":
            scored = {"prompt": self.text, "max_tokens": 0, "echo": True, "logprobs": 5}
            found = Example("complete", "/v1/completions", {**body, **scored})
        else:
            found = Example("complete", "/v1/completions", {**body, "prompt": self.text})
        return start + note + found.curl(URL) + "\n"

    def _task_curl(self, task: Task) -> str:
        body: Json = {"model": self.served, "task": task.verb or task.name}
        if "class" in task.options:
            body["input"] = [self._asked() | {"number": number} for number in range(self.form.get("count", 1))]
        else:
            body["input"] = self._raw(task)
        if "labels" in self.form:
            body["input"] = {"image": body["input"], "labels": self.form["labels"]}
        for name in self.uploads:  # the shell puts the file in as base64
            mark = f"@{name}@"
            body["input"] = _replaced(body["input"], self.form.get(name), mark)
        line = Example(body["task"], "/v1/run", body).curl(URL)
        if not self.uploads:
            return line + "\n"
        text = json.dumps(body).replace("'", "\\u0027").replace("%", "%%")
        parts = shlex.quote(text)
        for name in self.uploads:
            parts = parts.replace(f"@{name}@", f"'\"$(base64 -w0 {shlex.quote(str(self.form.get(name)))})\"'")
        return f"printf {parts} | curl {URL}/v1/run -H 'Content-Type: application/json' -d @-\n"


def _replaced(value: Any, old: Any, new: str) -> Any:
    """A value with one of its texts replaced."""
    if isinstance(value, Mapping):
        return {key: _replaced(each, old, new) for key, each in value.items()}
    return new if value == old else value
