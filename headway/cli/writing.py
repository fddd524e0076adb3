"""Verbs that use a model."""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import Device, Model, Quiet, app, examples, load_bundle, talker
from headway.cli.screen import colours, legend, paint, show, show_steps, show_tree
from headway.errors import ConfigError, MemoryOrDiskError, UsageError

COMMANDS = "/clear begins anew, /save FILE keeps the conversation, /quit, an empty line or Ctrl-D ends it"


@app.command(
    epilog=examples(
        'headway run last "The import statement"',
        'headway run ./model "Once" --tokens 200 --seed 1 temperature=0.7 repetition=1.2',
        'headway run last "def" --beam 4 n_best=4 --trace',
        'headway run last "Once" --colour --trace-file steps.json',
        'headway run ./large "Once" --draft ./small temperature=0',
        "headway run smollm2 \"A date: \" --regex '[0-9]{4}-[0-9]{2}-[0-9]{2}'",
        'headway run last --score "he likes apples" "apples likes he"',
        "headway run smollm2 --chat",
    )
)
def run(
    model: Model,
    words: Annotated[
        list[str] | None,
        typer.Argument(help="a text to go on from (- reads it from stdin), and settings", metavar="TEXT"),
    ] = None,
    tokens: Annotated[int, typer.Option(help="how many tokens to write")] = 200,
    seed: Annotated[int | None, typer.Option(help="the same text each time")] = None,
    beam: Annotated[int, typer.Option(help="beams to search with, instead of drawing")] = 0,
    score: Annotated[bool, typer.Option("--score", help="how likely each TEXT is")] = False,
    chat: Annotated[bool, typer.Option("--chat", help="a conversation, line by line")] = False,
    draft: Annotated[
        str, typer.Option(help="a smaller model that guesses ahead: same text, sooner", metavar="MODEL")
    ] = "",
    regex: Annotated[str, typer.Option(help="what the new text must match")] = "",
    schema: Annotated[str, typer.Option(help="a JSON schema for the new text", metavar="FILE|JSON")] = "",
    colour: Annotated[bool, typer.Option("--colour", help="each piece in the colour of its probability")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="show each step's alternatives, or the tree of beams")] = False,
    trace_file: Annotated[str, typer.Option(help="keep them as JSON", metavar="FILE")] = "",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Write on from a text, token by token; settings such as temperature=0.7 top_k=40 follow it."""
    texts = [sys.stdin.read().removesuffix("\n") if word == "-" else word for word in words or []]
    if chat and texts and re.fullmatch(r"[a-z_]+=.*", texts[0]):
        texts.insert(0, "")  # a conversation needs no first text, so this is a setting
    given = {"beam": beam, "chat": chat, "draft": draft, "regex": regex, "schema": schema, "colour": colour}
    _check("score" if score else "beam" if beam else "", given | {"trace": trace or trace_file})
    values = _settings([] if score else texts[1:], tokens, seed, beam)
    rules = {"regex": regex, "schema": _schema(schema)}
    bundle = load_bundle(model, device, "auto", quiet)
    if score:
        _scores(bundle.score(texts))
        return
    writer = _Writer(bundle, values, tokens, talker(quiet), rules, colour=colour, trace=trace, keep=bool(trace_file))
    if draft:
        writer.draft = load_bundle(draft, device, "auto", quiet)
    first = texts[0] if texts else ""
    if chat:
        writer.converse(first)
    elif beam:
        writer.search(first)
    else:
        writer.write(first)
    if trace_file:
        save_text(trace_file, json.dumps([asdict(step) for step in writer.steps]) + "\n")
        talker(quiet)(f"{len(writer.steps)} steps in {trace_file}")


@dataclass
class _Writer:
    """A model and how it is to write."""

    bundle: Any
    values: Any
    tokens: int
    say: Callable[..., None]
    rules: dict[str, Any]
    colour: bool = False
    trace: bool = False
    """Show alternatives."""
    keep: bool = False
    """Remember them, for a file."""
    draft: Any = None
    steps: list[Any] = field(default_factory=list)
    """The alternatives at each step, of all texts so far."""

    def write(self, prompt: str) -> str:
        return self._show(lambda **how: self.bundle.stream(prompt, self.tokens, **how), prompt)

    def search(self, prompt: str) -> None:
        found = self.bundle.beams(prompt, self.values, self.steps if self.trace or self.keep else None)
        if self.trace:
            show_tree(self.steps, self.bundle.reader().decode)
        for text, value in found:
            print(f"{value:9.4f}  {text!r}")

    def converse(self, first: str) -> None:
        """Turn by turn until the input ends; what was read of it stays read."""
        messages: list[dict[str, str]] = []
        if sys.stdin.isatty() and not first:
            self.say(COMMANDS)
        while line := first or _line():
            first = ""
            word, _, rest = line.partition(" ")
            if word == "/quit":
                return
            if word == "/clear":
                messages.clear()
            elif word == "/save":
                self._save(rest.strip(), messages)
            elif re.fullmatch(r"/[a-z]+", line):
                self.say(f"{line} is no command: {COMMANDS}")
            else:
                messages.append({"role": "user", "content": line})
                answer = self._show(lambda **how: self.bundle.reply(messages, self.tokens, **how))
                messages.append({"role": "assistant", "content": answer})

    def _show(self, pieces: Callable[..., Iterator[str]], before: str = "") -> str:
        """Write one text, on the screen too."""
        values, by, mask, mine = self.values, None, None, list[Any]()
        if self.rules["regex"] or self.rules["schema"] is not None:
            mask = self.bundle.pattern(**self.rules)
        if self.draft is not None:
            if values.seed is None:  # guesses are made with the draws that will choose
                values = replace(values, seed=secrets.randbits(62))
            by = self.bundle.speculation(self.draft, values)
        painted = self.colour and colours()
        if painted and not self.steps:
            self.say(legend())
        kept = mine if painted or self.trace or self.keep else None  # alternatives take time to find
        text = show(pieces(sampling=values, trace=kept, by=by, mask=mask), before, mine, paint if painted else None)
        self.steps += mine
        if self.trace:
            show_steps(mine, self.bundle.reader().decode)
        if by is not None:
            guesses = f"{by.taken} of {by.guessed} guesses taken ({by.share:.0%})"
            self.say(f"{guesses}: {by.steps} tokens in {by.steps - by.taken} passes")
        return text

    def _save(self, path: str, messages: list[dict[str, str]]) -> None:
        if not path:
            self.say("/save wants the name of a file")
            return
        try:
            save_text(path, json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
        except MemoryOrDiskError as error:  # no reason to lose the conversation
            self.say(str(error))
        else:
            self.say(f"{len(messages)} messages in {path}")


def _line() -> str:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return ""


def save_text(path: str, text: str) -> None:
    """Write a file that was asked for, or say why it cannot be."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise MemoryOrDiskError("M002", f"{path} cannot be written: {error.strerror or error}") from None


