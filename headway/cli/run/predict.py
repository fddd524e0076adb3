"""`headway run` with a model that predicts: arguments, a file or a pipe in, predictions out."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headway.cli.evaluation import recipe_for, task_for
from headway.cli.run.screen import colours
from headway.cli.run.stream import Say, print_count, print_results, report_bad_rows, source_windows, stdin_is_piped
from headway.errors import DataError, UsageError, nearest

if TYPE_CHECKING:
    from headway.data.files.rows import BadRows
    from headway.tasks.base import Task
    from headway.tasks.inputs import Item
    from headway.tasks.predictor import Predictor
    from headway.tasks.recipe import Recipe

COUNTS = ("top", "n_best")
"""Settings that are whole numbers from 1 on."""
SETTING = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)(?:\.[A-Za-z_]+)?=")


def setting_names() -> tuple[str, ...]:
    """What may stand before = in a word after `headway run MODEL`, for models that predict."""
    from headway.tasks.registry import task_names

    return ("task", "pair", "data", *COUNTS, *task_names())


@dataclass(frozen=True)
class RunArgs:
    """A command line of `headway run`, parsed."""

    texts: list[str]
    settings: dict[str, Any] = field(default_factory=dict)
    pairs: list[str] = field(default_factory=list)
    file: str = ""
    context: str = ""
    near: str = ""
    score: bool = False
    json: bool = False
    align: bool = False
    beam: int = 0

    @property
    def source(self) -> str:
        """The file to read inputs from, - for stdin: as given, or a pipe where nothing else is given."""
        if self.file or self.texts not in ([], ["-"]):
            return self.file
        return "-" if self.texts or (not self.near and stdin_is_piped()) else ""


def task_argument(args: Sequence[str]) -> str:
    """The task that task=… names, or an empty string."""
    from headway.tasks.registry import task_names

    task = next((arg.removeprefix("task=") for arg in args if arg.startswith("task=")), "")
    if task and task not in task_names():
        listed = ", ".join(task_names())
        raise UsageError("U001", f"task={task} is unknown{nearest(task, task_names())}", f"one of {listed}")
    return task


def split_args(args: Sequence[str]) -> tuple[list[str], dict[str, Any], list[str]]:
    """Texts, settings and second texts. A word that looks like a setting and is none may be a typing mistake."""
    from headway.config.toml import parse_overrides

    texts, settings, pairs, known = [], [], [], setting_names()
    for arg in args:
        found = SETTING.match(arg)
        if found and found[1] == "pair":
            pairs.append(arg.removeprefix("pair="))
        elif found and found[1] in known:
            settings.append(arg)
        elif found and not re.search(r"\s", arg):
            hint = f"settings are {', '.join(known)}; a text of one word with = in it can come from a file"
            raise UsageError("U001", f"{arg!r} is no setting here{nearest(found[1], known)}", hint)
        else:
            texts.append(arg)
    return texts, parse_overrides(settings), pairs


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that are wrong for every model."""
    from headway.tasks.recipe import read_recipe
    from headway.tasks.registry import task_names

    for name in COUNTS:
        _check_count(name, settings.get(name, 1))
    sections = {name: value for name, value in settings.items() if name not in ("task", *COUNTS)}
    for name, value in sections.items():
        if not isinstance(value, Mapping):
            raise UsageError("U001", f"{name}={value} sets nothing: {name} is a group of settings", f"as {name}.KEY=…")
    if "data" in sections:  # an overlap has to be less than the length, which may be the model's own
        read_recipe({"data": {"length": sys.maxsize, **sections.pop("data")}})
    for name in sections.keys() & set(task_names()):
        read_recipe({"task": name, name: sections[name]})


