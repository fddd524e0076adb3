"""The numbers that rules look at: the curves of a run, its best score, and what guessing would score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headway.config.recipe import TrainConfig
from headway.runs.events import Event, Series, as_count, as_float, smooth
from headway.runs.history import History
from headway.tasks.registry import known_task
from headway.train.optim.schedule import peak_lr

BLOCKS = 10
"""Parts of equal length into which a curve is divided: each mean is of enough steps to be steady."""
NO_BETTER = 0.97
"""A loss or error above this share of that of guessing counts as guessing: any order in the data lowers it by more."""
PERFECT = {True: 1.0, False: 0.0}
"""The best that a share of right answers, and an error, can be: nothing is better than guessing then."""
FINE_TUNING_RATE, ADAPTER_RATE = 1e-4, 5e-4
"""The usual peak rates for a pretrained model, and for LoRA adapters: those of the recipes for them."""


@dataclass(frozen=True)
class Evidence:
    """A run, as the rules see it. None where the log does not tell."""

    run: History

    # --- the training loss

    @cached_property
    def losses(self) -> Series:
        found = self.run.steps["loss"]
        return found[np.isfinite(found)]

    @cached_property
    def first_loss(self) -> float | None:
        """The loss before anything was learned."""
        return float(np.median(self.losses[: max(1, min(5, len(self.losses) // 20))])) if len(self.losses) else None

    @cached_property
    def blocks(self) -> Series:
        """The mean loss of each tenth of the run; empty for a run whose curve is too short, or tells nothing."""
        if len(self.losses) < 2 * BLOCKS or not loss_tells(self.run):
            return np.array([])
        return np.array([part.mean() for part in np.array_split(self.losses, BLOCKS)])

    @cached_property
    def last_loss(self) -> float | None:
        return float(self.blocks[-1]) if len(self.blocks) else None

    @cached_property
    def block_noise(self) -> float:
        """The standard error of a block's mean."""
        rough = self.losses - smooth(self.losses, max(3, len(self.losses) // 20))
        return float(rough.std() / math.sqrt(max(1, len(self.losses) / BLOCKS)))

    # --- the result

    @cached_property
    def chance(self) -> dict[str, float]:
        """Metrics of a model that ignores its input, as the task recorded them."""
        found = self.run.last_event("data").get("chance")
        pairs = found.items() if isinstance(found, dict) else ()
        return {str(name): value for name, each in pairs if (value := as_float(each)) is not None}

    @property
    def guesser(self) -> str:
        """Whose metrics `chance` has."""
        return guesser(self.run)

    @property
    def metric(self) -> str:
        return self.run.facts.primary_metric

    @property
    def higher_is_better(self) -> bool:
        return self.run.facts.higher_is_better

    @cached_property
    def keeps_best(self) -> bool:
        return bool(self.run.setting("train.keep_best") or self.run.setting("train.patience"))

    @property
    def kept_eval(self) -> Event:
        """The evaluation of the weights that the run saved."""
        return (self.run.facts.best_eval if self.keeps_best else self.run.facts.last_eval) or {}

    def best(self, metric: str) -> float | None:
        """A metric at the best evaluation."""
        return as_float((self.run.facts.best_eval or {}).get(metric))

    def noise(self, value: float) -> float:
        """The least difference of a metric that means something: two standard errors of a share, at least 0.01.

        A metric above 1, such as BLEU, is in percent.
        """
        count = as_float(self.run.last_event("data").get("valid_samples")) or 100.0
        scale = 100.0 if value > 1 else 1.0
        share = min(max(value / scale, 0.1), 0.99)
        return scale * max(0.01, 2 * math.sqrt(share * (1 - share) / count))

    @cached_property
    def guessing(self) -> bool | None:
        """Whether even the best evaluation is what a model scores that ignores its input; None if that is unknown."""
        guess, value = self.chance.get(self.metric), self.best(self.metric)
        if guess is None or value is None or value == guess == PERFECT[self.higher_is_better]:
            return None
        if self.metric == "valid":
            return value >= NO_BETTER * guess
        loss, guessed_loss = self.best("valid"), self.chance.get("valid")
        if loss is not None and guessed_loss is not None and loss < 0.9 * guessed_loss:
            return False  # it tells examples apart, although that does not show in the metric yet
        return value <= guess + self.noise(guess) if self.higher_is_better else value >= NO_BETTER * guess

    # --- settings and budget

    @cached_property
    def steps(self) -> int:
        return self.run.facts.steps

    @cached_property
    def pretrained(self) -> bool:
        return bool(self.run.setting("model.from"))

    @cached_property
    def rate(self) -> float | None:
        """The peak learning rate that the run used, or would have reached."""
        if (given := as_float(self.run.setting("train.lr"))) is not None:
            return given
        seen = self.run.steps["lr"][np.isfinite(self.run.steps["lr"])]
        return float(seen.max()) if len(seen) else None

    @cached_property
    def usual_rate(self) -> float | None:
        """The rate that such a model usually trains well with; None for SGD, whose rates are of another kind."""
        if self.run.setting("train.optimizer") == "sgd":
            return None
        if self.pretrained:
            return ADAPTER_RATE if self.run.setting("model.lora") else FINE_TUNING_RATE
        depth, width = (as_count(self.run.setting(f"model.{name}")) for name in ("depth", "width"))
        return peak_lr(TrainConfig(steps=1), width or 64 * (depth or 4))

    @cached_property
    def epochs(self) -> float | None:
        """How often the run has seen its data."""
        there = as_float(self.run.last_event("data").get("tokens"))
        return self.run.facts.tokens / there if there and self.run.facts.tokens is not None else None

    @cached_property
    def stopped_early(self) -> bool:
        """Whether `train.patience` ended the run."""
        return bool(self.run.last_event("kept").get("early"))

    @cached_property
    def jumps(self) -> list[Event]:
        """Spikes that matter: the loss rose by a tenth of what it was at the start. Near zero, any batch is a spike."""
        first = abs(self.first_loss or 0.0)
        pairs = [(e, as_float(e.get("loss")), as_float(e.get("usual"))) for e in self.run.events_of("spike")]
        return [e for e, loss, usual in pairs if loss is None or usual is None or loss - usual > 0.1 * first]


def guesser(run: History) -> str:
    """Whose metrics the task recorded as those of chance."""
    return str(run.last_event("data").get("guesser") or "a model that ignores its input")


def loss_tells(run: History) -> bool:
    """Whether a lower loss is a better model."""
    task = known_task(run.task)
    return task is None or task.loss_tells


def clipped_share(run: History, after: int) -> float | None:
    """Share of the steps later than `after` whose gradient norm exceeded `train.clip`."""
    limit, norms = as_float(run.setting("train.clip")), run.steps["grad_norm"]
    norms = norms[(run.steps["step"] > after) & np.isfinite(norms)]
    return float(np.mean(norms > limit)) if limit and len(norms) else None


def throughput(run: History) -> Series:
    """Tokens per second of each step; NaN if the clock did not advance."""
    tokens, seconds = run.steps["tokens"], run.steps["seconds"]
    more, time = np.diff(tokens, prepend=0.0), np.diff(seconds, prepend=0.0)
    return np.divide(more, time, out=np.full_like(tokens, np.nan), where=time > 0)


def validation_losses(run: History) -> list[tuple[int, float]]:
    """(step, validation loss) of each evaluation that has both; none where the loss does not tell a good model."""
    evals = run.evals if loss_tells(run) else []
    pairs = ((as_count(e.get("step")), as_float(e.get("valid"))) for e in evals)
    return sorted((step, loss) for step, loss in pairs if step is not None and loss is not None)


def late_improvement(run: History) -> float | None:
    """The relative fall of the validation loss over the last quarter of the steps; None if unknown."""
    losses = validation_losses(run)
    if len(losses) < 3:
        return None
    before, last = _before_last_quarter(losses), losses[-1][1]
    return (before - last) / abs(before) if before else None


def late_share(evidence: Evidence) -> float | None:
    """The part of the whole fall of the validation loss that came in the last quarter; 0.25 is a straight line."""
    losses, first = validation_losses(evidence.run), evidence.first_loss
    if len(losses) < 3 or first is None or (fall := first - losses[-1][1]) <= 0:
        return None
    return (_before_last_quarter(losses) - losses[-1][1]) / fall


def _before_last_quarter(losses: list[tuple[int, float]]) -> float:
    end = losses[-1][0]
    return ([loss for step, loss in losses[:-1] if step <= 0.75 * end] or [losses[0][1]])[-1]


def uniform_loss(run: History) -> float | None:
    """The loss of a uniform distribution over the vocabulary; None if the task does not predict tokens."""
    vocab = as_float(run.last_event("data").get("vocab"))
    task = known_task(run.task)
    predicts = task is not None and task.predicts_tokens
    return math.log(vocab) if vocab and vocab > 1 and predicts else None
