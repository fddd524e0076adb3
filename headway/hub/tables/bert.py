"""Tables of BERT (Devlin et al. 2019), RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT and BigBird."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.config.model import ModelConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config, Family, Field, Head, Tensor, size_in, span_head, switch, with_defaults

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}

_FIXED = {
    "encoder.norm_at": "post",
    "encoder.final_norm": False,
    "source.kind": "tokens",
    "source.positions.kind": "learned",
    "source.norm": True,
}

_FIELDS = (
    Field("vocab_size", "source.vocab", 30522),
    Field("hidden_size", "encoder.d_model", 768),
    Field("num_hidden_layers", "encoder.n_layers", 12),
    Field("num_attention_heads", "encoder.n_heads", 12),
    Field("intermediate_size", "encoder.d_ff", 3072),
    Field("hidden_act", "encoder.activation", "gelu", ACTIVATIONS),
    Field("hidden_dropout_prob", "encoder.dropout source.dropout", 0.1),
    Field("attention_probs_dropout_prob", "encoder.attention_dropout", 0.1),
    Field("max_position_embeddings", "source.positions.length", 512),
    Field("type_vocab_size", "source.segments", 2),
    Field("layer_norm_eps", "encoder.norm_eps source.norm_eps", 1e-12),
)

_EMBED = (
    Tensor("source.table", "embeddings.word_embeddings"),
    Tensor("source.positions.table", "embeddings.position_embeddings"),
    Tensor("source.segments", "embeddings.token_type_embeddings"),
    Tensor("source.norm", "embeddings.LayerNorm"),
)


def block_of(attention: str, names: tuple[str, str, str, str, str], layer: str) -> tuple[Tensor, ...]:
    """The tensors of a block with norms after the branches."""
    ours = ("attention.out", "residual1.norm", "ffn.up", "ffn.down", "residual2.norm")
    qkv = "|".join(f"{layer}.{part}" for part in attention.split("|"))
    rest = (Tensor(f"encoder.blocks.{{i}}.{a}", f"{layer}.{b}") for a, b in zip(ours, names, strict=True))
    return (Tensor("encoder.blocks.{i}.attention.qkv", qkv), *rest)


_BLOCK = block_of(
    "attention.self.query|attention.self.key|attention.self.value",
    ("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"),
    "encoder.layer.{i}",
)

_ONLY = {
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
}
_SPARE = ("position_ids", "token_type_ids")

_TAG = Head({"tag.labels": 2}, (Tensor("tag.output", "classifier"),), labels="tag.labels")
_SPAN = span_head()


def _mlm(dense: str, norm: str, bias: str) -> tuple[Tensor, ...]:
    return Tensor("lm.dense", dense), Tensor("lm.norm", norm), Tensor("lm.output.bias", bias)


def _tied(matrix: str, **more: str) -> dict[str, str]:
    """The output matrix is tied to the token table; some files hold it twice."""
    return {matrix: "{prefix}embeddings.word_embeddings.weight", **more}


_BERT_COPIES = _tied("cls.predictions.decoder.weight", **{"cls.predictions.decoder.bias": "cls.predictions.bias"})
_BERT_MLM = _mlm("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias")
_LM = {"lm.tied": True, "lm.bias": "trained", "lm.transform": "gelu"}
_POOLER = Tensor("classify.dense", "{prefix}pooler.dense")


def _pool(path: str, labels: int) -> Config:
    return {f"{path}.labels": labels, f"{path}.dense": "tanh", f"{path}.pool": "first"}


_NSP = (Tensor("nsp.dense", "{prefix}pooler.dense"), Tensor("nsp.output", "cls.seq_relationship"))


def _read_bert(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    """The lm head has the activation of the blocks; a base model has a pooler if its file has one."""
    if "lm.tied" in settings:
        settings["lm.transform"] = settings["encoder.activation"]
    dropout = theirs.get("classifier_dropout")
    for head in ("classify", "tag"):
        if f"{head}.labels" in settings:
            settings[f"{head}.dropout"] = settings["encoder.dropout"] if dropout is None else dropout
    if settings.get("classify.labels") == 0:
        settings["classify.dropout"] = 0.0
        if names and not any("pooler." in n for n in names):
            for path in [p for p in settings if p.startswith("classify.")]:
                del settings[path]


def _write_bert(theirs: Config, config: ModelConfig) -> None:
    assert config.encoder is not None
    head = config.classify or config.tag
    theirs["classifier_dropout"] = head.dropout if head and config.labels else None


_BERT_HEADS = {
    "BertModel": Head(_pool("classify", 0), (_POOLER,), prefix=""),
    "BertForMaskedLM": Head(_LM, _BERT_MLM, tied_copies=_BERT_COPIES),
    "BertForPreTraining": Head({**_LM, **_pool("nsp", 2)}, (*_BERT_MLM, *_NSP), tied_copies=_BERT_COPIES),
    "BertForNextSentencePrediction": Head(_pool("nsp", 2), _NSP),
    "BertForSequenceClassification": Head(
        _pool("classify", 2), (_POOLER, Tensor("classify.output", "classifier")), labels="classify.labels"
    ),
    "BertForTokenClassification": _TAG,
    "BertForQuestionAnswering": _SPAN,
}

BERT = Family(
    name="bert",
    fields=_FIELDS,
    fixed=_FIXED,
    tensors=(*_EMBED, *_BLOCK),
    heads=_BERT_HEADS,
    prefix="bert.",
    only=_ONLY,
    unneeded=_SPARE,
    special={"pad": 0},
    on_read=_read_bert,
    on_write=_write_bert,
)


def after_padding(settings: Config) -> int:
    """The first position of a family that counts positions from the padding id (Liu et al. 2019)."""
    pad = settings["special.pad"]
    if type(pad) is not int or pad < 0:
        raise ConfigError("C022", f"config.json: pad_token_id = {short(pad)}; positions of this family start after it")
    return pad + 1


def _read_roberta(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    """The table of positions has rows for the positions up to the padding id, which no token uses."""
    first = settings["source.positions.offset"] = after_padding(settings)
    settings["source.positions.length"] = size_in(settings, "source.positions.length") - first
    _read_bert(settings, theirs, names)
    if "lm.tied" in settings:
        settings["lm.transform"] = "gelu"  # RoBERTa's lm head has gelu, whatever the activation of the blocks


def _write_roberta(theirs: Config, config: ModelConfig) -> None:
    front = config.source
    assert front is not None and front.kind == "tokens"
    theirs["max_position_embeddings"] = front.positions.length + front.positions.offset
    _write_bert(theirs, config)


_CLASSIFIER = (Tensor("classify.dense", "classifier.dense"), Tensor("classify.output", "classifier.out_proj"))

ROBERTA = Family(
    name="roberta",
    fields=with_defaults(_FIELDS, vocab_size=50265),
    fixed=_FIXED,
    tensors=(*_EMBED, *_BLOCK),
    heads={
        "RobertaModel": Head(_pool("classify", 0), (_POOLER,), prefix=""),
        "RobertaForMaskedLM": Head(
            _LM,
            _mlm("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
            tied_copies=_tied("lm_head.decoder.weight", **{"lm_head.decoder.bias": "lm_head.bias"}),
        ),
        "RobertaForSequenceClassification": Head(_pool("classify", 2), _CLASSIFIER, labels="classify.labels"),
        "RobertaForTokenClassification": _TAG,
        "RobertaForQuestionAnswering": _SPAN,
    },
    prefix="roberta.",
    only=_ONLY,
    unneeded=(*_SPARE, "pooler.dense.weight", "pooler.dense.bias"),
    special={"pad": 1, "bos": 0, "eos": 2},
    on_read=_read_roberta,
    on_write=_write_roberta,
)


def _named_as(name: str, words: str) -> Family:
    """RoBERTa under another name, with the defaults of BERT's sizes."""
    heads = {architecture.replace("Roberta", words): head for architecture, head in ROBERTA.heads.items()}
    return replace(ROBERTA, name=name, fields=_FIELDS, heads=heads)


