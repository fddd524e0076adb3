"""What X-ray says of a model before it has run: its parts, its size, and an input to begin with."""

from __future__ import annotations

import shlex
from typing import Any

from headway.errors import HeadwayError
from headway.inspect.session import Session
from headway.tasks.registry import get_task

SENTENCE = "The cat sat on the mat because it was tired."
"""An input for a model that reads texts, where its task has none."""


def model_card(session: Session) -> dict[str, Any]:
    """The parts of a model, what it takes, and an example."""
    found = session.overview()
    loaded = session.loaded
    try:
        task = get_task(getattr(loaded, "task", ""))
    except HeadwayError:  # a model without a head, or of a task that is not installed
        return found | {"task": "", "title": "model", "takes": "text", "second": "", "example": {"input": SENTENCE}}
    return found | {
        "task": task.name,
        "title": task.title,
        "takes": task.takes,
        "second": task.second,
        "answers": session.readout is not None,
        "example": _example(session, task.tries.made_up),
    }


def _example(session: Session, words: str) -> dict[str, str]:
    """The first words to try with a model of made-up data; for any other model of texts, a sentence."""
    recipe = session.loaded.recipe
    given, found = shlex.split(words), dict[str, str]()
    if "--context" in given:
        at = given.index("--context")
        found["second"] = given[at + 1]
        given = given[:at] + given[at + 2 :]
    known = recipe is not None and not recipe.data.train
    if not given or given[0].startswith("-") or (not known and " " in given[0]):
        return {"input": SENTENCE, **({"second": ""} if found else {})}
    return {"input": given[0], **found}
