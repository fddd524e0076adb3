"""A model family as data: config.json fields and tensor names, theirs and ours.

Each table in `hub/tables` is used in both directions, for loading and for saving.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headway.config.model import MAX_LENGTH, ModelConfig, StackConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.toml import build, short
from headway.errors import ConfigError, nearest
from headway.hub.ignored import NAMES as IGNORED
from headway.model.heads import HEADS

Config = dict[str, Any]


@dataclass(frozen=True)
class Field:
    """One field of config.json and its place in a ModelConfig."""

    theirs: str
    ours: str
    """Dotted paths, separated by spaces: all get the value; saving takes the value of the first."""
    default: Any = None
    """The value that `transformers` assumes if the field is absent."""
    names: Mapping[Any, Any] | None = None
    """Their value → ours, if they differ; saving takes the first that matches."""

    def read(self, theirs: Mapping[str, Any]) -> Any:
        value = theirs.get(self.theirs, self.default)
        if self.names is None:
            return value
        if not isinstance(value, str | int | float | None) or value not in self.names:
            known = ", ".join(repr(k) for k in self.names)
            raise ConfigError("C022", f"config.json: {self.theirs} = {short(value)}; headway knows {known}")
        return self.names[value]

    def write(self, value: Any) -> Any:
        if self.names is None:
            return list(value) if isinstance(value, tuple) else value
        for theirs, ours in self.names.items():
            if ours == value:
                return theirs
        return None


@dataclass(frozen=True)
class Tensor:
    """One of our modules or parameters, and the names of the tensors in the file that make it up."""

    ours: str
    theirs: str
    """Names separated by `|` are stacked along the first axis: q|k|v. Those with {e} follow for one expert after the
    other."""
    op: str = ""
    """How the file stores it: `transpose`d, with 1 or 2 leading axes of size one (`lead1`, `lead2`), as `patches`,
    without an axis (`scalar`), with its halves `swapped`. Queries and keys: with neighbouring rows as rotary `pairs`,
    with the rotated rows of a head in `front`, or so and `grouped`: queries, keys and values of each group in turn.
    """
    when: str = ""
    """Path of a setting: the entry applies if it is on, or after `!` if it is off. `path=value` compares. `block` is
    the config of the block."""


@dataclass(frozen=True)
class Head:
    """What an architecture adds to the base model: settings by path, and tensors."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    tensors: tuple[Tensor, ...] = ()
    labels: str = ""
    """Path of the number of labels, if the head has labels."""
    prefix: str | None = None
    """Prefix of the base model's tensors, if it differs from the family's."""
    tied_copies: Mapping[str, str] = field(default_factory=dict)
    """As in `Family`, for the tensors of the head."""


@dataclass(frozen=True)
class Family:
    """All that headway knows of one model_type of `transformers`."""

    name: str
    fields: tuple[Field, ...]
    fixed: Mapping[str, Any]
    """Settings that all models of the family share."""
    tensors: tuple[Tensor, ...]
    """Tensors of the base model; a name with {i} stands for one tensor per block."""
    heads: Mapping[str, Head]
    """By name in `architectures`; the base model is one of them."""
    prefix: str
    """Prefix of the base model's tensor names in a model with a head."""
    only: Mapping[str, Any] = field(default_factory=dict)
    """Fields that headway supports with one value only."""
    unused: tuple[str, ...] = ()
    """Fields that `on_read` handles, and fields of this family that do not change what the model computes."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names of fields: alias → the name in `fields`."""
    unneeded: tuple[str, ...] = ()
    """Suffixes of tensors that a file may hold and the model does not need: buffers that it computes."""
    tied_copies: Mapping[str, str] = field(default_factory=dict)
    """Second names of tied tensors: copy → the tensor that it has to equal, or alternatives separated by `|`."""
    sinusoidal_tables: tuple[str, ...] = ()
    """Tables of sinusoidal positions that a file may hold; the model computes them."""
    towers: Mapping[str, Family] = field(default_factory=dict)
    """Of a model with two towers: the family of each, by its name in a TwoTowersConfig."""
    special: Mapping[str, int] = field(default_factory=dict)
    """Special tokens that `transformers` assumes if config.json does not name them."""
    on_read: Callable[[Config, Mapping[str, Any], Collection[str]], None] | None = None
    """Changes the settings after reading: (settings by path, config.json, tensor names)."""
    on_write: Callable[[Config, ModelConfig], None] | None = None
    """Changes config.json before it is written: (config.json, config)."""


