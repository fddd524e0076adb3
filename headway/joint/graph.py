"""GraphTransformer: attention between the nodes of a graph that knows how far apart they are.

The bias of a pair of nodes, one per head, is learned for their distance and for the edge between them (Graphormer,
Ying et al. 2021). Nodes that attend to near ones alone are computed pair by pair on a CPU; on an accelerator as a mask,
for large graphs by FlexAttention, which skips tiles without a near pair.

Letters: B graphs, N nodes, M width, H heads, D width of a head, E edges, P pairs.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.networks.graph import GraphConfig, NodesConfig
from headway.data.graphs.batch import PADDED, GraphTensors
from headway.joint.encoding import EncodingModel
from headway.kernels.linear import Linear
from headway.kernels.sparse.flex import flex_over_bias
from headway.model.attention import AttentionBias, Backend, Hook, scoped
from headway.model.heads import ClassifyHead, TagHead
from headway.model.init import initialise
from headway.model.masks import Layout
from headway.model.model import Output
from headway.model.positions import make_embedding
from headway.model.stack import Stack

FLEX_NODES = 4096
"""Nodes from which compiled steps on an accelerator skip blocks without near pairs. Uncompiled, FlexAttention would
compute all pairs; and for fewer nodes so does a kernel that needs no compiling."""


class NodeEmbedding(nn.Module):
    """The features of nodes as vectors: numbers, categories, degree, and eigenvectors of the Laplacian."""

    def __init__(self, config: NodesConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.numbers = Linear(len(config.columns), width) if config.columns else None
        self.tags = make_embedding(len(config.tags) + 1, width) if config.tags else None
        self.degrees = make_embedding(config.degrees + 1, width) if config.degrees else None
        self.positions = Linear(config.eigenvectors, width, bias=False) if config.eigenvectors else None

    def forward(self, numbers: Tensor, graphs: GraphTensors) -> Tensor:
        """(B, N, M)"""
        parts: list[Tensor] = []
        if self.numbers is not None:
            parts.append(self.numbers(F.dropout(numbers, self.config.dropout, self.training)))
        if self.tags is not None:
            parts.append(self.tags(graphs.tags).sum(2))
        if self.degrees is not None:
            parts.append(self.degrees(graphs.degrees.clamp(max=self.config.degrees)))
        if self.positions is not None:
            parts.append(self.positions(graphs.eigenvectors.to(self.positions.weight.dtype)))
        x = parts[0]
        for part in parts[1:]:
            x = x + part
        return x


class PairBias(nn.Module):
    """The attention bias of each pair of nodes and each head: by distance, by the edge between them."""

    def __init__(self, config: GraphConfig) -> None:
        super().__init__()
        heads, front = config.encoder.n_heads, config.source
        self.hidden = config.edge_dropout
        self.limit = config.hops or config.distance + 1
        """Pairs that are farther apart do not attend."""
        self.distance = make_embedding(config.buckets, heads)
        self.edge_tags = make_embedding(len(front.edge_tags) + 1, heads) if front.edge_tags else None
        self.edge_numbers = Linear(len(front.edge_columns), heads) if front.edge_columns else None
        self.virtual = nn.Parameter(torch.zeros(heads)) if config.virtual else None

    def forward(self, graphs: GraphTensors, nodes: int) -> Tensor:
        """(B·N·N, H), or (P, H) of given pairs; -inf for pairs that do not attend, but not for a node with itself."""
        assert graphs.distances is not None
        apart = graphs.distances.flatten()
        bias: Tensor = self.distance(apart.clamp(max=self.distance.num_embeddings - 1).int())
        if (edges := self._of_edges(graphs, nodes)) is not None and graphs.places is not None:
            bias = bias.index_add(0, graphs.places, edges.to(bias.dtype))
        closed = apart > self.limit
        if graphs.pairs is None:  # the attention mask hides padding, and leaves each node itself
            closed = closed & (apart != PADDED)
        if self.hidden and self.training:
            closed = closed | ((torch.rand(apart.shape, device=apart.device) < self.hidden) & (apart > 0))
        return bias.masked_fill(closed[:, None], -torch.inf)

    def _of_edges(self, graphs: GraphTensors, nodes: int) -> Tensor | None:
        """(E, H)"""
        parts: list[Tensor] = []
        if self.edge_tags is not None and graphs.edge_tags is not None:
            parts.append(self.edge_tags(graphs.edge_tags).sum(1))
        if self.edge_numbers is not None and graphs.edge_numbers is not None:
            parts.append(self.edge_numbers(graphs.edge_numbers.to(self.edge_numbers.weight.dtype)))
        if not parts or graphs.edges is None:
            return None
        real = graphs.edges[:, :1] < len(graphs.tags) * nodes
        total: Tensor = sum(parts[1:], parts[0])
        return total * real

    def with_virtual(self, bias: Tensor) -> Tensor:
        """The bias (B, H, N, N) with a row and a column of the virtual node in front."""
        if self.virtual is None:
            return bias
        own = self.virtual.to(bias.dtype)[None, :, None, None]
        bias = torch.cat([own.expand(len(bias), -1, 1, bias.shape[-1]), bias], 2)
        return torch.cat([own.expand(len(bias), -1, bias.shape[2], 1), bias], 3)


def neighbour_attention(
    pairs: Tensor, bias: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: float
) -> Tensor:
    """Attention (B, H, N, D) over pairs (P, 2) of target and source with a bias (P, H): nothing else is computed."""
    batch, heads, nodes, width = q.shape
    flat_q, flat_k, flat_v = (x.transpose(1, 2).reshape(batch * nodes, heads, width) for x in (q, k, v))
    target, source = pairs.unbind(1)
    scores = (flat_q[target] * flat_k[source]).sum(-1).float() * scale + bias  # P H
    index = target[:, None].expand_as(scores)
    largest = scores.new_full((batch * nodes, heads), -torch.inf).scatter_reduce(0, index, scores.detach(), "amax")
    weights = (scores - largest.clamp(min=-1e30)[target]).exp()
    total = weights.new_zeros(batch * nodes, heads).index_add(0, target, weights).clamp(min=1e-20)
    weights = F.dropout(weights / total[target], dropout)
    out = weights.new_zeros(batch * nodes, heads, width)
    out = out.index_add(0, target, weights[..., None] * flat_v[source].float())
    found: Tensor = out.unflatten(0, (batch, nodes))
    return found.transpose(1, 2).to(q.dtype)


def dense_bias(pairs: Tensor | None, distances: Tensor, bias: Tensor, batch: int, nodes: int) -> Tensor:
    """A bias of pairs as (B, H, N, N); pairs that are not given do not attend."""
    if pairs is not None:
        target, source = pairs[:, 0], pairs[:, 1]
        last = batch * nodes * nodes  # takes what only fills up
        place = torch.where(distances == PADDED, last, target * nodes + source % nodes)
        empty = bias.new_full((last + 1, bias.shape[1]), -torch.inf)
        bias = empty.index_put((place,), bias)[:-1]
    bias = bias.view(batch, nodes, nodes, -1)
    if pairs is not None:  # padding sees itself, or the softmax over nothing would be NaN
        itself = torch.eye(nodes, dtype=torch.bool, device=bias.device)[..., None]
        bias = torch.where(itself & torch.isinf(bias), 0.0, bias)
    found: Tensor = bias.permute(0, 3, 1, 2).contiguous()
    return found


class GraphModel(EncodingModel):
    """What all models of graphs share: the front end, the head, and that they generate nothing."""

    gives = "a model of graphs gives labels and numbers"

    config: GraphConfig
    source: NodeEmbedding  # type: ignore[assignment]

    def __init__(self, config: GraphConfig) -> None:
        super().__init__()
        self.config = config
        self.source = NodeEmbedding(config.source, config.encoder.d_model)

    def add_head(self) -> None:
        """The head comes last, so that weights before it do not depend on the number of labels."""
        config = self.config
        if config.classify is not None:
            self.classify = ClassifyHead(config.classify, config.encoder)
        if config.tag is not None:
            self.tag = TagHead(config.tag, config.encoder)

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, and so of the numbers of nodes."""
        return next(self.parameters()).dtype

    def label_logits(self, output: Output) -> Tensor:
        """(B, L) of graphs, or (B, N, L) of nodes."""
        if self.config.level == "node":
            found: Tensor = self.tag(output.hidden)
        else:
            found = self.classify(output.hidden, output.attention_mask)
        return found


