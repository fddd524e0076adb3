"""A model family as data: which config.json field is which of ours, and which tensor is which.

The tables in `hub/tables` are read in both directions, so what is loaded can be saved, and nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headway.config.model import MAX_LENGTH, ModelConfig
from headway.config.toml import build, short
from headway.errors import ConfigError, nearest
from headway.hub.ignored import NAMES as IGNORED

Config = dict[str, Any]


@dataclass(frozen=True)
class Field:
    """One field of a config.json and where it lives in a ModelConfig."""

    theirs: str
    ours: str
    """Dotted paths, several separated by spaces: all get the value, the first is written back."""
    default: Any = None
    """What `transformers` assumes when the field is absent."""
    names: Mapping[Any, Any] | None = None
    """Their value → ours, where they differ; the first match is written back."""

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
    """One of our modules (or single parameters) and the names of theirs that make it up."""

    ours: str
    theirs: str
    """Several separated by `|` are stacked along the first axis: q|k|v."""
    op: str = ""
    """How theirs is stored: `transpose`d, with `lead1` or `lead2` axes of one in front, as `patches` of an image."""
    when: str = ""
    """Path of a setting that must be on (or off, after `!`) for this entry to apply."""


@dataclass(frozen=True)
class Head:
    """What an architecture adds to its bare model: settings by path, and tensors."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    tensors: tuple[Tensor, ...] = ()
    labels: str = ""
    """Path of the label count, where the head has labels."""
    prefix: str | None = None
    """Prefix of the bare model's tensors, where this head has its own way."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """As in a family, of the head's own tensors."""


@dataclass(frozen=True)
class Family:
    """Everything headway knows of a `transformers` model_type."""

    name: str
    fields: tuple[Field, ...]
    fixed: Mapping[str, Any]
    """Settings that every model of the family shares."""
    tensors: tuple[Tensor, ...]
    """Of the bare model; a name with {i} stands for each block."""
    heads: Mapping[str, Head]
    """By name in `architectures`; the bare model's is there too."""
    prefix: str
    """What a head puts before the names of the bare model."""
    only: Mapping[str, Any] = field(default_factory=dict)
    """Fields headway knows in one value alone."""
    unused: tuple[str, ...] = ()
    """Fields that `adjust` reads, and those of this family alone that do not change what the model computes."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Second names of fields: theirs → the name of the table."""
    spare: tuple[str, ...] = ()
    """Ends of names that may be in a file and are not needed: buffers that can be computed."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Second names of tied tensors: the copy → what it has to equal, several alternatives separated by `|`."""
    sines: tuple[str, ...] = ()
    """Tables of sinusoidal positions that a file may hold, and that the model computes."""
    special: Mapping[str, int] = field(default_factory=dict)
    """Special tokens that `transformers` assumes where config.json does not name them."""
    adjust: Callable[[Config, Mapping[str, Any], Collection[str]], None] | None = None
    """Last word on reading: (settings by path, config.json, tensor names)."""
    explain: Callable[[Config, ModelConfig], None] | None = None
    """Last word on writing: (config.json, model)."""


HEADS = ("lm", "nsp", "classify", "tag", "span")
SEVERAL = "multi_label_classification"
"""The `problem_type` of labels that do not exclude each other."""
PAIRS = "text_pairs"
"""Whether a classifier was trained on pairs of texts: our own field, which `transformers` keeps and leaves alone."""

CODE_FIELDS = ("auto_map", "custom_pipelines", "_attn_implementation", "attn_implementation", "kernels")
"""Fields by which a data file names code. Never followed."""

OLD_ARCHITECTURES = {"T5WithLMHeadModel": "T5ForConditionalGeneration"}
"""What files from before a class was renamed say of it."""


