"""Labels for 1,000 sentences of mixed length on the CPU: headway beside a `transformers` loop, and the same answers.

    python benchmarks/classify_cpu.py                        # made-up sentences, a model of MiniLM's shape
    python benchmarks/classify_cpu.py --file reviews.tsv     # the first sentences of a file
    python benchmarks/classify_cpu.py --model ./classifier   # a classifier of yours

The loop is what people write: sentences in the order of the file, so many at a time, padded to the longest of them.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

import torch
import transformers
from common import alternate, emit, machine, ratio

import headway
from headway.config.model import ClassifyHeadConfig, ModelConfig, PositionConfig, StackConfig, TokensConfig
from headway.data.tokenizers.train import train_tokenizer
from headway.hub.folder import save_model
from headway.model.model import Transformer
from headway.tasks.classification.predict import classify

SYLLABLES = ("ba", "ke", "lo", "mi", "nu", "ra", "se", "ti", "vo", "zu", "pla", "tre")


def made_up(count: int) -> list[str]:
    """Lengths like those of reviews: most sentences are short, a few are long (log-normal, 3 to 200 words)."""
    dice = random.Random(0)
    words = ["".join(dice.choices(SYLLABLES, k=dice.randint(1, 3))) for _ in range(2000)]
    return [" ".join(dice.choices(words, k=min(200, max(3, int(dice.lognormvariate(2.9, 0.7)))))) for _ in range(count)]


def from_file(path: str, count: int) -> list[str]:
    from headway.config.recipe import DataConfig
    from headway.data.datasets.labeled import read_labeled
    from headway.data.files.rows import BadRows

    return [row.text for row in read_labeled(path, DataConfig(), BadRows("skip"))[:count]]


def small_encoder(folder: Path, texts: list[str]) -> Path:
    """6 layers, 384 wide, 12 heads, as MiniLM has; its weights are those of the seed."""
    tokenizer = train_tokenizer("wordpiece", texts, 4000)
    stack = StackConfig(
        d_model=384, n_layers=6, n_heads=12, d_ff=1536, norm_at="post", norm_eps=1e-12, final_norm=False
    )
    front = TokensConfig(
        vocab=tokenizer.vocab_size, positions=PositionConfig(length=512), segments=2, norm=True, norm_eps=1e-12
    )
    head = ClassifyHeadConfig(labels=3, pool="first", dense="tanh")
    config = ModelConfig(encoder=stack, source=front, classify=head, labels=("a", "b", "c"), family="bert")
    torch.manual_seed(0)
    return save_model(Transformer(config), folder / "model", tokenizer)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="")
    parser.add_argument("--file", default="")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    texts = from_file(given.file, given.count) if given.file else made_up(given.count)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(given.model) if given.model else small_encoder(Path(place), texts)
        ours = headway.load(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()

    @torch.no_grad()
    def loop() -> torch.Tensor:
        found = []
        for at in range(0, len(texts), given.batch):
            batch = tokenizer(
                texts[at : at + given.batch], padding=True, truncation=True, max_length=512, return_tensors="pt"
            )
            found.append(theirs(**batch).logits.softmax(-1))
        return torch.cat(found)

    def mine() -> torch.Tensor:
        rows = classify(ours.model, ours.require_tokenizer(), texts)
        return torch.tensor([list(row.probabilities.values()) for row in rows])

    gap = float((mine() - loop()).abs().max())
    times = alternate({"transformers": loop, "headway": mine}, given.rounds, warm=0)
    lengths = [len(e.ids) for e in ours.require_tokenizer().encode_batch(texts)]
    emit(
        sentences=len(texts),
        tokens=sum(lengths),
        longest=max(lengths),
        batch=given.batch,
        transformers_s=min(times["transformers"]),
        headway_s=min(times["headway"]),
        ratio=ratio(times, "headway", "transformers"),
        largest_difference=gap,
        transformers=transformers.__version__,
        **machine(),
    )
    if gap > 1e-4:
        raise SystemExit("the answers differ")


if __name__ == "__main__":
    main()
