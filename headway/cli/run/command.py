"""`headway run`: use a model for what it was trained for."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import Device, Json, Model, Quiet, app, examples, load_bundle
from headway.cli.complete import complete_generation_settings
from headway.cli.run.args import RunArgs, read_schema
from headway.cli.run.generate import generate
from headway.cli.run.predict import predict
from headway.data.files.locate import FORMATS
from headway.jsonfile import show
from headway.progress import progress_printer
from headway.tasks.base import Task
from headway.tasks.image import is_image_name
from headway.tasks.registry import get_task, tasks

BLANK = re.compile(r"\[MASK\]|<mask>|_{3,}")
"""How people write a word to be predicted."""


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
        'headway run babi --story story.txt "Where is the milk?"',
        'headway run minilm --nearest notes.txt "how to cook rice"',
        'headway run minilm --nearest notes.jsonl --index notes.index "how to cook rice"',
        "headway run sentiment --file reviews.csv data.text=body > labels.jsonl",
        "headway run sentiment --file reviews.xlsx --out labels.csv",
        'headway run translator "A dog runs." --align',
        "headway run images photo.jpg --rollout looked.png --attention heads.png rollout=gradient",
        'headway run clip photo.png --labels "a cat,a dog"',
        'headway run clip --nearest photos/ "a dog on a beach"',
        "headway run whisper-tiny talk.wav --format srt --language de > talk.srt",
        "headway run whisper-tiny talk.wav --words --json",
        "headway run translator --file book.txt --beam 5 n_best=3 > lines.jsonl",
        "headway run forecaster --file recent.csv --horizon 96 --out forecast.csv --plot forecast.png",
        "headway run shapes class=circle --grid 4x4 --out grid.png --steps 30 --guidance 3 --seed 1",
    )
)
def run(
    model: Model,
    args: Annotated[
        list[str] | None,
        typer.Argument(
            help="the prompt, or the texts to predict for (- is stdin), then settings",
            metavar="TEXT",
            autocompletion=complete_generation_settings,
        ),
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="the most new tokens; default: 200, or as the model's folder says")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="draw the same text, or the same images, each time")] = None,
    beam: Annotated[int, typer.Option(help="beam search with this many beams, instead of sampling")] = 0,
    score: Annotated[bool, typer.Option("--score", help="log-probability and perplexity of each TEXT")] = False,
    chat: Annotated[bool, typer.Option("--chat", help="a conversation, one line per turn")] = False,
    draft: Annotated[
        str, typer.Option(help="a smaller model for speculative decoding: the same text, faster", metavar="MODEL")
    ] = "",
    regex: Annotated[str, typer.Option(help="a regular expression that the new text matches")] = "",
    schema: Annotated[str, typer.Option(help="a JSON schema that the new text follows", metavar="FILE|JSON")] = "",
    colour: Annotated[bool, typer.Option("--colour", help="colour each token by its probability")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="print the alternatives of each step, or the beams")] = False,
    trace_file: Annotated[str, typer.Option(help="write the alternatives as JSON", metavar="FILE")] = "",
    file: Annotated[
        str, typer.Option(help="texts from a file, - is stdin; results are JSON lines, with the file's other columns")
    ] = "",
    out: Annotated[
        str,
        typer.Option(
            help="write the results of --file here: .jsonl, .csv, .tsv or .parquet; drawn images: .png", metavar="FILE"
        ),
    ] = "",
    context: Annotated[str, typer.Option(help="the text to find answers in, or its file", metavar="TEXT|FILE")] = "",
    story: Annotated[
        str, typer.Option(help="the story that questions are about, or its file", metavar="TEXT|FILE")
    ] = "",
    near: Annotated[str, typer.Option("--nearest", help="texts to search by meaning", metavar="FILE")] = "",
    index: Annotated[
        str, typer.Option(help="keep the vectors of --nearest in this file, so that the next search is quick")
    ] = "",
    labels: Annotated[
        str, typer.Option(help="of an image: texts to choose among, with commas between them", metavar="A,B")
    ] = "",
    align: Annotated[bool, typer.Option("--align", help="which source word each translated word comes from")] = False,
    grid: Annotated[str, typer.Option(help="rows and columns of images to draw", metavar="4x8")] = "",
    steps: Annotated[int | None, typer.Option(help="steps from noise to an image; default: as in training")] = None,
    guidance: Annotated[
        float | None, typer.Option(help="how closely images follow their class: 1 is not at all guided")
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="time steps to predict; default: as in training")] = None,
    plot: Annotated[str, typer.Option(help="draw a series and its forecast", metavar="PNG")] = "",
    rollout: Annotated[
        str, typer.Option(help="draw where a vision model looked; rollout=gradient: for its label", metavar="PNG")
    ] = "",
    attention: Annotated[
        str, typer.Option(help="draw the class token's attention, head by head; layer=N", metavar="PNG")
    ] = "",
    language: Annotated[
        str, typer.Option(help="the language that is spoken, such as de; default: the model detects it", metavar="CODE")
    ] = "",
    words: Annotated[bool, typer.Option("--words", help="of speech: when each word was said")] = False,
    format_: Annotated[str, typer.Option("--format", help="of speech: txt, srt, vtt or json", metavar="FORMAT")] = "",
    device: Device = "auto",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Use a model for what it was trained for.

    A language model continues a prompt, with settings such as temperature=0.7 top_k=40. Other models predict: a label
    (pair=… is a second text), entities, an answer, words for [MASK], a vector, a translation, images (class=…), the
    time steps that follow a table.

    A result of --file has the line, the other columns of the file under their names, the text and the prediction:
    {"line": 2, "id": 7, "text": …, "label": …}. A column whose name the result needs itself is called input_NAME.
    """
    run_args = RunArgs(
        args=tuple(args or ()), tokens=tokens, seed=seed, beam=beam, score=score, chat=chat, draft=draft, regex=regex,
        schema=read_schema(schema), colour=colour, trace=trace, trace_file=trace_file, file=file, out=out,
        context=context, story=story, near=near, index=index, align=align, labels=labels, grid=grid,
        steps=steps, guidance=guidance, horizon=horizon, plot=plot, rollout=rollout, attention=attention,
        language=language, words=words, format=format_, json=json_,
    )  # fmt: skip
    run_args.check()
    say = progress_printer(quiet)
    bundle = load_bundle(model, device, "auto", quiet)
    task = get_task(run_args.named_task() or bundle.task)
    if (task.generates or "beam" in task.options) and not score:
        for note in bundle.notes:
            say(note)
    if note := _note_on_blanks(bundle, task, run_args) or _note_on_texts(task, run_args):
        say(note)
    if near or not task.generates:
        predict(bundle, task, run_args, run_args.generation_options(search="beam" in task.options), say)
    else:
        generate(bundle, task, run_args, say, lambda name: load_bundle(name, device, "auto", quiet))