def read_config(family: Family, theirs: Mapping[str, Any], names: Collection[str] = ()) -> ModelConfig:
    """A config.json's content as a ModelConfig; refuses what headway cannot compute."""
    refuse_code(theirs)
    theirs = _one_name_each(family, theirs)
    _refuse_unknown(family, theirs)
    head = family.heads[architecture_in(family, theirs)]
    flat: Config = {**_special(family, theirs), **family.fixed}
    for entry in family.fields:
        value = entry.read(theirs)
        for path in entry.ours.split():
            flat[path] = value
    flat.update(head.settings)
    if family.adjust is not None:
        family.adjust(flat, theirs, names)
    if head.labels:
        flat["labels"] = _label_names(theirs, head.settings[head.labels])
        flat[head.labels] = len(flat["labels"])
        if head.labels == "classify.labels":
            flat["classify.several"] = theirs.get("problem_type") == SEVERAL
            flat["classify.pairs"] = theirs.get(PAIRS)
    return build(ModelConfig, {**_nest(flat), "family": family.name})


def write_config(family: Family, config: ModelConfig) -> Config:
    """The config.json of a model of this family."""
    architecture = architecture_of(family, config)
    theirs: Config = {"model_type": family.name, "architectures": [architecture]}
    for entry in family.fields:
        theirs[entry.theirs] = entry.write(_get(config, entry.ours.split()[0]))
    special = config.special
    theirs |= {"pad_token_id": special.pad, "bos_token_id": special.bos, "eos_token_id": special.eos}
    if special.start is not None:  # without one, a family that assumes one cannot say so: the layout is then our own
        theirs["decoder_start_token_id"] = special.start
    theirs["is_encoder_decoder"] = config.kind == "encoder-decoder"
    if config.labels:
        theirs["id2label"] = {str(i): name for i, name in enumerate(config.labels)}
        theirs["label2id"] = {name: i for i, name in enumerate(config.labels)}
    if config.classify is not None and config.classify.several:
        theirs["problem_type"] = SEVERAL
    if config.classify is not None and config.classify.pairs is not None:
        theirs[PAIRS] = config.classify.pairs
    if family.explain is not None:
        family.explain(theirs, config)
    return theirs


def architecture_of(family: Family, config: ModelConfig) -> str:
    """The entry of `architectures` whose head this model has."""
    for name, head in family.heads.items():
        if _fits(head, config):
            return name
    raise ConfigError("C024", f"no architecture of {family.name} has the heads of this model")


def _fits(head: Head, config: ModelConfig) -> bool:
    if any(_get(config, path) is not None for path, value in head.settings.items() if value is None):
        return False  # an architecture without a decoder, say
    wanted = {path.partition(".")[0] for path in head.settings} & set(HEADS)
    has = {name for name in HEADS if getattr(config, name) is not None}
    if config.classify is not None and config.classify.labels == 0:
        has.remove("classify")  # a bare model's pooler, which it may also lack
    if head.settings.get("classify.labels") == 0:
        wanted.remove("classify")
    return wanted == has


def prefix_of(family: Family, architecture: str) -> str:
    """What this architecture puts before the names of the bare model's tensors."""
    prefix = family.heads[architecture].prefix
    return family.prefix if prefix is None else prefix


def tensors_of(family: Family, config: ModelConfig, architecture: str, prefix: str) -> Iterator[tuple[str, str, str]]:
    """(our name, their names, op) of every module, blocks counted out, heads included."""
    head = family.heads[architecture]
    for entry in family.tensors:
        if entry.when and bool(_get(config, entry.when.lstrip("!"))) == entry.when.startswith("!"):
            continue
        theirs = "|".join(prefix + part for part in entry.theirs.split("|"))
        yield from _count_out(config, entry.ours, theirs, entry.op)
    for entry in head.tensors:
        yield entry.ours, entry.theirs.replace("{prefix}", prefix), entry.op


def copies_of(family: Family, architecture: str, prefix: str) -> dict[str, list[str]]:
    """Names that tied tensors may have a second time → what each has to equal, the first that the model asks for."""
    both = {**family.copies, **family.heads[architecture].copies}
    return {c.replace("{prefix}", prefix): o.replace("{prefix}", prefix).split("|") for c, o in both.items()}


def refuse_code(theirs: Mapping[str, Any]) -> None:
    """Data never names code."""
    for key, value in theirs.items():
        if key.startswith(CODE_FIELDS) and not isinstance(value, bool | None):
            raise ConfigError(
                "C023",
                f"config.json: field {short(key)} names code, which headway never runs",
                "remove the field if the model is of a family headway knows",
            )


