"""Word vectors beside gensim: words a second, and analogies after equal training. pip install gensim

python benchmarks/word2vec.py CORPUS… [--questions questions-words.txt] [--model cbow] [--threads 2] [--device cuda]

Words are runs of a to z in lower case, in lists of 1000 for gensim and in spans of 1000 for headway; neither splits
text nor counts words in the timing. Each round is an epoch of both, in turn. Then both train anew, with the same rates.
gensim stays on the CPU with --device cuda; --peer none leaves it out.
"""

from __future__ import annotations

import argparse
import gzip
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import alternate, emit, machine, ratio

from headway.config.networks.words import WordsConfig, WordVectorsConfig
from headway.data.batching.permutation import shuffle_samples
from headway.data.files.rows import BadRows
from headway.joint.words import WordVectors
from headway.tasks.word2vec.analogies import answer, read_questions
from headway.tasks.word2vec.draws import make_sampling
from headway.tasks.word2vec.ngrams import all_rows
from headway.tasks.word2vec.search import word_vectors
from headway.tasks.word2vec.task import Settings
from headway.tasks.word2vec.update import Stepper

LENGTH, LAST_RATE = 1000, 1e-4


def read_words(paths: list[Path]) -> list[str]:
    raw = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in paths)
    return re.findall("[a-z]+", b"\n".join(raw).decode().lower())


class Headway:
    """headway's word vectors, without files around them."""

    def __init__(self, words: list[str], settings: Settings, args: argparse.Namespace) -> None:
        counts = Counter(words)
        self.words = sorted((w for w, n in counts.items() if n >= settings.min_count), key=lambda w: (-counts[w], w))
        index = {word: number for number, word in enumerate(self.words)}
        ids = np.array([index[word] for word in words if word in index], np.int32)
        self.spans = np.full((-(-len(ids) // LENGTH), LENGTH), -1, np.int32)
        self.spans.reshape(-1)[: len(ids)] = ids
        config = WordVectorsConfig(source=WordsConfig(vocab=len(self.words)), width=args.width)
        device, self.batch, self.rate = torch.device(args.device), args.batch, args.rate
        torch.manual_seed(0)
        self.model = WordVectors(config).to(device)
        sampling = make_sampling(np.array([counts[word] for word in self.words]), settings, 1)
        self.stepper = Stepper(sampling, all_rows(self.words, config), args.threads, device)

    def train(self, epochs: int) -> float:
        """The mean loss of the last epoch."""
        total, device = epochs * len(self.spans), self.stepper.device
        losses, pairs = 0.0, 0
        for begin in range(0, total, self.batch):
            samples = np.arange(begin, min(total, begin + self.batch))
            spans = torch.from_numpy(self.spans[shuffle_samples(samples, len(self.spans), 1)]).to(device)
            lr = self.rate + (LAST_RATE - self.rate) * begin / total
            loss, count = self.stepper.learn(self.model, spans, torch.from_numpy(samples * LENGTH).to(device), lr)
            if begin >= total - len(self.spans):
                losses, pairs = losses + loss, pairs + count
        return losses / max(1, pairs)


def gensim_model(words: list[str], settings: Settings, args: argparse.Namespace) -> tuple[Any, Callable[[int], Any]]:
    from gensim.models import Word2Vec

    lists = [words[begin : begin + LENGTH] for begin in range(0, len(words), LENGTH)]
    model = Word2Vec(
        vector_size=args.width,
        window=settings.window,
        negative=settings.negatives,
        min_count=settings.min_count,
        sample=settings.subsample,
        sg=int(settings.model == "skipgram"),
        workers=args.threads,
        alpha=args.rate,
        min_alpha=LAST_RATE,
        seed=0,
    )
    model.build_vocab(lists)
    return model, lambda epochs: model.train(lists, total_examples=len(lists), epochs=epochs)


def accuracy(words: list[str], vectors: np.ndarray, source: str) -> dict[str, Any]:
    questions = read_questions(source, BadRows())
    found = answer(torch.nn.functional.normalize(torch.from_numpy(vectors), dim=1), words, questions)
    return {"accuracy": found.accuracy, "asked": len(found.asked), "questions": len(questions)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="+")
    parser.add_argument("--questions", default="")
    parser.add_argument("--model", choices=["skipgram", "cbow"], default="skipgram")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--peer", choices=["gensim", "none"], default="gensim")
    for name, value in {"epochs": 5, "threads": 2, "rounds": 3, "width": 100, "window": 5, "negatives": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--batch", type=int, default=256, help="spans of a step")
    parser.add_argument("--subsample", type=float, default=1e-3)
    parser.add_argument("--rate", type=float, default=0.025)
    parser.add_argument("--words", type=int, default=0, help="of the corpus; 0: all")
    args = parser.parse_args()
    words = read_words(args.corpus)[: args.words or None]
    settings = Settings(
        model=args.model, window=args.window, negatives=args.negatives, subsample=args.subsample, min_count=5
    )
    ours = Headway(words, settings, args)
    emit(**machine(), words=len(words), vocabulary=len(ours.words), model=args.model, device=args.device)
    variants: dict[str, Callable[[], Any]] = {"headway": lambda: ours.train(1)}
    if args.peer == "gensim":
        theirs, train = gensim_model(words, settings, args)
        variants["gensim"] = lambda: train(1)
    if args.rounds:
        for clock in (None, time.process_time):  # other programs take time of the wall, and none of this process
            times = alternate(variants, args.rounds, clock=clock)
            speed = {name: len(words) / float(np.median(taken)) for name, taken in times.items()}
            relation = {"ratio": ratio(times, "headway", "gensim")} if "gensim" in times else {}
            emit(words_per_second=speed, clock="wall" if clock is None else "CPU time of all threads", **relation)
    if not args.questions:
        return
    ours = Headway(words, settings, args)
    loss = ours.train(args.epochs)
    found = word_vectors(ours.model, ours.words).vectors.numpy()
    emit(headway=accuracy(ours.words, found, args.questions), loss=loss, epochs=args.epochs)
    if args.peer == "gensim":
        theirs, train = gensim_model(words, settings, args)
        train(args.epochs)
        emit(gensim=accuracy(theirs.wv.index_to_key, theirs.wv.vectors, args.questions), epochs=args.epochs)


if __name__ == "__main__":
    main()