SEVERAL = "multi_label_classification"
"""The `problem_type` of multi-label classification."""
PAIRS = "text_pairs"
"""Whether a classifier was trained on pairs of texts: our own field, which `transformers` keeps and ignores."""

CODE_FIELDS = ("auto_map", "custom_pipelines", "_attn_implementation", "attn_implementation", "kernels")
"""Fields that name code. headway never runs it."""

OLD_ARCHITECTURES = {"T5WithLMHeadModel": "T5ForConditionalGeneration"}
"""Old names of classes → their names today."""


def read_config(family: Family, theirs: Mapping[str, Any], names: Collection[str] = ()) -> ModelConfig:
    """config.json as a ModelConfig; refuses what headway cannot compute."""
    refuse_code(theirs)
    theirs = _one_name_each(family, theirs)
    refuse_unknown(family, theirs)
    head = family.heads[architecture_in(family, theirs)]
    settings: Config = {**_special(family, theirs), **family.fixed}
    for entry in family.fields:
        value = entry.read(theirs)
        for path in entry.ours.split():
            settings[path] = value
    settings.update(head.settings)
    if family.on_read is not None:
        family.on_read(settings, theirs, names)
    if head.labels:
        settings["labels"] = _label_names(theirs, head.settings[head.labels])
        settings[head.labels] = len(settings["labels"])
        if head.labels == "classify.labels":
            settings["classify.several"] = theirs.get("problem_type") == SEVERAL
            settings["classify.pairs"] = theirs.get(PAIRS)
    return build(ModelConfig, {**_nest(settings), "family": family.name})


def write_config(family: Family, config: ModelConfig) -> Config:
    """The config.json of a model of this family."""
    architecture = architecture_of(family, config)
    theirs: Config = {"model_type": family.name, "architectures": [architecture]}
    for entry in family.fields:
        theirs[entry.theirs] = entry.write(_get(config, entry.ours.split()[0]))
    special = config.special
    theirs |= {"pad_token_id": special.pad, "bos_token_id": special.bos, "eos_token_id": special.eos}
    if (
        special.start is not None
    ):  # a family that assumes a start token cannot say that there is none: such a model is saved in our own layout
        theirs["decoder_start_token_id"] = special.start
    theirs["is_encoder_decoder"] = config.kind == "encoder-decoder"
    if config.labels:
        theirs["id2label"] = {str(i): name for i, name in enumerate(config.labels)}
        theirs["label2id"] = {name: i for i, name in enumerate(config.labels)}
    if config.classify is not None and config.classify.several:
        theirs["problem_type"] = SEVERAL
    if config.classify is not None and config.classify.pairs is not None:
        theirs[PAIRS] = config.classify.pairs
    if family.on_write is not None:
        family.on_write(theirs, config)
    return theirs


def architecture_of(family: Family, config: ModelConfig) -> str:
    """The architecture with the heads of this model."""
    for name, head in family.heads.items():
        if _fits(head, config):
            return name
    raise ConfigError("C024", f"no architecture of {family.name} has the heads of this model")


def _fits(head: Head, config: ModelConfig) -> bool:
    if any(_get(config, path) is not None for path, value in head.settings.items() if value is None):
        return False  # for example an architecture without a decoder
    if any(bool(_get(config, path)) != head.settings.get(path, False) for path in ("classify.distilled", "tag.binary")):
        return False
    wanted = {path.partition(".")[0] for path in head.settings} & set(HEADS)
    has = {name for name in HEADS if getattr(config, name) is not None}
    if config.classify is not None and config.classify.labels == 0:
        has.remove("classify")  # the pooler of a base model, which is optional
    if head.settings.get("classify.labels") == 0:
        wanted.remove("classify")
    return wanted == has


def prefix_of(family: Family, architecture: str) -> str:
    """Prefix of the base model's tensor names in this architecture."""
    prefix = family.heads[architecture].prefix
    return family.prefix if prefix is None else prefix


