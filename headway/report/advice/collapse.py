"""Rule about a collapse of self-distillation: the teacher's outputs no longer tell images apart."""

from __future__ import annotations

from headway.report.advice.evidence import Evidence
from headway.report.advice.suggestion import Changes, Suggestion, train_command
from headway.report.format import number
from headway.runs.events import as_float

COLLAPSED = 0.01
"""The outputs say less than this share of what they could say about an image."""
EVEN = 0.5
"""From this share of the largest entropy on, the mean output is spread out; below it, few outputs take all."""
SHARP, CENTRED = 0.04, 0.9
"""A teacher's temperature and a centre's momentum that usually keep the balance (Caron et al. 2021)."""


def collapsed(e: Evidence) -> Suggestion | None:
    """All images get the same outputs: one of them takes all, or all are the same."""
    told, entropy = (as_float((e.run.facts.last_eval or {}).get(name)) for name in ("information", "entropy"))
    if told is None or entropy is None or told >= COLLAPSED:
        return None
    uniform = entropy >= EVEN
    to = "the same value for every output" if uniform else "one output for all images"
    advice, changes = (_sharpen if uniform else _centre)(e)
    return Suggestion(
        advice=advice,
        reason=f"The outputs have collapsed to {to}: information {number(told)} and entropy {number(entropy)}, both as "
        "shares of the largest possible.",
        command=train_command(e.run, changes),
        verdict=f"its outputs have collapsed to {to}",
    )


def _sharpen(e: Evidence) -> tuple[str, Changes]:
    first, last = (f"{e.run.task}.{name}_temperature" for name in ("first", "teacher"))
    changes = {key: SHARP for key in (first, last) if (as_float(e.run.setting(key)) or 0.0) > SHARP}
    if changes:
        return "Sharpen the teacher: lower its temperature.", changes
    return "Train more slowly: halve the learning rate.", {"train.lr": (e.rate or 1e-3) / 2}


def _centre(e: Evidence) -> tuple[str, Changes]:
    key = f"{e.run.task}.centre_momentum"
    if (as_float(e.run.setting(key)) or 0.0) > CENTRED:
        return "Let the centre follow the teacher's outputs faster: lower its momentum.", {key: CENTRED}
    warmer = f"{e.run.task}.teacher_temperature"
    return "Sharpen the teacher less: raise its temperature.", {warmer: 2 * (as_float(e.run.setting(warmer)) or SHARP)}
