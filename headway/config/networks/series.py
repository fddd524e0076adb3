"""The config of models of series: numbers over time in, the numbers that follow out. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from headway.config.model import MAX_LENGTH, MAX_WIDTH, SpecialTokens, StackConfig
from headway.config.networks.without import WithoutHeads
from headway.config.ranges import conflict, in_range
from headway.errors import ConfigError

Cell = Literal["", "elman", "gru", "lstm"]


@dataclass(frozen=True, kw_only=True)
class SeriesConfig(WithoutHeads):
    """A stack over patches of time. An encoder reads all of them and maps them to the whole horizon (PatchTST: Nie et
    al. 2023); a causal one predicts the next patch after each, and goes on from its own predictions."""

    stack: StackConfig
    look_back: int
    """Time steps that the model reads."""
    horizon: int
    """Time steps that it predicts at once."""
    patch: int = 16
    """Time steps of a token."""
    stride: int = 8
    """Time steps from one patch to the next; a causal model has patches without overlap."""
    channels: int = 0
    """Channels of a token; 0: each channel is a sequence of its own, and all share the weights."""
    positions: Literal["learned", "none"] = "learned"
    quantiles: tuple[float, ...] = ()
    """What is predicted instead of the mean; 0.5 is among them."""
    instance_norm: bool = True
    """Each window has mean 0 and variance 1, and predictions get mean and variance back (Kim et al. 2022)."""
    affine: int = 0
    """Channels that have a learned scale and shift after that; 0: none has."""
    change: float = 0.0
    """A causal model predicts the change from the last value, in this unit; 0: the value itself."""
    cell: Cell = ""
    """A recurrent network in place of the blocks, to compare with."""
    dropout: float = 0.0
    """Of the embedded patches."""
    special: SpecialTokens = field(default_factory=SpecialTokens)

    def __post_init__(self) -> None:
        in_range(self, look_back=(1, MAX_LENGTH), horizon=(1, MAX_LENGTH), patch=(1, MAX_WIDTH), stride=(1, self.patch))
        in_range(self, channels=(0, MAX_WIDTH), affine=(0, MAX_WIDTH), dropout=(0.0, 1.0), change=(0.0, 1e6))
        patch = f"patch = {self.patch}"
        if self.patch > self.look_back:
            raise conflict(patch, f"look_back = {self.look_back}", "a patch is part of what is read")
        if self.quantiles and (list(self.quantiles) != sorted({*self.quantiles}) or 0.5 not in self.quantiles):
            raise ConfigError("C003", f"quantiles = {list(self.quantiles)} should rise, and 0.5 should be among them")
        if not all(0 < share < 1 for share in self.quantiles):
            raise ConfigError("C003", f"quantiles = {list(self.quantiles)} should be between 0 and 1")
        if self.stack.causal:
            for name in ("look_back", "horizon"):
                if getattr(self, name) % self.patch:
                    raise conflict(patch, f"{name} = {getattr(self, name)}", "a causal model reads and writes patches")
            if self.stride != self.patch:
                raise conflict(patch, f"stride = {self.stride}", "a causal model has patches without overlap")
        elif self.cell or self.change:
            what = f"cell = {self.cell}" if self.cell else "change"
            raise conflict(what, "causal = false", "it is for models that go on step by step")

    @property
    def kind(self) -> Literal["encoder", "decoder"]:
        return "decoder" if self.stack.causal else "encoder"

    @property
    def network(self) -> str:
        """The recurrent network, if it is one."""
        return self.cell

    @property
    def read(self) -> int:
        """Tokens of the look-back. An encoder's last patch holds the last values and repeats the last one, so that the
        newest values are in as many patches as others."""
        if self.stack.causal:
            return self.look_back // self.patch
        return (self.look_back - self.patch) // self.stride + 2

    @property
    def max_length(self) -> int:
        """Tokens of the longest sequence: a causal model also reads its own predictions."""
        return self.read + (self.horizon // self.patch - 1 if self.stack.causal else 0)

    @property
    def fitted(self) -> int:
        """Time steps of a window that training predicts: without instance norm a causal model learns from all."""
        return (
            self.horizon if self.instance_norm or not self.stack.causal else self.look_back + self.horizon - self.patch
        )

    @property
    def encoder(self) -> StackConfig | None:
        return None if self.stack.causal else self.stack

    @property
    def decoder(self) -> StackConfig | None:
        return self.stack if self.stack.causal else None

    @property
    def output_stack(self) -> StackConfig:
        return self.stack

    source: ClassVar[None] = None
    target: ClassVar[None] = None
    output_front: ClassVar[None] = None
    shared_embedding: ClassVar[bool] = False
    lm: ClassVar[None] = None
    family: ClassVar[str] = "headway"