def _note_on_blanks(bundle: Any, task: Task, args: RunArgs) -> str:
    """What to do about a blank in a text for a model that does not fill blanks; empty if there is none."""
    blank = next((found[0] for text in args.args if (found := BLANK.search(text))), "")
    if not blank or task.verb == "fill":
        return ""
    filler = next(each for each in tasks() if each.verb == "fill")
    what = f"{blank} is read as text: {bundle.name} is for {task.title}"
    if filler.fits(bundle.config):
        return f"{what}. To fill it: task={filler.name}"
    return f"{what}, and has no head that fills blanks. A {filler.noun} does: headway train {filler.name}"


def _note_on_texts(task: Task, args: RunArgs) -> str:
    """What else the words may have meant: a file to read, or a question to a chat model; empty if nothing."""
    either = task.takes == "image" and "nearest" in task.options  # texts, too
    texts = [word for word in args.args if task.takes == "text" or (either and not is_image_name(word))]
    if name := next(filter(os.path.isfile, texts), ""):
        return f"{show(name)} is read as text; to read the file: --file {shlex.quote(name)}"
    media = args.args if task.takes in ("image", "sound") else ()
    if tables := [word for word in media if Path(word).suffix.lower() in FORMATS and os.path.isfile(word)]:
        return f"{show(tables[0])} is read as one input; to read those that it lists: --file {shlex.quote(tables[0])}"
    asks = task.tries.own == "--chat" and args.args and not (args.chat or args.score or args.file)
    return "continuing the text; to ask the model a question: --chat" if asks else ""
