"""The model of the tour: a run of its own, which answers questions about people after a few seconds of training."""

from __future__ import annotations

import random
import re
import threading
from pathlib import Path
from typing import Any

from headway.api.past_runs import Run
from headway.data.synthetic.texts.stories import FACTS, PEOPLE
from headway.hub.run_names import has_model, run_folders
from headway.studio.context import Studio
from headway.studio.jobs import Job

NAME = re.compile(r"tour-\d+")
STORIES = 6000
TOLD = 2
"""Facts of a story: few, so that a model of two layers learns within seconds to look back at them."""
STEPS = 400
WORDS = 500
"""Stories that surely hold every word."""
SENTENCE = "hugo lives in vienna . emma works as a pilot . where does hugo live ?"
RECIPE = """\
# The tour of the studio: a model of two layers that answers questions about a story of two facts.
task = "lm"

[data]
train = "{path}"
tokenizer = "words"
length = 28
lines = true
rows = "pad"

[model]
depth = 2
width = 64
heads = 4

[train]
steps = {steps}
batch = 32
lr = 5e-3
optimizer = "muon"
warmup = 50
eval_every = 100
sample_every = {steps}
save_every = {steps}
"""
"""muon learns to look back within 300 steps; adamw needs several times as many."""


def make_stories(count: int, seed: int = 0) -> list[str]:
    """Stories of two facts, each asked about at the end; equal seeds give equal stories."""
    rng = random.Random(seed)
    words = {fact: [word for word in values if " " not in word] for fact, (_, values) in FACTS.items()}
    facts = [fact for fact in FACTS if len(words[fact]) >= TOLD]
    found = []
    for _ in range(count):
        said = [
            (fact, person, rng.choice(words[fact]))
            for fact, person in zip(rng.sample(facts, TOLD), rng.sample(PEOPLE, TOLD), strict=True)
        ]
        told = [fact.format(person, word) for fact, person, word in said]
        asked = [f"{FACTS[fact][0].format(person)} {word} ." for fact, person, word in rng.sample(said, TOLD)]
        found.append(" ".join(told + asked))
    return found


class Tour:
    """The run of the tour in the studio's folder of runs. One that is there is used again."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.text, self.recipe = (studio.state / "tour" / name for name in ("stories.txt", "tour.toml"))
        self.job: Job | None = None
        self._runs: dict[Path, Run] = {}
        self._lock = threading.Lock()
        some = make_stories(WORDS)
        words = sorted({word for story in some for word in story.split()})
        self.told = {"sentence": SENTENCE, "example": some[0], "words": words}

    def start(self) -> None:
        """Train, unless a model of the tour is there or under way."""
        with self._lock:
            if self.state()["status"] in ("finished", "running"):
                return
            self.text.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.text.write_text("\n".join(make_stories(STORIES)) + "\n", encoding="utf-8")
            self.recipe.write_text(RECIPE.format(path=self.text.resolve().as_posix(), steps=STEPS), encoding="utf-8")
            out = self.studio.runs.resolve()
            self.job = self.studio.jobs.start(["train", str(self.recipe), f"out={out}", "--quiet"])

    def state(self) -> dict[str, Any]:
        """Where the training stands, with its curve of losses."""
        found: dict[str, Any] = {"status": "none", "run": None, "total": STEPS, "error": "", **self.told}
        run, going = self._run(), self.job is not None and self.job.code is None
        if self.job is not None and self.job.code and run is None:
            return found | {"status": "failed", "error": self.job.error() or "the training stopped"}
        if run is None:
            return found | ({"status": "running"} if going else {})
        steps = run.record.steps
        status = run.status if run.status == "running" or has_model(run.folder) else "none"
        return found | {
            "status": "running" if going else status,
            "run": run.name,
            "steps": [int(step) for step in steps["step"]],
            "losses": [round(float(loss), 4) for loss in steps["loss"]],
            "valid": [[event.get("step"), event.get("valid")] for event in run.record.evals],
        }

    def _run(self) -> Run | None:
        """The newest run of the tour's recipe."""
        for folder in reversed(run_folders(self.studio.runs)):
            if not NAME.fullmatch(folder.name):
                continue
            run = self._runs.setdefault(folder, Run(folder))
            if run.recipe.get("data", {}).get("train") == self.text.resolve().as_posix():
                return run
        return None
