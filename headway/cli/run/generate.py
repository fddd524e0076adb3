"""`headway run` with a model that generates: a text, a conversation, a beam search, a file of prompts, scores."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from headway.api.evaluation import recipe_for
from headway.cli.run.args import RunArgs, read_text
from headway.cli.run.screen import STEPS_LEGEND, TREE_LEGEND, colours, legend, paint, show, show_steps, show_tree
from headway.cli.run.stream import Say, generate_file
from headway.errors import HeadwayError, counted
from headway.resources import save_text
from headway.tasks.base import Task

COMMANDS = "/clear starts again, /save FILE saves the conversation, /quit, an empty line or Ctrl-D ends it"


def generate(bundle: Any, task: Task, args: RunArgs, say: Say, load_draft: Callable[[str], Any]) -> None:
    """Do what the arguments ask of a model that generates."""
    args.check_generation()
    if args.score and not args.file:
        from headway.tasks.text import score_line

        for one in bundle.score([read_text(arg) for arg in args.args]):
            numbers = {"log_probability": one.log_probability, "tokens": one.tokens, "perplexity": one.perplexity}
            print(score_line(one.text, numbers))
        return
    given = args.overrides
    if line := bundle.generation.taken(given, beam=bool(args.beam)):
        say(line)
    settings = bundle.beam(**given) if args.beam else bundle.sampling(**given)
    if args.file:
        recipe, firm = recipe_for(bundle, task.name, args.data), "text" in args.data.get("data", {})
        generate_file(bundle, task, args.file, args.out, recipe, settings, say, firm=firm, score=args.score)
        return
    generator = Generator(bundle, args, settings, say)
    if args.draft:
        generator.draft = load_draft(args.draft)
    generator.run()
    if args.trace_file:
        save_text(args.trace_file, json.dumps([asdict(step) for step in generator.steps]) + "\n")
        say(f"{counted(len(generator.steps), 'steps')} in {args.trace_file}")


@dataclass
class Generator:
    """A model that generates for one command line."""

    bundle: Any
    args: RunArgs
    settings: Any
    """A Sampling, or a Beam with --beam."""
    say: Say
    draft: Any = None
    steps: list[Any] = field(default_factory=list)
    """The alternatives at each step, of all texts so far."""

    def run(self) -> None:
        prompt = self.args.prompt
        if self.args.beam:
            self.search(prompt)
            return
        from headway.generate.accel.dispatch import compile_kernels

        compile_kernels(self.bundle.model, 1, now=self.args.chat)
        if self.args.chat:
            self.bundle.chat([{"role": "user", "content": "?"}])  # report a missing template before anyone types
            self.converse(prompt)
        else:
            self._show(lambda **how: self.bundle.stream(prompt, **how), prompt)

    @property
    def traced(self) -> bool:
        return self.args.trace or bool(self.args.trace_file)

    def search(self, prompt: str) -> None:
        found = self.bundle.beams(prompt, self.settings, self.steps if self.traced else None)
        if self.args.trace:
            self.say(TREE_LEGEND)
            show_tree(self.steps, self.bundle.require_tokenizer().decode)
        for text, value in found:
            print(f"{value:9.4f}  {text!r}")

    def converse(self, first: str) -> None:
        """Turn by turn until the input ends. The KV cache keeps earlier turns."""
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
                self.say(f"{line} is not a command: {COMMANDS}")
            else:
                messages.append({"role": "user", "content": line})
                answer = self._show(lambda **how: self.bundle.chat(messages, **how))
                messages.append({"role": "assistant", "content": answer})

    def _show(self, pieces: Callable[..., Iterator[str]], before: str = "") -> str:
        """Generate one text and print it as it comes."""
        args, settings, by, mask, mine = self.args, self.settings, None, None, list[Any]()
        if args.regex or args.schema is not None:
            mask = self.bundle.pattern(args.regex, args.schema)
        if self.draft is not None:
            if settings.seed is None:  # the draft and the model must draw the same random numbers
                import secrets

                settings = replace(settings, seed=secrets.randbits(62))
            by = self.bundle.speculation(self.draft, settings)
        painted = args.colour and colours()
        if painted and not self.steps:
            self.say(legend())
        kept = mine if painted or self.traced else None  # finding the alternatives takes time
        text = show(pieces(sampling=settings, trace=kept, by=by, mask=mask), before, mine, paint if painted else None)
        self.steps += mine
        if args.trace:
            self.say(STEPS_LEGEND)
            show_steps(mine, self.bundle.require_tokenizer().decode)
        if by is not None:
            accepted = f"{by.accepted} of {counted(by.drafted, 'draft tokens')} accepted ({by.acceptance_rate:.0%})"
            passes = counted(by.steps - by.accepted, "passes")
            self.say(f"{accepted}: {counted(by.steps, 'tokens')} in {passes}")
        return text

    def _save(self, path: str, messages: list[dict[str, str]]) -> None:
        if not path:
            self.say("/save needs the name of a file")
            return
        try:
            save_text(path, json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
        except HeadwayError as error:  # the conversation goes on
            self.say(str(error))
        else:
            self.say(f"{counted(len(messages), 'messages')} in {path}")


def _line() -> str:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return ""
