"""GCN and GIN from PyTorch Geometric, the baselines of the graph transformer.

Letters: B graphs, N nodes, M width, E edges.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.networks.graph import GraphConfig
from headway.data.graphs.batch import GraphTensors
from headway.errors import NotFoundError
from headway.joint.graph import GraphModel
from headway.model.attention import Backend, Hook
from headway.model.model import Output


class GraphNorm(nn.Module):
    """Each channel of a graph's nodes with a learned share of its mean taken away, and variance 1 (Cai et al. 2021).

    In place of the batch norm of the GIN paper: padding does not count, and a graph does not depend on its batch.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.share, self.weight = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        real = attention_mask[..., None].to(x.dtype)
        count = real.sum(1, keepdim=True).clamp(min=1)
        x = (x - self.share * (x * real).sum(1, keepdim=True) / count) * real
        y: Tensor = self.weight * x * (x.square().sum(1, keepdim=True) / count + 1e-5).rsqrt() + self.bias
        return y


class GraphNetwork(GraphModel):
    """Layers in which a node reads its neighbours. A GIN adds up what it reads, and sums the nodes of a graph."""

    def __init__(self, config: GraphConfig) -> None:
        super().__init__(config)
        layers = config.encoder.n_layers
        self.layers = nn.ModuleList(_layer(config, i) for i in range(layers))
        gin = config.layer == "gin"
        self.norms = nn.ModuleList(GraphNorm(config.encoder.d_model) for _ in range(layers if gin else 0))
        self.add_head()

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
        """As of the transformer. The graphs of a batch are one graph without edges between them."""
        assert graphs is not None and graphs.edges is not None and attention_mask is not None
        x = self.source(inputs, graphs)
        shape, real = x.shape[:2], attention_mask.flatten()[:, None]
        x = F.pad(x.flatten(0, 1), (0, 0, 0, 1))  # a last node takes the edges that only fill up
        edges, config = graphs.edges, self.config
        if config.edge_dropout and self.training:
            hidden = torch.rand(len(edges), device=x.device) < config.edge_dropout
            edges = edges.masked_fill(hidden[:, None], len(x) - 1)
        toward = edges.flip(1).T  # PyTorch Geometric: source, target
        given = normalised(toward, len(x)) if config.layer == "gcn" else (toward,)
        for i, layer in enumerate(self.layers):
            y = layer(F.dropout(x, config.encoder.dropout, self.training), *given)
            if self.norms:
                y = F.pad(self.norms[i](y[:-1].unflatten(0, shape), attention_mask).flatten(0, 1), (0, 0, 0, 1))
            last = config.level == "node" and i + 1 == len(self.layers)
            x = y if last and not self.norms else F.relu(y)  # the last layer of a GCN gives the logits of nodes
        hidden_states = (x[:-1] * real).unflatten(0, shape)
        if config.layer == "gin" and config.level == "graph":  # the head's mean becomes a sum
            hidden_states = hidden_states * attention_mask.sum(1).to(x.dtype)[:, None, None]
        return Output(hidden_states, attention_mask)


def normalised(edges: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Edges (2, E) with one from each node to itself, and their weights D^-½ (A + 1) D^-½.

    PyTorch Geometric's own way has shapes that depend on the data, which a CUDA graph cannot hold.
    """
    itself = torch.arange(nodes, device=edges.device).expand(2, -1)
    weights = torch.cat([(edges[0] != edges[1]).float(), torch.ones(nodes, device=edges.device)])
    edges = torch.cat([edges, itself], 1)
    scale = torch.zeros(nodes, device=edges.device).index_add(0, edges[1], weights).rsqrt()
    return edges, scale[edges[0]] * weights * scale[edges[1]]


def _layer(config: GraphConfig, number: int) -> Any:
    """A layer of PyTorch Geometric. The first matrix of a GCN is the front end, and the last one of nodes the head."""
    try:
        from torch_geometric.nn import GCNConv, GINConv
    except ImportError:
        message = f"graph.network = {config.layer} needs the package torch_geometric"
        raise NotFoundError("F003", message, "pip install 'headway[graph]'") from None
    width = config.encoder.d_model
    if config.layer == "gcn":
        layer = GCNConv(width, width, normalize=False)
        if number == 0 or (config.level == "node" and number == config.encoder.n_layers - 1):
            layer.lin = nn.Identity()
        return layer
    return GINConv(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)), train_eps=True)
