"""How much written texts have in common with references: BLEU, chrF and TER by sacreBLEU, ROUGE.

All of these add up statistics of single texts, so that resampling texts needs no text again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headway.errors import NotFoundError
from headway.tasks.metrics.bootstrap import Metric, Numbers
from headway.tasks.metrics.rouge import METRICS as ROUGE
from headway.tasks.metrics.rouge import SIGNATURE, rouge


def metrics(kind: str, texts: Sequence[str], references: Sequence[Sequence[str]]) -> list[Metric]:
    """All figures of a kind, bleu or rouge; the first is the one to compare by."""
    return _rouge(texts, references) if kind == "rouge" else _sacrebleu(texts, references)


def primary_metric(kind: str, texts: Sequence[str], references: Sequence[Sequence[str]]) -> Metric:
    """The figure that tells the better model, and no other."""
    if kind == "rouge":
        return next(each for each in _rouge(texts, references) if each.name == "rouge_l")
    return _by_sacrebleu("bleu", _metric("BLEU"), texts, references)


def signature(kind: str) -> str:
    """What was computed, in a line that others can compare by."""
    return SIGNATURE if kind == "rouge" else primary_metric("bleu", ["a"], [["a"]]).signature


def _rouge(texts: Sequence[str], references: Sequence[Sequence[str]]) -> list[Metric]:
    each = np.array([rouge(text, others) for text, others in zip(texts, references, strict=True)]).reshape(-1, 3)
    counted = np.concatenate([100 * each, np.ones((len(each), 1))], 1)
    return [
        Metric(name, counted[:, [place, 3]], lambda total: float(total[0] / total[1]), SIGNATURE)
        for place, name in enumerate(ROUGE)
    ]


def _sacrebleu(texts: Sequence[str], references: Sequence[Sequence[str]]) -> list[Metric]:
    """Cased, and in lower case as well, which older papers give."""
    made = {
        "bleu": _metric("BLEU"),
        "chrf": _metric("CHRF"),
        "ter": _metric("TER", case_sensitive=True),
        "bleu_lower": _metric("BLEU", lowercase=True),
        "chrf_lower": _metric("CHRF", lowercase=True),
        "ter_lower": _metric("TER", case_sensitive=False),
    }
    return [_by_sacrebleu(name, metric, texts, references) for name, metric in made.items()]


def _metric(name: str, **settings: Any) -> Any:
    try:
        from sacrebleu import metrics
    except ImportError:
        hint = "pip install 'headway[eval]', or train with seq2seq.eval_texts=0"
        raise NotFoundError("F003", "BLEU, chrF and TER need the package sacrebleu", hint) from None
    return getattr(metrics, name)(**settings)


def _by_sacrebleu(name: str, metric: Any, texts: Sequence[str], references: Sequence[Sequence[str]]) -> Metric:
    most = max((len(others) for others in references), default=1)
    streams = [[others[i] if i < len(others) else None for others in references] for i in range(most)]
    found = np.array(metric._extract_corpus_statistics(list(texts), streams), dtype=np.float64)

    def score(total: Numbers) -> float:
        return float(metric._compute_score_from_stats(total.tolist()).score)

    return Metric(name, found, score, str(metric.get_signature()))