def tensors_of(family: Family, config: AnyConfig, architecture: str, prefix: str) -> Iterator[tuple[str, str, str]]:
    """(our name, their names, op) of every module of every block and of the heads."""
    head = family.heads[architecture]
    for entry in family.tensors:
        theirs = "|".join(prefix + part for part in entry.theirs.split("|"))
        yield from _count_out(config, replace(entry, theirs=theirs))
    for entry in head.tensors:
        yield entry.ours, entry.theirs.replace("{prefix}", prefix), entry.op


def tied_copies_of(family: Family, architecture: str, prefix: str) -> dict[str, list[str]]:
    """Name of a tied copy → tensors; the copy has to equal the first of them that the model has."""
    both = {**family.tied_copies, **family.heads[architecture].tied_copies}
    return {c.replace("{prefix}", prefix): o.replace("{prefix}", prefix).split("|") for c, o in both.items()}


def refuse_code(theirs: Mapping[str, Any]) -> None:
    """Refuse fields that name code: data never does."""
    for key, value in theirs.items():
        if key.startswith(CODE_FIELDS) and not isinstance(value, bool | None):
            raise ConfigError(
                "C023",
                f"config.json: field {short(key)} names code, which headway never runs",
                "remove the field if headway knows the family of the model",
            )


def _one_name_each(family: Family, theirs: Mapping[str, Any]) -> Config:
    """The fields without aliases; if a field has two names, both values have to agree."""
    plain = {key: value for key, value in theirs.items() if key not in family.aliases}
    for alias, name in family.aliases.items():
        if alias in theirs and plain.setdefault(name, theirs[alias]) != theirs[alias]:
            both = f"{alias} = {short(theirs[alias])} and {name} = {short(plain[name])}"
            raise ConfigError("C004", f"config.json: {both} are two names of one field", "remove the wrong one")
    return plain


def refuse_unknown(family: Family, theirs: Mapping[str, Any]) -> None:
    """Refuse fields, and values of fields, that may change what a model computes in a way that headway cannot."""
    known = known_fields(family)
    if theirs.get("quantization_config"):
        raise ConfigError(
            "C022",
            f"config.json: quantization_config = {short(theirs['quantization_config'])}; headway does not support it",
            "use the model that was quantized; headway export MODEL OUT quant=int8 makes it small again",
        )
    for key, value in theirs.items():
        if key in family.only and value != family.only[key] and (value is not None or family.only[key]):
            raise ConfigError(
                "C022",
                f"config.json: {key} = {short(value)}; headway supports {family.name} with {family.only[key]!r} only",
            )
        if key not in known and value not in (None, False, 0, "", [], {}):
            raise ConfigError(
                "C021",
                f"config.json: unknown field {short(key)} = {short(value)} for {family.name}{nearest(key, known)}",
                "it may change what the model computes; if you know that it does not, remove it from config.json",
            )


def relative_of(theirs: Mapping[str, Any], families: Mapping[str, Family]) -> str:
    """The family whose config.json is most like one of an unknown family, and what it lacks, in words."""
    said = {key for key, value in theirs.items() if value not in (None, False, 0, "", [], {})} - IGNORED
    own = {name: known_fields(family) - IGNORED for name, family in families.items()}
    strange = {name: said - fields for name, fields in own.items()}
    name = min(own, key=lambda each: (len(strange[each]), -len(own[each] & theirs.keys()), len(own[each])))
    if len(strange[name]) >= len(said):
        return "docs/extend/family.md says how to add a family"
    fields = f", which does not know {', '.join(map(short, sorted(strange[name])[:4]))}" if strange[name] else ""
    return f"its fields are most like those of {name}{fields}: docs/extend/family.md says how to add a table"


def known_fields(family: Family) -> set[str]:
    """Fields of config.json that a family reads, or knows to have no effect."""
    return {entry.theirs for entry in family.fields} | {*family.aliases, *family.only, *family.unused} | IGNORED


def architecture_in(family: Family, theirs: Mapping[str, Any]) -> str:
    """The first of `architectures`; if config.json has none, the first of the family."""
    listed = theirs.get("architectures") or [next(iter(family.heads))]
    name = listed[0] if isinstance(listed, list) else listed
    name = OLD_ARCHITECTURES.get(name, name) if isinstance(name, str) else name
    if not isinstance(name, str) or name not in family.heads:
        known = ", ".join(family.heads)
        raise ConfigError("C024", f"config.json: architecture {short(name)}; for {family.name} headway knows {known}")
    return name