def _one_name_each(family: Family, theirs: Mapping[str, Any]) -> Config:
    """The same fields without aliases; two names of one field have to agree."""
    plain = {key: value for key, value in theirs.items() if key not in family.aliases}
    for alias, name in family.aliases.items():
        if alias in theirs and plain.setdefault(name, theirs[alias]) != theirs[alias]:
            both = f"{alias} = {short(theirs[alias])} and {name} = {short(plain[name])}"
            raise ConfigError("C004", f"config.json: {both} are two names of one field", "remove the wrong one")
    return plain


def _refuse_unknown(family: Family, theirs: Mapping[str, Any]) -> None:
    known = {f.theirs for f in family.fields} | set(family.only) | set(family.unused) | IGNORED
    if theirs.get("quantization_config"):
        raise ConfigError(
            "C022",
            f"config.json: quantization_config = {short(theirs['quantization_config'])}; headway reads whole weights",
            "take the model these were made from; headway export MODEL OUT quant=int8 makes it small again",
        )
    for key, value in theirs.items():
        if key in family.only and value != family.only[key] and (value is not None or family.only[key]):
            raise ConfigError(
                "C022",
                f"config.json: {key} = {short(value)}; headway computes {family.name} with {family.only[key]!r}",
            )
        if key not in known and value not in (None, False, 0, "", [], {}):
            raise ConfigError(
                "C021",
                f"config.json: unknown field {short(key)} = {short(value)} for {family.name}{nearest(key, known)}",
                "it may change what the model computes; remove it from config.json if you know that it does not",
            )


def architecture_in(family: Family, theirs: Mapping[str, Any]) -> str:
    """The first of `architectures`; a family's usual one where the file does not say."""
    listed = theirs.get("architectures") or [next(iter(family.heads))]
    name = listed[0] if isinstance(listed, list) else listed
    name = OLD_ARCHITECTURES.get(name, name) if isinstance(name, str) else name
    if not isinstance(name, str) or name not in family.heads:
        known = ", ".join(family.heads)
        raise ConfigError("C024", f"config.json: architecture {short(name)}; for {family.name} headway knows {known}")
    return name


def size_in(flat: Config, path: str) -> int:
    """A size that other settings are computed from, checked before they are."""
    size = flat[path]
    if type(size) is not int or not 0 < size <= MAX_LENGTH:
        raise ConfigError("C003", f"config.json: {path} = {short(size)} is outside 1 … {MAX_LENGTH}")
    return size


def switch(theirs: Mapping[str, Any], name: str, default: bool) -> bool:
    """A field that is on or off; null is off."""
    value = theirs.get(name, default)
    if not isinstance(value, bool | None):
        raise ConfigError("C002", f"config.json: {name} = {short(value)} should be true or false")
    return bool(value)


def with_defaults(fields: tuple[Field, ...], **values: Any) -> tuple[Field, ...]:
    """The same fields, some with another value where they are absent."""
    return tuple(replace(entry, default=values.get(entry.theirs, entry.default)) for entry in fields)


def _special(family: Family, theirs: Mapping[str, Any]) -> Config:
    pairs = {
        "pad": "pad_token_id",
        "bos": "bos_token_id",
        "eos": "eos_token_id",
        "start": "decoder_start_token_id",
    }
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


def _nest(flat: Mapping[str, Any]) -> Config:
    nested: Config = {}
    for path, value in flat.items():
        *parents, last = path.split(".")
        node = nested
        for parent in parents:
            inner = node.setdefault(parent, {})
            if inner is None:  # the head takes this part of the model away
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


def _count_out(config: ModelConfig, ours: str, theirs: str, op: str) -> Iterator[tuple[str, str, str]]:
    side = ours.partition(".")[0]
    stack = {"encoder": config.encoder, "source": config.encoder}.get(side, config.decoder)
    if stack is None:
        return
    for i in range(stack.n_layers) if "{i}" in ours else range(1):
        yield ours.replace("{i}", str(i)), theirs.replace("{i}", str(i)), op
