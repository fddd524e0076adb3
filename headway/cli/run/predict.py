"""`headway run` with a model that predicts: arguments, a file or a pipe in, predictions out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.api.evaluation import recipe_for
from headway.api.results import is_table, open_results
from headway.cli.run.args import COUNTS, LOOKS, RunArgs, check_count
from headway.cli.run.draw import draw
from headway.cli.run.pictures import draw_attention, draw_series
from headway.cli.run.screen import colours
from headway.cli.run.stream import Say, check_some, print_count, report_bad_rows, source_windows
from headway.errors import DataError, UsageError

if TYPE_CHECKING:
    from headway.data.files.rows import BadRows
    from headway.tasks.base import Task
    from headway.tasks.inputs import Item
    from headway.tasks.predictor import Predictor
    from headway.tasks.recipe import Recipe


def predict(bundle: Any, task: Task, args: RunArgs, generation: Mapping[str, Any], say: Say) -> None:
    """Predict for texts of the command line, a file or a pipe. `generation`: options that only generation takes."""
    from headway.data.files.lines import read_as

    if wrong := [name for name, value in generation.items() if value and name not in task.options]:
        cap = f"{task.name}.max_new_tokens"
        hint = f"{cap}=N limits the new tokens" if wrong[0] == "tokens" and "beam" in task.options else ""
        raise UsageError(
            "U001", f"--{wrong[0]} is for models that continue a text, and this model is for {task.title}", hint
        )
    if task.takes == "text":
        front = bundle.config.source or bundle.config.target
        if front is None or front.kind != "tokens":
            raise DataError("D001", f"{bundle.name} does not read text")
    task = _search_task() if args.near and "nearest" not in task.options else task
    settings = {key: value for key, value in args.settings.items() if key not in ("task", *COUNTS, *LOOKS)}
    session = _Session(bundle, task, recipe_for(bundle, task.name, settings), args, say)
    _check(session)
    with read_as(session.recipe.data.encoding):
        if args.near:
            session.search()
        elif args.source:
            session.stream()
        elif "grid" in task.options:
            draw(session.task, session.args, session.predictor(), say)
        else:
            session.show()


def _check(session: _Session) -> None:
    """Refuse options that do not go together."""
    args, task = session.args, session.task
    for name, value, fits in (
        ("--score", args.score, "score" in task.options),
        ("--context", args.context, "context" in task.options),
        ("--story", args.story, "story" in task.options and not args.source),
        ("pair=…", args.pairs, task.second == "pair" and not args.source),
        ("--file", args.file, not args.texts),
        ("--align", args.align, "align" in task.options),
        ("class=…", args.classes, "class" in task.options and not args.source),
        *((f"--{name}", value, name in task.options and not args.source) for name, value in args.drawing.items()),
        *((f"--{name}", value, name in task.options) for name, value in args.series.items()),
        ("--out", args.out and not args.source, "grid" in task.options),
        ("--rollout", args.rollout, "rollout" in task.options),
        ("--attention", args.attention, "rollout" in task.options),
        ("--labels", args.labels, "labels" in task.options and not args.near),
        *((f"--{name}", value, name in task.options) for name, value in args.hearing.items()),
        ("--format", args.format and args.source, False),
        *((name, args.settings.get(name), name in task.options) for name in COUNTS),
    ):
        if value and not fits:
            beside = name == "pair=…" or name.removeprefix("--").removesuffix("=…") in task.options
            other = "a text" if name == "--file" else "--file" if args.source and beside else task.title
            raise UsageError("U001", f"{name} does not go with {other}", "see headway run -h")
    for name, option in (("rollout", args.rollout), ("layer", args.attention)):
        if name in args.settings and not option:
            needs = "--rollout" if name == "rollout" else "--attention"
            raise UsageError(
                "U001", f"{name}={args.settings[name]} needs {needs}", f"headway run M photo.jpg {needs} a.png"
            )
    if (args.rollout or args.attention) and args.source:
        raise UsageError("U001", "--rollout and --attention draw the images of the command line, not those of --file")
    if args.near and not (args.source or args.texts):
        raise UsageError("U001", '--nearest needs a text to look for: headway run M --nearest FILE "…"')
    if not args.texts and not args.source and not args.classes:
        example = f"headway run M {task.tries.made_up.split('   ')[0]}"
        raise UsageError("U001", f"no input: this model is for {task.title}", example)
    if len(args.pairs) > 1 and len(args.pairs) != len(args.texts):
        raise UsageError("U001", f"{len(args.texts)} texts and {len(args.pairs)} pair=…: give as many, or one")
    for name in COUNTS:
        check_count(name, args.settings.get(name, 1))


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
        from headway.tasks.contrastive.task import parse_labels
        from headway.tasks.predictor import RunOptions

        args = self.args
        counts = {name: args.settings[name] for name in COUNTS if name in args.settings}
        labels = parse_labels(args.labels) if args.labels else ()
        options = RunOptions(
            beam=args.beam, align=args.align, score=args.score, labels=labels, language=args.language, words=args.words,
            horizon=args.horizon, **counts,
        )  # fmt: skip
        return self.task.load_predictor()(self.bundle, self.recipe, options)

    def items(self) -> list[Item]:
        """The inputs of the command line."""
        from headway.tasks.inputs import Item

        texts, pairs, context = self.args.texts, self.args.pairs, self.read_long(self.args.context)
        story = self.read_long(self.args.story)
        if context is None and "context" in self.task.options:
            raise UsageError("U001", f"{self.task.title} needs a context", f"headway run M {self.task.tries.made_up}")
        found = []
        for number, text in enumerate(texts):
            raw = {"input": text} | ({} if context is None else {"context": context})
            raw |= {} if story is None else {"story": story}
            raw |= {"pair": pairs[number if len(pairs) > 1 else 0]} if pairs else {}
            try:
                found.append(Item(self.task.parse(raw), line=number + 1))
            except DataError as error:
                raise DataError(error.code, f"text {number + 1}: {error.message}", error.hint) from None
        return found

    def read_long(self, given: str) -> str | None:
        """The text of --context or --story: a file's, or the words themselves if they have spaces and name no file."""
        from headway.data.files.rows import documents

        if not given:
            return None
        if " " in given.strip() and not os.path.exists(given):
            return given
        return "\n".join(each.text for each in documents(given))

    def show(self) -> None:
        items, predictor = self.items(), self.predictor()
        examples = [item.example for item in items]
        found = [each.to_dict() for each in predictor.predict(examples)]
        self.tell_truncated(*predictor.truncated(examples))
        if self.args.format:
            for result in found:
                print(self.task.formats[self.args.format](result))
        elif self.args.json:
            for example, result in zip(examples, found, strict=True):
                print(json.dumps({**self.task.echo(example), **result}, ensure_ascii=False))
        else:
            for line in self.task.render(list(zip(examples, found, strict=True)), colours=colours()):
                print(line)
        if self.args.plot:
            draw_series(self.args.plot, list(zip(examples, found, strict=True)), self.say)
        if self.args.rollout or self.args.attention:
            draw_attention(self.bundle, [example.image for example in examples], self.args, self.say)

    def tell_truncated(self, count: int, limit: int) -> None:
        if count:
            self.say(f"{count:,} of the texts {'is' if count == 1 else 'are'} longer than {limit} tokens: truncated")

    def stream(self) -> None:
        """One result per input, in order; on stdout a JSON line as soon as its window is done."""
        from headway.data.files.rows import BadRows
        from headway.tasks.inputs import located
        from headway.tasks.predictor import predict_good

        bad, predictor, done, cut, limit = BadRows(self.recipe.data.bad_rows), self.predictor(), 0, 0, 0
        drawn: list[tuple[Any, Any]] = []
        with open_results(self.args.out) as write:
            for window, files in source_windows(self.task, self.args.source, self.recipe.data, bad, **self.reading()):
                for good, found in predict_good(predictor, window, bad):
                    rows = located(self.task, good, found, files=files)
                    write(rows if not is_table(self.args.out) else (r for row in rows for r in self.task.tabled(row)))
                    if self.args.plot:
                        drawn += [(item.example, result) for item, result in zip(good, found, strict=True)]
                    more, limit = predictor.truncated([item.example for item in good])
                    done, cut = done + len(good), cut + more
            check_some(done, bad, self.args.source)
        if drawn:
            draw_series(self.args.plot, drawn, self.say)
        self.tell_truncated(cut, limit)
        print_count(done, bad, self.args.out, self.say)

    def reading(self) -> dict[str, Any]:
        """How the columns of a file are found."""
        if self.task.takes != "text":
            return {}
        named = self.args.settings.get("data")
        return {
            "firm": isinstance(named, dict) and bool({"text", "pair"} & named.keys()),
            "context": self.read_long(self.args.context),
        }

    def search(self) -> None:
        """The texts of a file that are nearest in meaning."""
        from headway.data.files.rows import BadRows

        bad, near, kept = BadRows(self.recipe.data.bad_rows), self.args.near, self.args.index
        index = self.bundle.search_index(near, kept, self.say, self.predictor(), **self.reading())
        queries = self.queries(bad)
        top = self.args.settings.get("top", 5)
        found = [
            [
                {"line": int(index.lines[near.place]), "cosine": round(near.cosine, 6), "text": near.text}
                for near in some
            ]
            for some in index.search_all([query.example for query in queries], top)
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
        from headway.tasks.inputs import located
        from headway.tasks.text import shortened

        if self.args.source:
            with open_results(self.args.out) as write:
                write(located(self.task, queries, [{"nearest": rows} for rows in found]))
            return
        for query, rows in zip(queries, found, strict=True):
            if self.args.json:
                print(json.dumps({**self.task.echo(query.example), "nearest": rows}, ensure_ascii=False))
                continue
            if len(queries) > 1:
                print(shortened(next(iter(self.task.echo(query.example).values()), "")))
            wide = max(len(str(row["line"])) for row in rows)
            for row in rows:  # an image file has no lines
                place = f"line {row['line']:{wide}}  " if row["line"] else ""
                print(f"{row['cosine']:7.4f}  {place}{shortened(row['text'])}")
