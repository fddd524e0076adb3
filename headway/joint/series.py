"""SeriesModel: a stack over patches of time, which predicts the values that follow.

Letters: B batch, T time steps, C channels, R sequences (B·C of a model of single channels, else B), K channels of a
token, N tokens, P patch, M width, H horizon, Q quantiles (1 for the mean).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.baselines.recurrent import CELLS, run_cells
from headway.config.networks.series import SeriesConfig
from headway.joint.encoding import EncodingModel
from headway.kernels.linear import Linear
from headway.model.attention import Backend, Hook, scoped
from headway.model.cache import KVCache
from headway.model.masks import Layout
from headway.model.model import Output
from headway.model.stack import Stack

EPSILON = 1e-5
"""Added to the variance of a window, which may be constant."""
Statistics = tuple[Tensor, Tensor]
"""Mean and standard deviation of windows, (B, 1, C)."""


class SeriesModel(EncodingModel):
    """A linear map of patches, positions, a stack, and a linear map to the values that follow."""

    gives = "a model of series continues numbers"

    def __init__(self, config: SeriesConfig) -> None:
        super().__init__()
        self.config: SeriesConfig = config
        stack, several = config.stack, max(1, config.channels)
        self.patches = Linear(several * config.patch, stack.d_model)
        self.positions = nn.Parameter(torch.empty(config.max_length, stack.d_model)) if self._learned else None
        if config.cell:
            dropout = stack.dropout if stack.n_layers > 1 else 0.0
            self.decoder: nn.Module = CELLS[config.cell](
                stack.d_model, stack.d_model, stack.n_layers, batch_first=True, dropout=dropout
            )
        elif stack.causal:
            self.decoder = Stack(stack)
        else:
            self.encoder = Stack(stack)
        fed = stack.d_model * (1 if stack.causal else config.read)
        written = config.patch if stack.causal else config.horizon
        self.output = Linear(fed, written * several * max(1, len(config.quantiles)))
        if config.affine:
            self.gain, self.shift = nn.Parameter(torch.ones(config.affine)), nn.Parameter(torch.zeros(config.affine))
        if self.positions is not None and not self.positions.is_meta:
            nn.init.uniform_(self.positions, -0.02, 0.02)  # as in PatchTST

    @property
    def _learned(self) -> bool:
        return self.config.positions == "learned"

    # --- the interface of all models

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        target_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        """Hidden states (R, N, M) of windows (B, T, C); a window has no padding."""
        sequences = self._sequences(self._normalised(inputs, self._statistics(inputs)))
        return Output(self._hidden(self._embedded(sequences), backend=backend, hook=hook), None)

    # --- predictions

    def forecast(self, windows: Tensor, steps: int | None = None, *, cached: bool = True) -> Tensor:
        """(B, steps, C, Q) after windows (B, T, C) of at least `look_back` values; quantiles in rising order.

        Beyond its horizon the model goes on from its own prediction: of quantiles, from the median.
        """
        config = self.config
        wanted = config.horizon if steps is None else steps
        found: list[Tensor] = []
        read = windows[:, -config.look_back :]
        while len(found) * config.horizon < wanted:
            found.append(self._forecast(read, cached))
            read = torch.cat([read, self.point(found[-1]).to(read.dtype)], 1)[:, -config.look_back :]
        return torch.cat(found, 1)[:, :wanted]

    def point(self, predicted: Tensor) -> Tensor:
        """The mean or the median (…, C) of predictions (…, C, Q)."""
        quantiles = self.config.quantiles
        return predicted[..., quantiles.index(0.5) if quantiles else 0]

    def fitted(self, windows: Tensor) -> Tensor:
        """(B, S, C, Q): predictions of the last S values of windows (B, look_back + horizon, C), for training.

        An encoder predicts the horizon. A causal model predicts each patch from the true values before it: with
        instance norm those of the horizon, as only the look-back tells mean and variance; else all but the first.
        """
        config = self.config
        read = windows[:, : config.look_back]
        statistics = self._statistics(read)
        if not config.stack.causal:
            found = self._written(self._hidden_of(read, statistics))
            return self._restored(self._by_channel(found, len(windows)), statistics)
        sequences = self._sequences(self._normalised(windows[:, : -config.patch], statistics))
        after = self._after(sequences, self._hidden(self._embedded(sequences)))
        if config.instance_norm:
            after = after[:, -config.horizon :]
        return self._restored(self._by_channel(after, len(windows)), statistics)

    def _forecast(self, read: Tensor, cached: bool) -> Tensor:
        """(B, H, C, Q)"""
        statistics = self._statistics(read)
        if not self.config.stack.causal:
            found = self._written(self._hidden_of(read, statistics))
        else:
            several = self.config.horizon > self.config.patch
            roll = self._rolled if cached and several and not self.config.cell else self._rolled_again
            found = roll(self._sequences(self._normalised(read, statistics)))
        return self._restored(self._by_channel(found, len(read)), statistics).sort(-1).values

    def _rolled_again(self, sequences: Tensor) -> Tensor:
        """(R, H, K, Q): patch after patch, all tokens computed again each time."""
        found: list[Tensor] = []
        for _ in range(self.config.horizon // self.config.patch):
            hidden = self._hidden(self._embedded(sequences))[:, -1:]
            found.append(self._after(sequences[:, -self.config.patch :], hidden))
            sequences = torch.cat([sequences, self.point(found[-1].sort(-1).values)], 1)
        return torch.cat(found, 1)

    def _rolled(self, sequences: Tensor) -> Tensor:
        """The same with a KV cache."""
        stack, size = self.config.stack, self.config.patch
        like = self.patches.weight
        cache = KVCache.empty(
            stack.n_layers, len(sequences), stack.kv_heads, self.config.max_length, stack.head_width, like
        )
        found: list[Tensor] = []
        new = sequences
        for _ in range(self.config.horizon // size):
            x = self._embedded(new, cache.length)
            positions, _ = cache.reserve(x.shape[1])
            hidden = self.decoder(x, Layout(positions, None, cache.length), cache=cache)[:, -1:]
            cache.advance()
            found.append(self._after(new[:, -size:], hidden))
            new = self.point(found[-1].sort(-1).values)
        return torch.cat(found, 1)

    # --- parts

    def _statistics(self, read: Tensor) -> Statistics | None:
        if not self.config.instance_norm:
            return None
        mean = read.mean(1, keepdim=True)
        return mean, (read.var(1, keepdim=True, unbiased=False) + EPSILON).sqrt()

    def _normalised(self, windows: Tensor, statistics: Statistics | None) -> Tensor:
        if statistics is not None:
            windows = (windows - statistics[0]) / statistics[1]
        return windows * self.gain + self.shift if self.config.affine else windows

    def _restored(self, predicted: Tensor, statistics: Statistics | None) -> Tensor:
        """Predictions (B, S, C, Q) on the scale of the windows."""
        predicted = predicted.to(torch.promote_types(predicted.dtype, torch.float32))
        if self.config.affine:
            gain, shift = (each.to(predicted.dtype)[:, None] for each in (self.gain, self.shift))
            predicted = (predicted - shift) / (gain + EPSILON**2)
        if statistics is None:
            return predicted
        return predicted * statistics[1][..., None] + statistics[0][..., None]

    def _sequences(self, windows: Tensor) -> Tensor:
        """(B, T, C) to (R, T, K)"""
        return windows if self.config.channels else windows.transpose(1, 2).flatten(0, 1)[..., None]

    def _by_channel(self, found: Tensor, batch: int) -> Tensor:
        """(R, S, K, Q) to (B, S, C, Q)"""
        return found if self.config.channels else found.unflatten(0, (batch, -1)).squeeze(3).transpose(1, 2)

    def _embedded(self, sequences: Tensor, first: int = 0) -> Tensor:
        """(R, T, K) to (R, N, M); `first` is the position of the first token."""
        config = self.config
        if not config.stack.causal:
            last = sequences[:, -1:].expand(-1, config.stride, -1)
            sequences = torch.cat([sequences, last], 1)
        patches = sequences.unfold(1, config.patch, config.stride).flatten(2)  # R N K·P
        x: Tensor = self.patches(patches.to(self.patches.weight.dtype))
        if self.positions is not None:
            x = x + self.positions[first : first + x.shape[1]]
        return F.dropout(x, config.dropout, self.training)

    def _hidden(self, x: Tensor, *, backend: Backend = "fused", hook: Hook | None = None) -> Tensor:
        if self.config.cell:
            assert isinstance(self.decoder, nn.RNNBase)
            with torch.autocast(x.device.type, enabled=False):  # rounding errors add up from step to step
                return run_cells(self.decoder, x.to(next(self.decoder.parameters()).dtype), None)[0]
        layout, kind = Layout.of(x.shape[1], None, x.device), self.config.kind
        hidden: Tensor = getattr(self, kind)(x, layout, backend=backend, hook=scoped(hook, kind))
        return hidden

    def _hidden_of(self, read: Tensor, statistics: Statistics | None) -> Tensor:
        return self._hidden(self._embedded(self._sequences(self._normalised(read, statistics))))

    def _written(self, hidden: Tensor) -> Tensor:
        """An encoder's whole horizon (R, H, K, Q) from hidden states (R, N, M)."""
        config = self.config
        found: Tensor = self.output(hidden.flatten(1))
        several: Tensor = found.unflatten(1, (config.horizon, max(1, config.channels), -1))
        return several

    def _after(self, sequences: Tensor, hidden: Tensor) -> Tensor:
        """A causal model's patch after each token (R, N·P, K, Q); `sequences` (R, N·P, K) are the tokens' values."""
        config = self.config
        found: Tensor = self.output(hidden).unflatten(2, (config.patch, max(1, config.channels), -1))  # R N P K Q
        found = found.to(torch.promote_types(found.dtype, torch.float32))
        if config.change:
            last = sequences[:, config.patch - 1 :: config.patch, None, :, None]
            found = last + found * config.change
        return found.flatten(1, 2)
