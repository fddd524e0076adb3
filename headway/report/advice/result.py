"""Rules about the result: a run that learned nothing, or is no better than guessing."""

from __future__ import annotations

from headway.report.advice.budget import longer
from headway.report.advice.evidence import Evidence
from headway.report.advice.rate import rate_remedy
from headway.report.advice.suggestion import Changes, Suggestion, data_command, train_command
from headway.report.advice.warmup import long_warmup
from headway.report.format import brief, metric_title, number
from headway.runs.events import as_float

LEARNED = 0.95
"""A training loss below this share of its start, and of the loss of guessing, has learned something."""
MOSTLY = 0.7
"""From this share on, less what few validation examples may add, always predicting the most common label pays."""


def one_class(e: Evidence) -> Suggestion | None:
    """Every example gets the most common label, because that label is so common."""
    common, weights = e.chance.get("accuracy", 0.0), f"{e.run.task}.class_weights"
    if not _constant(e) or common - e.noise(common) < MOSTLY or e.run.setting(weights) != "none":
        return None
    return Suggestion(
        advice="Give rare labels more weight in the loss.",
        reason=f"The model predicts the most common label for every example: accuracy {number(common)} is the share "
        "of that label.",
        command=train_command(e.run, {weights: "balanced"}),
        verdict="it predicts the same label for every example",
    )


def nothing_learned(e: Evidence) -> Suggestion | None:
    """The loss did not fall, or the score is that of guessing and the training loss too."""
    if e.guessing is None:
        learned = e.last_loss is None or e.first_loss is None or e.last_loss < 0.98 * e.first_loss
    else:
        learned = not e.guessing or _training_learned(e)
    if learned:
        return None
    advice, changes = _remedy(e)
    same = " It predicts the same for every example." if _constant(e) else ""
    return Suggestion(
        advice=advice,
        reason=f"{_beside_chance(e)}{same}",
        command=train_command(e.run, changes),
        verdict="it learned nothing",
    )


def at_chance(e: Evidence) -> Suggestion | None:
    """The training loss fell, but what was learned does not help with other examples."""
    if not e.guessing:
        return None
    look = data_command(e.run)
    return Suggestion(
        advice="Look at the data: does what is to be predicted follow from the inputs, and do the validation data look "
        "like the training data?",
        reason=f"{_beside_chance(e)} The training loss fell to {number(e.last_loss)}, so the model learned the "
        "training examples by heart.",
        command=look or train_command(e.run, longer(e)),
        verdict="it is no better than guessing",
    )


def _training_learned(e: Evidence) -> bool:
    if e.last_loss is None or e.first_loss is None:
        return False
    return e.last_loss < LEARNED * min(e.first_loss, e.chance.get("valid", e.first_loss))


def _constant(e: Evidence) -> bool:
    """Whether the saved weights score exactly what one prediction for all scores."""
    shared = [(e.chance[name], as_float(e.kept_eval.get(name))) for name in e.chance if name != "valid"]
    return len(shared) > 1 and all(value is not None and abs(value - guess) < 1e-9 for guess, value in shared)


def _beside_chance(e: Evidence) -> str:
    guess, value, title = e.chance.get(e.metric), e.best(e.metric), metric_title(e.metric)
    if guess is None or value is None:
        return f"The training loss was {number(e.first_loss)} at the start and {number(e.last_loss)} at the end."
    return f"The best {title} is {number(value)}; {e.guesser} has {number(guess)}."


def _remedy(e: Evidence) -> tuple[str, Changes]:
    """The likeliest reason why a run learns nothing, and the settings against it."""
    if long_warmup(e):
        return "Train longer: most of the run was warm-up.", longer(e, 4)
    if (found := rate_remedy(e)) is not None:
        return found
    seen = "" if e.epochs is None else f" (so far {brief(e.epochs)} epochs)"
    return f"Train longer{seen}.", longer(e, 4)
