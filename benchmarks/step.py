"""Training step on a GPU (forward, backward, clipping, fused AdamW; bf16), headway against transformers and others.

python benchmarks/step.py [--only gpt2,gpt2x2,bert,bertall,vit,dit] [--rounds 5] [--repeats 10]
python benchmarks/step.py --only vit --variants "transformers eager,transformers compiled,timm eager,timm compiled,…"
python benchmarks/step.py --only dit --variants "plain eager,plain compiled,headway eager,headway recorded"

Both sides see the same work: the same shapes, no dropout, no padding, and for BERT 15 % of the tokens masked.
"compiled" is torch.compile; "recorded", headway's default, replays the compiled step as CUDA graphs.
headway sends only the masked positions through the output layer, as its mlm task does; "bertall" sends all.
"plain" is a diffusion transformer written by hand (plain_dit.py); its step includes the noise, as headway's does.
Ratios are to the compiled step of the first other side.
MFU: 6 · weights + 12 · layers · width · length operations a token, against 989 TFLOP/s.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
import transformers
from common import alternate, clean, emit, machine, ratio
from plain_dit import PlainDiT, plain_loss
from torch import Tensor

from headway.config.model import ModelConfig
from headway.config.presets import preset
from headway.config.recipe import ShapeConfig, TrainConfig
from headway.config.shape import diffusion_config
from headway.front.tokens import TokenEmbedding
from headway.model.model import Transformer
from headway.tasks.batch import Batch
from headway.tasks.diffusion.judge import centred
from headway.tasks.diffusion.process import Process
from headway.tasks.diffusion.training import image_losses
from headway.tasks.losses.tokens import token_loss
from headway.tasks.masked_lm.training import MaskedLMTraining
from headway.train.compute import Compute
from headway.train.distributed import World
from headway.train.optim.optimizer import make_optimizer

PEAK = 989e12
Step = Callable[[], Any]


def without_dropout(model: Transformer) -> Transformer:
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
        if isinstance(module, TokenEmbedding):
            module.config = replace(module.config, dropout=0.0)
    return model


class Work:
    """One task at one size, for both sides."""

    name: str
    preset: str
    tokens: int
    length: int

    def __init__(self) -> None:
        torch.manual_seed(0)

    batch: tuple[Tensor, ...]
    """What headway's loss is computed of."""
    predictions: int
    """How many of them."""

    def ours(self, model: Transformer, *batch: Tensor) -> Tensor:
        """Sum of the losses."""
        raise NotImplementedError

    def theirs(self, side: str) -> tuple[torch.nn.Module, Callable[[Any], Tensor]]:
        """A model of another library, and the mean loss of a (compiled) model."""
        raise NotImplementedError

    def config(self) -> ModelConfig:
        return preset(self.preset)


class Gpt2(Work):
    name, preset, length, rows = "gpt2 32x1024", "gpt2", 1024, 32

    def __init__(self) -> None:
        super().__init__()
        self.tokens = self.rows * 1024
        self.ids = torch.randint(0, 50257, (self.rows, 1024), device="cuda")
        self.batch, self.predictions = (self.ids, self.ids.roll(-1, 1)), self.tokens

    def ours(self, model: Transformer, *batch: Tensor) -> Tensor:
        ids, following = batch
        return token_loss(model.lm, model(ids).hidden, following)[0]

    def theirs(self, side: str) -> tuple[torch.nn.Module, Callable[[Any], Tensor]]:
        config = transformers.GPT2Config(
            attn_implementation="sdpa", resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False
        )
        return transformers.GPT2LMHeadModel(config), own_loss(input_ids=self.ids, labels=self.ids)


class Gpt2Large(Gpt2):
    """The same model, twice the batch."""

    name, rows = "gpt2 64x1024", 64


class Bert(Work):
    """15 % of the tokens of each row are to be predicted, by the loss of headway's own task."""

    name, preset, length = "bert-base mlm 64x512", "bert-base", 512
    tokens = 64 * 512

    def __init__(self) -> None:
        super().__init__()
        self.ids = torch.randint(0, 30522, (64, 512), device="cuda")
        places = torch.rand(64, 512, device="cuda").topk(round(0.15 * 512)).indices.sort().values
        answers = self.ids.gather(1, places)
        self.labels = torch.full_like(self.ids, -100).scatter(1, places, answers)
        self.batch, self.predictions = (self.ids, places, answers), places.numel()

    def ours(self, model: Transformer, *batch: Tensor) -> Tensor:
        ids, places, answers = batch
        return MaskedLMTraining.loss(model, ids, None, None, places, answers, None)

    def config(self) -> ModelConfig:
        return replace(preset(self.preset), nsp=None)

    def theirs(self, side: str) -> tuple[torch.nn.Module, Callable[[Any], Tensor]]:
        config = transformers.BertConfig(
            attn_implementation="sdpa", hidden_dropout_prob=0, attention_probs_dropout_prob=0
        )
        return transformers.BertForMaskedLM(config), own_loss(input_ids=self.ids, labels=self.labels)


class BertAll(Bert):
    """The same predictions, but all positions go through the output layer, as in transformers."""

    name = "bert-base mlm 64x512, all positions"

    def __init__(self) -> None:
        super().__init__()
        self.batch = (self.ids, self.labels)

    def ours(self, model: Transformer, *batch: Tensor) -> Tensor:
        ids, labels = batch
        return token_loss(model.lm, model(ids).hidden, labels)[0]