def _check_count(name: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise UsageError("U001", f"{name}={value} should be a whole number from 1 on")


def task_for_run(bundle: Any) -> Task:
    """The task that a model is for."""
    from headway.tasks.registry import get_task

    return get_task(task_for(bundle))


def split_data(args: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Generation settings, and the settings of the data section."""
    from headway.config.toml import parse_overrides

    data = [arg for arg in args if arg.startswith("data.")]
    return [arg for arg in args if arg not in data], parse_overrides(data)


def predict(bundle: Any, task: Task, args: RunArgs, generation: Mapping[str, Any], say: Say) -> None:
    """Predict for texts of the command line, a file or a pipe. `generation`: options that only generation takes."""
    if wrong := [name for name, value in generation.items() if value]:
        cap = f"{task.name}.max_new_tokens"
        hint = f"{cap}=N limits the new tokens" if wrong[0] == "tokens" and "beam" in task.options else ""
        raise UsageError("U001", f"--{wrong[0]} is for language models, and this model is for {task.title}", hint)
    if task.takes == "text":
        front = bundle.config.source or bundle.config.target
        if front is None or front.kind != "tokens":
            raise DataError("D001", f"{bundle.name} does not read text")
    task = _search_task() if args.near else task
    settings = {key: value for key, value in args.settings.items() if key not in ("task", *COUNTS)}
    session = _Session(bundle, task, recipe_for(bundle, task.name, settings), args, say)
    _check(session)
    if args.near:
        session.search()
    elif args.source:
        session.stream()
    else:
        session.show()


def _check(session: _Session) -> None:
    """Refuse options that do not go together."""
    args, task = session.args, session.task
    for name, value, fits in (
        ("--score", args.score, "score" in task.options),
        ("--context", args.context, "context" in task.options),
        ("pair=…", args.pairs, task.second == "pair" and not args.source),
        ("--file", args.file, not args.texts),
        ("--align", args.align, "align" in task.options),
        *((name, args.settings.get(name), name in task.options) for name in COUNTS),
    ):
        if value and not fits:
            other = "a text" if name == "--file" else "--file" if args.source and name == "pair=…" else task.title
            raise UsageError("U001", f"{name} does not go with {other}", "see headway run -h")
    if args.near and not (args.source or args.texts):
        raise UsageError("U001", '--nearest needs a text to look for: headway run M --nearest FILE "…"')
    if not args.texts and not args.source:
        example = f"headway run M {task.tries.made_up.split('   ')[0]}"
        raise UsageError("U001", f"no input: this model is for {task.title}", example)
    if len(args.pairs) > 1 and len(args.pairs) != len(args.texts):
        raise UsageError("U001", f"{len(args.texts)} texts and {len(args.pairs)} pair=…: give as many, or one")
    for name in COUNTS:
        _check_count(name, args.settings.get(name, 1))


def _search_task() -> Task:
    """The task whose vectors --nearest compares, whatever else the model is for."""
    from headway.tasks.registry import tasks

    return next(task for task in tasks() if "nearest" in task.options)


@dataclass(frozen=True)
class _Session:
    """A model, its task, and one command line."""

    bundle: Any
    task: Task
    recipe: Recipe
    args: RunArgs
    say: Say

    def predictor(self) -> Predictor[Any, Any]:
        from headway.tasks.predictor import RunOptions

        args = self.args
        counts = {name: args.settings[name] for name in COUNTS if name in args.settings}
        options = RunOptions(beam=args.beam, align=args.align, score=args.score, **counts)
        return self.task.load_predictor()(self.bundle, self.recipe, options)

    def items(self) -> list[Item]:
        """The inputs of the command line."""
        from headway.tasks.inputs import Item

        texts, pairs, context = self.args.texts, self.args.pairs, self.context()
        if context is None and "context" in self.task.options:
            raise UsageError("U001", f"{self.task.title} needs a context", f"headway run M {self.task.tries.made_up}")
        found = []
        for number, text in enumerate(texts):
            raw = {"input": text} | ({} if context is None else {"context": context})
            raw |= {"pair": pairs[number if len(pairs) > 1 else 0]} if pairs else {}
            try:
                found.append(Item(self.task.parse(raw), line=number + 1))
            except DataError as error:
                raise DataError(error.code, f"text {number + 1}: {error.message}", error.hint) from None
        return found

    def context(self) -> str | None:
        from headway.data.files.rows import documents

        if not self.args.context:
            return None
        return "\n".join(each.text for each in documents(self.args.context))

    def show(self) -> None:
        items, predictor = self.items(), self.predictor()
        examples = [item.example for item in items]
        found = [each.to_dict() for each in predictor.predict(examples)]
        self.tell_truncated(*predictor.truncated(examples))
        if self.args.json:
            for example, result in zip(examples, found, strict=True):
                print(json.dumps({**self.task.echo(example), **result}, ensure_ascii=False))
        else:
            for line in self.task.render(list(zip(examples, found, strict=True)), colours=colours()):
                print(line)

    def tell_truncated(self, count: int, limit: int) -> None:
        if count:
            self.say(f"{count:,} of the texts {'is' if count == 1 else 'are'} longer than {limit} tokens: truncated")

    def stream(self) -> None:
        """One JSON line per input, in order, as soon as its window is done."""
        from headway.data.files.rows import BadRows
        from headway.tasks.predictor import predict_good

        bad, predictor, done, cut, limit = BadRows(self.recipe.data.bad_rows), self.predictor(), 0, 0, 0
        for window, files in source_windows(self.task, self.args.source, self.recipe.data, bad, **self.reading()):
            for good, found in predict_good(predictor, window, bad):
                print_results(self.task, good, found, files=files)
                more, limit = predictor.truncated([item.example for item in good])
                done, cut = done + len(good), cut + more
        self.tell_truncated(cut, limit)
        print_count(done, bad, self.args.source, self.say)

    def reading(self) -> dict[str, Any]:
        """How the columns of a file are found."""
        if self.task.takes != "text":
            return {}
        named = self.args.settings.get("data")
        return {"firm": isinstance(named, dict) and bool({"text", "pair"} & named.keys()), "context": self.context()}

    def search(self) -> None:
        """The texts of a file that are nearest in meaning."""
        import torch

        from headway.data.files.rows import BadRows
        from headway.tasks.embedding.vectors import nearest_of

        task, bad = self.task, BadRows(self.recipe.data.bad_rows)
        items = list(task.inputs(self.args.near, self.recipe.data, bad, **self.reading()))
        if not items:
            raise bad.no_rows(self.args.near, "texts")
        queries, texts = self.queries(bad), [item.example.text for item in items]
        predictor = self.predictor()
        asked, known = (
            torch.tensor([each.values for each in predictor.predict(some)])
            for some in ([query.example for query in queries], [item.example for item in items])
        )
        found = [
            [
                {"line": items[near.place].line, "cosine": round(near.cosine, 6), "text": near.text}
                for near in nearest_of(vector, known, texts, self.args.settings.get("top", 5))
            ]
            for vector in asked
        ]
        self.show_nearest(queries, found)
        report_bad_rows(bad, self.say)

    def queries(self, bad: BadRows) -> list[Item]:
        """The texts to look for: those of the command line, or of a file."""
        if not self.args.source:
            return self.items()
        windows = source_windows(self.task, self.args.source, self.recipe.data, bad, **self.reading())
        found = [item for window, _ in windows for item in window]
        if not found:
            raise bad.no_rows(self.args.source, "texts")
        return found

    def show_nearest(self, queries: list[Item], found: list[list[dict[str, Any]]]) -> None:
        from headway.tasks.text import shortened

        if self.args.source:
            print_results(self.task, queries, [{"nearest": rows} for rows in found], files=False)
            return
        for query, rows in zip(queries, found, strict=True):
            if self.args.json:
                print(json.dumps({"text": query.example.text, "nearest": rows}, ensure_ascii=False))
                continue
            if len(queries) > 1:
                print(shortened(query.example.text))
            wide = max(len(str(row["line"])) for row in rows)
            for row in rows:
                print(f"{row['cosine']:7.4f}  line {row['line']:{wide}}  {shortened(row['text'])}")
