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

from headway.cli.app import Device, Json, Model, Quiet, app, examples, load_bundle, progress_printer
from headway.cli.evaluation import recipe_for
from headway.cli.run import predict
from headway.cli.run.args import (
    DEFAULT_TOKENS,
    check_args,
    generation_overrides,
    generation_settings,
    read_text,
    split_text,
)
from headway.cli.run.screen import colours, legend, paint, show, show_steps, show_tree
from headway.cli.run.stream import generate_file
from headway.errors import ConfigError, MemoryOrDiskError, UsageError
from headway.tasks.registry import get_task

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
        'headway run sentiment "a dull film"',
        'headway run bert "I [MASK] across the river to get to the other [MASK]."',
        'headway run squad --context story.txt "Who lived there?"',
        'headway run minilm --nearest notes.txt "how to cook rice"',
        "headway run sentiment --file reviews.csv data.text=body > labels.jsonl",
        'headway run translator "A dog runs." --align',
        "headway run translator --file book.txt --beam 5 n_best=3 > lines.jsonl",
    )
)
def run(
    model: Model,
    args: Annotated[
        list[str] | None,
        typer.Argument(help="a text to go on from, or several to read (- is stdin), and settings", metavar="TEXT"),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option("--tokens", help=f"how many tokens to write; {DEFAULT_TOKENS} if neither you nor the folder say"),
    ] = None,
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
    file: Annotated[str, typer.Option(help="texts to answer one by one, as JSON lines; - is stdin")] = "",
    context: Annotated[str, typer.Option(help="the text that answers questions", metavar="FILE")] = "",
    near: Annotated[str, typer.Option("--nearest", help="texts to find the nearest of", metavar="FILE")] = "",
    align: Annotated[bool, typer.Option("--align", help="which word a translation has from which")] = False,
    device: Device = "auto",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Use a model for what it was trained for.

    It writes on from a text, with settings such as temperature=0.7 top_k=40; gives it a label (pair=… is a second
    text); marks its entities; answers a question; fills its blanks; makes it a vector; translates it.
    """
    given = {"beam": beam, "chat": chat, "draft": draft, "regex": regex, "schema": schema, "colour": colour}
    given |= {"trace": trace or trace_file}
    _check("score" if score else "beam" if beam and not file else "", given)
    rules, say, args = {"regex": regex, "schema": _schema(schema)}, progress_printer(quiet), args or []
    if score and not args and not file:
        raise UsageError("U001", "--score wants a text", 'headway run M --score "…"')
    if file and not all("=" in arg for arg in args):
        raise UsageError("U001", "--file does not go with a text", "leave one of them out")
    first, settings = ("", args) if file else split_text(args, beam, chat=chat)
    named = predict.task_argument(args)
    if file or not score:
        check_args(settings, most, seed, beam)
    bundle = load_bundle(model, device, "auto", quiet)
    task = get_task(named) if named else predict.task_for_run(bundle)
    if (task.generates or "beam" in task.options) and not score:
        for note in bundle.notes:
            say(note)
    if near or not task.generates:
        searched = beam if "beam" in task.options else 0  # beam search is how these models generate
        run_args = predict.RunArgs(*predict.split_args(args), file, context, near, score, json_, align, searched)
        given |= {"tokens": most, "seed": seed is not None} | ({"beam": 0} if searched else {})
        predict.predict(bundle, task, run_args, given, say)
        return
    if file:
        _check("file", given)
    _check_predict_options({"context": context, "json": json_ and not file, "align": align})
    settings = [arg for arg in settings if not arg.startswith("task=")]
    if file:
        settings, data = predict.split_data(settings)
        values = _settings(bundle, settings, most, seed, 0, say)
        recipe = recipe_for(bundle, task.name, data)
        generate_file(bundle, task, file, recipe, values, say, firm="text" in data.get("data", {}), score=score)
        return
    if score:
        from headway.tasks.text import score_line

        for one in bundle.score([read_text(arg) for arg in args]):
            print(
                score_line(
                    one.text,
                    {"log_probability": one.log_probability, "tokens": one.tokens, "perplexity": one.perplexity},
                )
            )
        return
    values = _settings(bundle, settings, most, seed, beam, say)
    generator = Generator(bundle, values, say, rules, colour=colour, trace=trace, keep=bool(trace_file))
    if draft:
        generator.draft = load_bundle(draft, device, "auto", quiet)
    generator.run(read_text(first), chat=chat, beam=bool(beam))
    if trace_file:
        save_text(trace_file, json.dumps([asdict(step) for step in generator.steps]) + "\n")
        say(f"{len(generator.steps)} steps in {trace_file}")


def _settings(
    bundle: Any, args: list[str], tokens: int | None, seed: int | None, beam: int, say: Callable[..., None]
) -> Any:
    """How to write: as the user says, else as the folder does; the folder's part is told."""
    given = generation_overrides(args, tokens, seed, beam)
    if line := bundle.generation.taken(given, beam=bool(beam)):
        say(line)
    return generation_settings(bundle.generation.fields(given, beam=bool(beam)), beam)


@dataclass
class Generator:
    """A model and how it is to write."""

    bundle: Any
    values: Any
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

    def run(self, first: str, *, chat: bool, beam: bool) -> None:
        if beam:
            self.search(first)
            return
        from headway.generate.accel.dispatch import compile_kernels

        compile_kernels(self.bundle.model, 1, self.say)
        if chat:
            self.bundle.chat([{"role": "user", "content": "?"}])  # without a template: said before anybody has typed
            self.converse(first)
        else:
            self.generate(first)

    def generate(self, prompt: str) -> str:
        return self._show(lambda **how: self.bundle.stream(prompt, **how), prompt)

    def search(self, prompt: str) -> None:
        found = self.bundle.beams(prompt, self.values, self.steps if self.trace or self.keep else None)
        if self.trace:
            show_tree(self.steps, self.bundle.require_tokenizer().decode)
        for text, value in found:
            print(f"{value:9.4f}  {text!r}")

    def converse(self, first: str) -> None:
        """Turn by turn until the input ends; what was read of it stays read."""
        messages: list[dict[str, str]] = []
        if sys.stdin.isatty() and not first:
            self.say(COMMANDS)
        while line := first or _line():
            first = ""
            command, _, rest = line.partition(" ")
            if command == "/quit":
                return
            if command == "/clear":
                messages.clear()
            elif command == "/save":
                self._save(rest.strip(), messages)
            elif re.fullmatch(r"/[a-z]+", line):
                self.say(f"{line} is no command: {COMMANDS}")
            else:
                messages.append({"role": "user", "content": line})
                answer = self._show(lambda **how: self.bundle.chat(messages, **how))
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
            show_steps(mine, self.bundle.require_tokenizer().decode)
        if by is not None:
            guesses = f"{by.accepted} of {by.drafted} guesses taken ({by.acceptance_rate:.0%})"
            self.say(f"{guesses}: {by.steps} tokens in {by.steps - by.accepted} passes")
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
    apart = {"score": list(given), "file": list(given), "beam": ["chat", "draft", "regex", "schema", "colour"], "": []}
    if wrong := [name for name in apart[mode] if given[name]]:
        raise UsageError("U001", f"--{wrong[0]} does not go with --{mode}", "leave one of them out")
    if given["regex"] and given["schema"]:
        raise UsageError("U001", "--regex does not go with --schema", "leave one of them out")


def _check_predict_options(given: dict[str, Any]) -> None:
    if wrong := [name for name, value in given.items() if value]:
        raise UsageError("U001", f"--{wrong[0]} is for models that read, and this one writes")


def _schema(given: str) -> dict[str, Any] | None:
    from headway.jsonfile import JSON_VALUES, parse_object, read_json

    if not given.lstrip().startswith("{"):
        return read_json(Path(given)) if given else None
    try:
        return parse_object(given.encode(), JSON_VALUES)
    except ValueError as error:
        raise ConfigError("C001", f"--schema: {error}", "give a JSON object, or a file of one") from None