class GraphTransformer(GraphModel):
    """A transformer over the nodes of a graph."""

    def __init__(self, config: GraphConfig) -> None:
        super().__init__(config)
        self.pairs = PairBias(config)
        self.virtual = nn.Parameter(torch.zeros(config.encoder.d_model)) if config.virtual else None
        self.encoder = Stack(config.encoder)
        self.add_head()
        initialise(self, config)
        if self.virtual is not None:
            nn.init.normal_(self.virtual, std=config.init.std)

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        target_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        graphs: GraphTensors | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        """`inputs` (B, N, F) are the numbers of nodes, `graphs` all else that is known of them."""
        assert graphs is not None
        x = self.source(inputs, graphs)
        bias = self._bias(graphs, len(x), x.shape[1], backend, hook)
        if self.virtual is not None:
            x = torch.cat([self.virtual.to(x.dtype).expand(len(x), 1, -1), x], 1)
            attention_mask = None if attention_mask is None else F.pad(attention_mask, (1, 0), value=True)
        layout = Layout.of(x.shape[1], attention_mask, x.device)
        hidden = self.encoder(x, layout, pairs=bias, backend=backend, hook=scoped(hook, "encoder"))
        return Output(hidden, attention_mask)

    def _bias(
        self, graphs: GraphTensors, batch: int, nodes: int, backend: Backend, hook: Hook | None
    ) -> Tensor | AttentionBias:
        """The bias of all pairs (B, H, N, N); or a kernel: of near pairs alone, or of blocks with near pairs."""
        bias: Tensor = self.pairs(graphs, nodes)
        assert graphs.distances is not None
        near = graphs.pairs if backend == "fused" and hook is None else None
        blocks = near is not None and self._skips_blocks(nodes, bias.device)
        if near is not None and not blocks and bias.device.type == "cpu":
            return AttentionBias(kernel=partial(neighbour_attention, near, bias))
        dense = self.pairs.with_virtual(dense_bias(graphs.pairs, graphs.distances, bias, batch, nodes))
        return AttentionBias(kernel=flex_over_bias(dense)) if blocks else dense

    def _skips_blocks(self, nodes: int, device: torch.device) -> bool:
        """Whether blocks without near pairs are left out. FlexAttention has no dropout."""
        dropout = self.training and self.config.encoder.attention_dropout > 0
        return nodes >= FLEX_NODES and device.type != "cpu" and not dropout and torch.compiler.is_compiling()