XLM_ROBERTA = _named_as("xlm-roberta", "XLMRoberta")
CAMEMBERT = _named_as("camembert", "Camembert")


def _read_distil(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    if "lm.tied" in settings:
        settings["lm.transform"] = settings["encoder.activation"]
    if "classify.labels" in settings:
        settings["classify.dropout"] = theirs.get("seq_classif_dropout", 0.2)
    if "tag.labels" in settings:
        settings["tag.dropout"] = settings["encoder.dropout"]


def _write_distil(theirs: Config, config: ModelConfig) -> None:
    if config.classify:
        theirs["seq_classif_dropout"] = config.classify.dropout


DISTILBERT = Family(
    name="distilbert",
    fields=(
        Field("vocab_size", "source.vocab", 30522),
        Field("dim", "encoder.d_model", 768),
        Field("n_layers", "encoder.n_layers", 6),
        Field("n_heads", "encoder.n_heads", 12),
        Field("hidden_dim", "encoder.d_ff", 3072),
        Field("activation", "encoder.activation", "gelu", ACTIVATIONS),
        Field("dropout", "encoder.dropout source.dropout", 0.1),
        Field("attention_dropout", "encoder.attention_dropout", 0.1),
        Field("max_position_embeddings", "source.positions.length", 512),
    ),
    fixed={**_FIXED, "encoder.norm_eps": 1e-12, "source.norm_eps": 1e-12},
    tensors=(
        *(entry for entry in _EMBED if entry.ours != "source.segments"),
        *block_of(
            "attention.q_lin|attention.k_lin|attention.v_lin",
            ("attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
            "transformer.layer.{i}",
        ),
    ),
    heads={
        "DistilBertModel": Head(prefix=""),
        "DistilBertForMaskedLM": Head(
            _LM,
            _mlm("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
            tied_copies=_tied("vocab_projector.weight"),
        ),
        "DistilBertForSequenceClassification": Head(
            {**_pool("classify", 2), "classify.dense": "relu"},
            (Tensor("classify.dense", "pre_classifier"), Tensor("classify.output", "classifier")),
            labels="classify.labels",
        ),
        "DistilBertForTokenClassification": _TAG,
        "DistilBertForQuestionAnswering": _SPAN,
    },
    prefix="distilbert.",
    aliases={"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    only={"tie_word_embeddings": True, "tie_weights_": True},
    unused=(
        "qa_dropout",
        "seq_classif_dropout",
        "sinusoidal_pos_embds",
    ),  # sinusoidal positions are stored as a learned table
    unneeded=("position_ids",),
    special={"pad": 0},
    on_read=_read_distil,
    on_write=_write_distil,
)


_ATTENTION = Field("attention_type", "", "block_sparse", {"block_sparse": True, "original_full": False})


def _read_bigbird(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    if _ATTENTION.read(theirs):
        settings["encoder.sparse.block"] = theirs.get("block_size", 64)
        settings["encoder.sparse.random"] = theirs.get("num_random_blocks", 3)
    if switch(theirs, "rescale_embeddings", False):
        settings["source.scale"] = size_in(settings, "encoder.d_model") ** 0.5
    _read_bert(settings, theirs, names)
    if settings.get("classify.labels"):
        settings["classify.dense"] = settings["encoder.activation"]


def _write_bigbird(theirs: Config, config: ModelConfig) -> None:
    assert config.encoder is not None and config.source is not None and config.source.kind == "tokens"
    sparse = config.encoder.sparse
    theirs["attention_type"] = "block_sparse" if sparse else "original_full"
    if sparse:
        theirs |= {"block_size": sparse.block, "num_random_blocks": sparse.random}
    theirs["rescale_embeddings"] = config.source.scale != 1.0
    _write_bert(theirs, config)


BIGBIRD = Family(
    name="big_bird",
    fields=with_defaults(_FIELDS, vocab_size=50358, max_position_embeddings=4096, hidden_act="gelu_new"),
    fixed=_FIXED,
    tensors=(*_EMBED, *_BLOCK),
    heads={
        "BigBirdModel": Head(_pool("classify", 0), (Tensor("classify.dense", "{prefix}pooler"),), prefix=""),
        "BigBirdForMaskedLM": Head(_LM, _BERT_MLM, tied_copies=_BERT_COPIES),
        "BigBirdForPreTraining": Head(
            {**_LM, **_pool("nsp", 2)},
            (*_BERT_MLM, Tensor("nsp.dense", "{prefix}pooler"), Tensor("nsp.output", "cls.seq_relationship")),
            tied_copies=_BERT_COPIES,
        ),
        "BigBirdForSequenceClassification": Head(_pool("classify", 2), _CLASSIFIER, labels="classify.labels"),
        "BigBirdForTokenClassification": _TAG,
        "BigBirdForQuestionAnswering": Head(
            {"span.ffn": True},
            (
                Tensor("span.ffn.up", "qa_classifier.intermediate.dense"),
                Tensor("span.ffn.down", "qa_classifier.output.dense"),
                Tensor("span.norm", "qa_classifier.output.LayerNorm"),
                Tensor("span.output", "qa_classifier.qa_outputs"),
            ),
        ),
    },
    prefix="bert.",
    only={**_ONLY, "use_bias": True},
    unused=("attention_type", "block_size", "num_random_blocks", "rescale_embeddings"),
    unneeded=(*_SPARE, "pooler.weight", "pooler.bias"),
    special={"pad": 0, "bos": 1, "eos": 2},
    on_read=_read_bigbird,
    on_write=_write_bigbird,
)
