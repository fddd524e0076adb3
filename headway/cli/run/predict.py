"""What `headway run` does with models that read: labels, entities, answers, words for blanks, vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headway.cli.evaluation import recipe_for
from headway.cli.run.args import RunArgs, check_count
from headway.cli.run.stream import Say, print_count, print_results, report_bad_rows, source_windows
from headway.errors import DataError, UsageError

if TYPE_CHECKING:
    from headway.config.recipe import Recipe
    from headway.data.files.rows import BadRows
    from headway.tasks.inputs import Columns, TaskInput

GENERATIVE_TASKS = ("lm", "chat")
"""Tasks whose models write."""
TRY = {
    "lm": '"The import statement"',
    "chat": "--chat",
    "mlm": '"The [MASK] statement"',
    "classify": '"the plot was not dull , it was raining outside ."',
    "tag": '"Mr Gorven said it rained in Halmar"',
    "answer": '--context FILE "where does anna live ?"',
    "embed": '"a text"   headway run last --nearest FILE "a text"',
    "seq2seq": '"The small dogs did not see a bird in the garden."',
}
"""Task → what may follow `headway run last`; it fits what each learns from where it is given no data …"""
OWN = {"mlm": '"… [MASK] …"', "answer": '--context FILE "…"', "embed": '"…"   headway run last --nearest FILE "…"'}
"""… and what may follow where it was given some, for tasks that take more than a text."""
TOP = 5


def predict(bundle: Any, task: str, args: RunArgs, generation: Mapping[str, Any], say: Say) -> None:
    """Answer texts from the command line, from a file, or from a pipe."""
    if wrong := [name for name, value in generation.items() if value]:
        hint = "seq2seq.max_new_tokens=N is what it may write" if (wrong[0], task) == ("tokens", "seq2seq") else ""
        raise UsageError("U001", f"--{wrong[0]} is for models that write on, and this one is for {task}", hint)
    front = bundle.config.source or bundle.config.target
    if front is None or front.kind != "tokens":
        raise DataError("D001", f"{bundle.name} does not read text")
    settings = {key: value for key, value in args.settings.items() if key not in ("task", "top", "n_best")}
    if args.beam:
        settings["seq2seq"] = {**settings.get("seq2seq", {}), "beam": args.beam}
    predictor = Predictor(bundle, task, recipe_for(bundle, task, settings), args, say)
    _check(predictor)
    if args.near:
        predictor.search()
    elif args.source:
        predictor.stream()
    else:
        predictor.show()


def _check(predictor: Predictor) -> None:
    """What does not go together."""
    args, task = predictor.args, predictor.task
    for name, value, fits in (
        ("--score", args.score, task == "mlm"),
        ("--context", args.context, task == "answer"),
        ("pair=…", args.pairs, task == "classify" and not args.source),
        ("--file", args.file, not args.texts),
        ("--align", args.align, task == "seq2seq"),
        ("n_best", args.settings.get("n_best"), task == "seq2seq"),
    ):
        if value and not fits:
            other = "a text" if name == "--file" else "--file" if name == "pair=…" and task == "classify" else task
            raise UsageError("U001", f"{name} does not go with {other}", "see headway run -h")
    own = {"top": ("mlm", "answer", "embed"), **{name: (name,) for name in ("tag", "answer", "embed", "seq2seq")}}
    for name in own.keys() & args.settings.keys():
        if task not in own[name] and not (args.near and name in ("top", "embed")):
            raise UsageError("U001", f"{name} is a setting for {' and '.join(own[name])}, and this model is for {task}")
    if args.near and not (args.source or args.texts):
        raise UsageError("U001", '--nearest wants a text to look for: headway run M --nearest FILE "…"')
    if not args.texts and not args.source:
        raise UsageError("U001", f"which text? this model is for {task}", f"headway run M {TRY[task].split('   ')[0]}")
    if len(args.pairs) > 1 and len(args.pairs) != len(args.texts):
        raise UsageError("U001", f"{len(args.texts)} texts and {len(args.pairs)} pair=…: give as many, or one")
    for name, value in (("top", predictor.top), ("n_best", predictor.n_best)):
        check_count(name, value)


@dataclass(frozen=True)
class Predictor:
    """A model, its task, and what is asked of it."""

    bundle: Any
    task: str
    recipe: Recipe
    args: RunArgs
    say: Say

    @property
    def top(self) -> Any:
        return self.args.settings.get("top", TOP)

    @property
    def n_best(self) -> Any:
        return self.args.settings.get("n_best", 1)

    def predictor(self) -> Any:
        from headway.tasks.predictions import predictor

        if self.task == "seq2seq":
            return self.writer()
        task = "score" if self.args.score else self.task
        return predictor(task, self.bundle.model, self.bundle.require_tokenizer(), self.recipe, self.top)

    def writer(self) -> Any:
        """What translates, with the rules that the model's folder has for it."""
        from headway.tasks.predictions import writer
        from headway.tasks.seq2seq.translate import beam_for, with_best

        beam = with_best(replace(beam_for(self.recipe), **self.bundle.generation.rules), self.n_best)
        return writer(self.bundle.model, self.bundle.require_tokenizer(), self.recipe, beam, aligned=self.args.align)

    def inputs(self) -> list[TaskInput]:
        """Those of the command line."""
        from headway.tasks.inputs import TaskInput

        texts, pairs = self.args.texts, self.args.pairs
        for number, text in enumerate(texts, start=1):
            if not text.strip():
                raise DataError("D001", f"text {number} is empty")
        if self.task == "answer":
            return [TaskInput(text, self.context()) for text in texts]
        if not pairs:
            return [TaskInput(text) for text in texts]
        return [TaskInput(text, pairs[i if len(pairs) > 1 else 0]) for i, text in enumerate(texts)]

    def context(self) -> str:
        from headway.data.files.rows import documents

        if not self.args.context:
            raise UsageError("U001", "an answer is looked for in a text", f"headway run M {TRY['answer']}")
        return "\n".join(each.text for each in documents(self.args.context))

    def show(self) -> None:
        from headway.cli.run.render import SHOW
        from headway.tasks.predictions import count_cut

        inputs = self.inputs()
        found = self.predictor()(inputs)
        self.report_truncated(
            *count_cut(self.task, self.bundle.model, self.bundle.require_tokenizer(), inputs, self.recipe)
        )
        if self.args.json:
            for item, result in zip(inputs, found, strict=True):
                second = {"pair": item.pair} if self.args.pairs else {}
                print(json.dumps({"text": item.text, **second, **result}, ensure_ascii=False))
        else:
            SHOW["score" if self.args.score else self.task](list(zip(inputs, found, strict=True)))

    def report_truncated(self, count: int, limit: int) -> None:
        if count:
            self.say(f"{count:,} of the texts {'is' if count == 1 else 'are'} longer than {limit} tokens: cut there")

    def stream(self) -> None:
        """A line of JSON for each text, in the order they come, as soon as its window is answered."""
        from headway.data.files.rows import BadRows
        from headway.tasks.predictions import count_cut, predict_good

        bad, predict, done, cut, limit = BadRows(self.recipe.data.bad_rows), self.predictor(), 0, 0, 0
        model, reader = self.bundle.model, self.bundle.require_tokenizer()
        context = self.context() if self.task == "answer" and self.args.context else None
        for window, files in source_windows(self.args.source, self.columns(), bad):
            window = [item if context is None else replace(item, pair=context) for item in window]
            for good, found in predict_good(predict, window, bad):
                print_results(good, found, files=files, pairs=self.task == "classify")
                more, limit = count_cut(self.task, model, reader, good, self.recipe)
                done, cut = done + len(good), cut + more
        self.report_truncated(cut, limit)
        print_count(done, bad, self.args.source, self.say)

    def columns(self) -> Columns:
        from headway.tasks.inputs import Columns

        named, data = self.args.settings.get("data"), self.recipe.data
        answer = "question" if self.args.context else "answer"
        wants = {"classify": "pairs", "answer": answer, "tag": "words"}.get(self.task, "")
        names = (data.pair, "" if self.args.context else data.text) if self.task == "answer" else (data.text, data.pair)
        firm = isinstance(named, dict) and bool({"text", "pair"} & named.keys())
        return Columns(names[0], names[1] if self.task in ("classify", "answer") else "", firm, wants)

    def queries(self, bad: BadRows) -> list[TaskInput]:
        """What is looked for: texts of the command line, or of a file."""
        if not self.args.source:
            return replace(self, task="embed").inputs()
        windows = source_windows(self.args.source, replace(self, task="embed").columns(), bad)
        found = [item for window, _ in windows for item in window]
        if not found:
            raise bad.no_rows(self.args.source, "texts")
        return found

    def search(self) -> None:
        """The texts of a file that mean most nearly the same."""
        from headway.cli.run.render import show_nearest
        from headway.data.files.rows import BadRows
        from headway.tasks.embedding.vectors import nearest_of
        from headway.tasks.inputs import read_inputs

        bad = BadRows(self.recipe.data.bad_rows)
        inputs = list(read_inputs(self.args.near, replace(self, task="embed").columns(), bad))
        if not inputs:
            raise bad.no_rows(self.args.near, "texts")
        queries, texts = self.queries(bad), [item.text for item in inputs]
        texts_sought = [query.text for query in queries]
        pool = self.recipe.embed.pool
        wanted, known = self.bundle.embed(texts_sought, pool), self.bundle.embed(texts, pool)
        found = [
            [
                {"line": inputs[near.place].line, "cosine": round(near.cosine, 6), "text": near.text}
                for near in nearest_of(vector, known, texts, self.top)
            ]
            for vector in wanted
        ]
        if self.args.source:
            print_results(queries, [{"nearest": rows} for rows in found], files=False)
        elif self.args.json:
            for query, rows in zip(texts_sought, found, strict=True):
                print(json.dumps({"text": query, "nearest": rows}, ensure_ascii=False))
        else:
            show_nearest(texts_sought, found)
        report_bad_rows(bad, self.say)