def size_in(settings: Config, path: str) -> int:
    """A size from which other settings are computed, checked."""
    size = settings[path]
    if type(size) is not int or not 0 < size <= MAX_LENGTH:
        raise ConfigError("C003", f"config.json: {path} = {short(size)} is outside 1 … {MAX_LENGTH}")
    return size


def switch(theirs: Mapping[str, Any], name: str, default: bool) -> bool:
    """A field that is true or false; null is false."""
    value = theirs.get(name, default)
    if not isinstance(value, bool | None):
        raise ConfigError("C002", f"config.json: {name} = {short(value)} should be true or false")
    return bool(value)


def read_tied(settings: Config, theirs: Mapping[str, Any], default: bool) -> None:
    """Whether the lm head, if there is one, is tied to the token table."""
    if "lm.tied" in settings:
        settings["lm.tied"] = switch(theirs, "tie_word_embeddings", default)


def span_head(prefix: str | None = None) -> Head:
    """The usual head for spans."""
    return Head({"span.ffn": False}, (Tensor("span.output", "qa_outputs"),), prefix=prefix)


def with_defaults(fields: tuple[Field, ...], **values: Any) -> tuple[Field, ...]:
    """The same fields with other defaults."""
    return tuple(replace(entry, default=values.get(entry.theirs, entry.default)) for entry in fields)


def _special(family: Family, theirs: Mapping[str, Any]) -> Config:
    pairs = {"pad": "pad_token_id", "bos": "bos_token_id", "eos": "eos_token_id", "start": "decoder_start_token_id"}
    return {f"special.{ours}": theirs.get(name, family.special.get(ours)) for ours, name in pairs.items()}


def _label_names(theirs: Mapping[str, Any], usual: int) -> list[str]:
    table = theirs.get("id2label")
    if isinstance(table, dict) and table:
        try:
            return [str(table[k]) for k in sorted(table, key=int)]
        except ValueError:
            raise ConfigError("C002", "config.json: the keys of id2label should be numbers") from None
    count = theirs.get("num_labels", usual)
    if type(count) is not int or not 0 <= count <= 1 << 20:
        raise ConfigError("C003", f"config.json: num_labels = {short(count)}")
    return [f"LABEL_{i}" for i in range(count)]


def _nest(settings: Mapping[str, Any]) -> Config:
    nested: Config = {}
    for path, value in settings.items():
        *parents, last = path.split(".")
        node = nested
        for parent in parents:
            inner = node.setdefault(parent, {})
            if inner is None:  # the architecture has no such part
                break
            node = inner
        else:
            node[last] = value
    return nested


def _get(config: Any, path: str) -> Any:
    for part in path.split("."):
        if config is None:
            return None
        config = getattr(config, part)
    return config


def _count_out(config: AnyConfig, entry: Tensor) -> Iterator[tuple[str, str, str]]:
    """(our name, their names, op) of an entry for all the blocks that it applies to."""
    side = entry.ours.partition(".")[0]
    stack = {"encoder": config.encoder, "source": config.encoder}.get(side, config.decoder)
    if stack is None:
        return
    for i in range(stack.n_layers) if "{i}" in entry.ours else range(1):
        block = stack.layer(i) if isinstance(stack, StackConfig) else None
        if not _applies(entry.when, config, block):
            continue
        theirs = entry.theirs
        if "{e}" in theirs and block is not None and block.experts is not None:
            theirs = "|".join(theirs.replace("{e}", str(expert)) for expert in range(block.experts.count))
        yield entry.ours.replace("{i}", str(i)), theirs.replace("{i}", str(i)), entry.op


def _applies(when: str, config: AnyConfig, block: StackConfig | None) -> bool:
    if not when:
        return True
    path, _, wanted = when.lstrip("!").partition("=")
    first, _, rest = path.partition(".")
    value = _get(block, rest) if first == "block" else _get(config, path)
    return (value == wanted if wanted else bool(value)) != when.startswith("!")