def _check(mode: str, given: dict[str, Any]) -> None:
    """Scores and searches draw nothing that could be guessed, held to a pattern or coloured."""
    apart = {"score": list(given), "beam": ["chat", "draft", "regex", "schema", "colour"], "": []}[mode]
    if wrong := [name for name in apart if given[name]]:
        raise UsageError("U001", f"--{wrong[0]} does not go with --{mode}", "leave one of them out")
    if given["regex"] and given["schema"]:
        raise UsageError("U001", "--regex does not go with --schema", "leave one of them out")


def _schema(given: str) -> dict[str, Any] | None:
    from headway.jsonfile import JSON_VALUES, parse_object, read_json

    if not given.lstrip().startswith("{"):
        return read_json(Path(given)) if given else None
    try:
        return parse_object(given.encode(), JSON_VALUES)
    except ValueError as error:
        raise ConfigError("C001", f"--schema: {error}", "give a JSON object, or a file of one") from None


def _settings(words: list[str], tokens: int, seed: int | None, beam: int) -> Any:
    """What follows the text, as settings of sampling or of a beam search."""
    from headway.settings import build, parse_overrides

    plain = [word for word in words if "=" not in word]
    if plain:
        raise UsageError("U001", f"{plain[0]!r} is neither the text nor key=value", "put the text in quotes")
    values = parse_overrides(words)
    if isinstance(values.get("stop_strings"), str):
        values["stop_strings"] = [values["stop_strings"]]
    if beam:
        from headway.generate.beam import Beam

        return build(Beam, {"width": beam, "max_tokens": tokens, **values})
    from headway.generate.sampling import Sampling

    return build(Sampling, {"max_tokens": tokens, **({} if seed is None else {"seed": seed}), **values})


def _scores(found: list[Any]) -> None:
    for one in found:
        print(f"{one.log_probability:10.3f}  {one.tokens:4} tokens  perplexity {one.perplexity:10.2f}  {one.text}")
