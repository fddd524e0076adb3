"""The judge: a small convolutional classifier of the training images, whose features measure drawn images.

It is trained here, once for a run, and kept in the run's folder, so that a resumed run and `headway eval` use the same
one. Letters: B images, C channels, S side, D features, L labels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.images.augment import middle
from headway.hub.weights import writing
from headway.progress import track
from headway.resources import replacing
from headway.tasks.vision.data import Images, evaluation_batches

FILE = "judge.safetensors"
FEATURES = 64
WIDTHS = ((24, 1), (48, 2), (96, 2))
"""Channels and stride of each convolution."""
BATCH, EPOCHS, LEAST, MOST = 128, 5, 100, 3000
"""Images of a step, epochs, and the fewest and the most steps."""
RATE = 2e-3


class Judge(nn.Module):
    """Images from -1 to 1 to features and logits."""

    def __init__(self, channels: int, labels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width, stride in WIDTHS:
            layers += [nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        self.layers = nn.Sequential(*layers)
        self.features = nn.Linear(channels, FEATURES)
        self.output = nn.Linear(FEATURES, labels)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, S, S) to (B, D) and (B, L)."""
        features = self.features(self.layers(images).mean((2, 3)))
        return features, self.output(F.relu(features))


def make_judge(path: Path, images: Images, truth: Index, size: int, labels: int, device: torch.device) -> Judge:
    """The judge in the file, if it was trained on these images; else a new one, which is written there."""
    channels, key = images.store.pixels.shape[1], f"{images.store.digest} {size} {labels} {len(images)}"
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(0)
        judge = Judge(channels, labels).to(device)
        if not _read(path, judge, key):
            with torch.enable_grad(), torch.autocast(device.type, enabled=False):
                _train(judge, images, truth, size, device)
            with writing(path.parent, 1 << 20), replacing(path) as partial:
                save_file({name: part.cpu() for name, part in judge.state_dict().items()}, partial, {"key": key})
    return judge.eval().requires_grad_(False)


def _read(path: Path, judge: Judge, key: str) -> bool:
    try:
        with safe_open(path, "pt") as file:
            if (file.metadata() or {}).get("key") != key:
                return False
            judge.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (OSError, SafetensorError, RuntimeError):  # no file, a damaged one, or one of another version
        return False
    return True


def _train(judge: Judge, images: Images, truth: Index, size: int, device: torch.device) -> None:
    steps = min(MOST, max(LEAST, EPOCHS * len(images) // BATCH))
    optimizer = torch.optim.AdamW(judge.parameters(), lr=RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    classes = torch.from_numpy(truth)
    for step in track(range(steps), "training the classifier that measures", unit="steps"):
        rows = shuffle_samples(np.arange(step * BATCH, (step + 1) * BATCH), len(images), seed=0)
        _, logits = judge(centred(images.pixels(rows).to(device), size))
        loss = F.cross_entropy(logits, classes[rows].to(device), label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def centred(pixels: Tensor, size: int) -> Tensor:
    """Stored bytes as numbers from -1 to 1, cropped to the model's size."""
    return 2 * middle(pixels, size) - 1


@torch.no_grad()
def judged(judge: Judge, images: Images, size: int) -> tuple[Tensor, Tensor]:
    """Features (N, D) and classes (N,) of stored images."""
    device = next(judge.parameters()).device
    with torch.autocast(device.type, enabled=False):
        found = [judge(centred(images.pixels(rows).to(device), size)) for rows in evaluation_batches(len(images))]
    features, logits = (torch.cat(parts).cpu() for parts in zip(*found, strict=True))
    return features, logits.argmax(1)