class Vit(Work):
    name, preset, length = "vit-b16 128 images", "vit-b16", 197
    tokens = 128 * 197

    def __init__(self) -> None:
        super().__init__()
        self.images = torch.randn(128, 3, 224, 224, device="cuda")
        self.labels = torch.randint(0, 1000, (128,), device="cuda")
        self.batch, self.predictions = (self.images, self.labels), 128

    def ours(self, model: Transformer, *batch: Tensor) -> Tensor:
        images, labels = batch
        return F.cross_entropy(model.classify(model(images).hidden).float(), labels, reduction="sum")

    def theirs(self, side: str) -> tuple[torch.nn.Module, Callable[[Any], Tensor]]:
        if side == "timm":
            import timm

            made = timm.create_model("vit_base_patch16_224", num_classes=1000)
            return made, lambda model: F.cross_entropy(model(self.images), self.labels)
        config = transformers.ViTConfig(num_labels=1000, attn_implementation="sdpa")
        made = transformers.ViTForImageClassification(config)
        return made, own_loss(pixel_values=self.images, labels=self.labels)


class Dit(Work):
    """Images of four channels and 32 × 32 values, as DiT's are: 64 tokens each."""

    name, preset, length, rows = "dit-b4 256 images", "", 64, 256
    tokens = 256 * 64

    def __init__(self) -> None:
        super().__init__()
        self.images = torch.randint(0, 256, (self.rows, 4, 32, 32), device="cuda", dtype=torch.uint8)
        self.times = torch.rand(self.rows, device="cuda") * 0.98 + 0.01
        self.classes = torch.randint(0, 1000, (self.rows,), device="cuda")
        keys = torch.randint(0, 1 << 62, (self.rows,), device="cuda")
        self.batch, self.predictions = (self.images, self.times, self.classes, keys), self.rows

    def config(self) -> ModelConfig:
        return diffusion_config(ShapeConfig(depth=12, width=768, heads=12, patch=4), 32, 4, 1000)

    def ours(self, model: Transformer, *batch: Tensor) -> Tensor:
        images, times, classes, keys = batch
        return image_losses(Process("v", "cosine"), centred(images, 32), times, keys, model, classes).sum()

    def theirs(self, side: str) -> tuple[torch.nn.Module, Callable[[Any], Tensor]]:
        made = PlainDiT(channels=4, side=32, patch=4, width=768, depth=12, heads=12, classes=1000)
        return made, lambda model: plain_loss(model, self.images, self.times, self.classes)


def own_loss(**batch: Tensor) -> Callable[[Any], Tensor]:
    """The loss that a model of transformers computes by itself."""
    return lambda model: model(**batch).loss


def training_step(model: torch.nn.Module, loss: Callable[[], Tensor]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def our_step(model: Transformer, work: Work, mode: str) -> Step:
    """A step as headway's own trainer takes it, with its look at the loss; "compiled" leaves the recording out."""
    config = TrainConfig(steps=1, lr=1e-4, compile=mode != "eager")
    world = World(0, 1, torch.device("cuda"))
    compute = Compute(model, work.ours, make_optimizer(model, config, 1), config, world)
    if mode == "compiled":
        compute.captures, compute._stream = False, None
    parts = [(Batch(work.batch, work.predictions), 1)]

    def step() -> None:
        compute.gradients(parts, work.predictions)
        compute.update()

    return step


def build(work: Work, variant: str) -> tuple[Step, int]:
    """A step of one variant, and the number of weights."""
    side, _, mode = variant.partition(" ")
    if side == "headway":
        model = without_dropout(Transformer(work.config()).cuda().train())
        return our_step(model, work, mode), model.parameter_count()
    model, loss = work.theirs(side)
    model = model.cuda().train()
    call = torch.compile(model) if mode == "compiled" else model
    return training_step(model, lambda: loss(call)), sum(p.numel() for p in model.parameters())


def measure(work: Work, args: argparse.Namespace) -> None:
    variants, counts, peaks = {}, {}, {}
    for variant in args.variants.split(","):
        clean()
        step, counts[variant] = build(work, variant)
        for _ in range(3):
            step()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        peaks[variant] = (torch.cuda.max_memory_allocated() - before + 16 * counts[variant]) / 2**30
        variants[variant] = step
    times = alternate(variants, args.rounds, warm=2, repeats=args.repeats)
    stack = work.config().output_stack
    against = next((name for name in times if name.endswith("compiled") and not name.startswith("headway")), "")
    for variant, seconds in times.items():
        flops = 6 * counts[variant] + 12 * stack.n_layers * stack.d_model * work.length
        rate = work.tokens / statistics.median(seconds)
        emit(
            name=work.name,
            variant=variant,
            tokens_s=rate,
            items_s=rate / work.length,
            mfu=flops * rate / PEAK,
            peak_gib=peaks[variant],
            ratio=ratio(times, variant, against) if against in times else None,
        )


WORKS = {"gpt2": Gpt2, "gpt2x2": Gpt2Large, "bert": Bert, "bertall": BertAll, "vit": Vit, "dit": Dit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="gpt2,bert,vit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--variants", default="transformers eager,transformers compiled,headway eager,headway recorded")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    transformers.utils.logging.set_verbosity_error()
    emit(**machine(), transformers=transformers.__version__)
    for name in args.only.split(","):
        measure(WORKS[name](), args)
        clean()


if __name__ == "__main__":
    main()
