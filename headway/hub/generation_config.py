"""How a model folder says that its model generates: generation_config.json, and config.json in older folders.

Every field of `transformers.GenerationConfig` is followed, or changes no text, or is named in a note where it is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.config.toml import short
from headway.errors import ConfigError
from headway.generate.sampling.rules import Bias
from headway.hub.adapter import adapter_base, is_adapter
from headway.jsonfile import read_json

FILE = "generation_config.json"
SPECIAL = {"bos_token_id": "bos", "eos_token_id": "eos", "decoder_start_token_id": "start"}
"""Ids that become those of the model's config when the folder is opened."""
DRAWN = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "epsilon_cutoff": "epsilon",
    "eta_cutoff": "eta",
}
"""How tokens are drawn: theirs → a field of Sampling."""
USUAL = {"do_sample": False, "temperature": 1.0, "top_k": 50, "top_p": 1.0, "typical_p": 1.0}
"""Values that older versions wrote into every config.json: there they say nothing."""
HONOURED = (
    *SPECIAL,
    *("do_sample", *DRAWN, "stop_strings", "max_length", "max_new_tokens", "min_length", "min_new_tokens"),
    *("repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "sequence_bias"),
    *("suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id", "forced_decoder_ids"),
    *("exponential_decay_length_penalty", "num_beams", "length_penalty", "early_stopping", "renormalize_logits"),
)
KEPT = tuple(name for name in HONOURED if name not in SPECIAL)
"""What a folder keeps that is made from another one; the special ids are in the model's config."""
HARMLESS = {
    **dict.fromkeys(("pad_token_id",), "sequences are padded with a mask, never with a token that counts"),
    **dict.fromkeys(("transformers_version", "_from_model_config"), "says who wrote the file"),
    **dict.fromkeys(
        ("output_attentions", "output_hidden_states", "output_logits", "output_scores", "return_dict_in_generate"),
        "says what else a call returns",
    ),
    **dict.fromkeys(
        (
            *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "prefill_chunk_size", "low_memory"),
            *("compile_config", "disable_compile", "continuous_batching_config"),
        ),
        "changes time and memory, not the text",
    ),
    **dict.fromkeys(
        (
            *("is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_early_exit"),
            *("assistant_confidence_threshold", "assistant_lookbehind", "target_lookbehind", "speculation_type"),
            *("prompt_lookup_num_tokens", "max_matching_ngram_size", "use_mtp"),
        ),
        "is about guesses ahead, which change the time and not the text",
    ),
}
"""Fields that change no text, and why."""
NOT_HONOURED: dict[str, tuple[Any, ...]] = {
    "assistant_ensemble_weight": (0.0,),
    "constraints": (),
    "diversity_penalty": (0.0,),
    "dola_layers": (),
    "encoder_repetition_penalty": (1.0,),
    "force_words_ids": (),
    "guidance_scale": (1.0,),
    "max_time": (),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0.0,),
    "remove_invalid_values": (False,),
    "token_healing": (False,),
    "top_h": (),
    "watermarking_config": (),
}
"""Fields that a note names, and the values that switch them off."""


@dataclass(frozen=True)
class GenerationSettings:
    """What a folder says, as values of the settings that it stands for; None or nothing where it says nothing."""

    beam: int | None = None
    length_penalty: float | None = None
    longest: int | None = None
    """Tokens after the one that the decoder of an encoder–decoder starts from."""
    shortest: int | None = None
    """Of these, those before the end may come."""
    no_repeat: int | None = None
    """Tokens in a row that are not written twice."""
    rules: dict[str, Any] = field(default_factory=dict)
    """Fields of an encoder–decoder's Beam that belong to the model: a recipe has no say in them."""
    sampling: dict[str, Any] = field(default_factory=dict)
    """Fields of Sampling, for a decoder; `max_length` counts the prompt."""
    search: dict[str, Any] = field(default_factory=dict)
    """Fields of Beam, for a decoder whose beams somebody asks for."""
    ignored: dict[str, Any] = field(default_factory=dict)
    """What is not followed."""

    def fields(self, given: Mapping[str, Any], *, beam: bool = False) -> dict[str, Any]:
        """Fields of Sampling, or of Beam, for a decoder: the folder's, unless somebody gave their own."""
        own = dict(self.search if beam else self.sampling)
        if "max_tokens" in given:
            own.pop("max_length", None)
        return {**own, **given}

    def taken(self, given: Mapping[str, Any], *, beam: bool = False) -> str:
        """In one line, which of the folder's settings are in use; empty where there are none."""
        own = self.search if beam else self.sampling
        used = {name: value for name, value in own.items() if name not in given}
        if "max_tokens" in given:
            used.pop("max_length", None)
        return f"from {FILE}: {_listed(used)}" if used else ""

    def notes(self, *, encodes: bool) -> tuple[str, ...]:
        """What of it a decoder, or an encoder–decoder, does not follow."""
        apart = ("do_sample", "stop_strings") if encodes else ("num_beams", "forced_bos_token_id")
        found = {name: value for name, value in self.ignored.items() if name in apart or name not in BY_KIND}
        if not found:
            return ()
        hint = "; --beam N asks for a beam search" if "num_beams" in found else ""
        return (f"{FILE} sets what headway does not follow: {_listed(found)}{hint}",)

    @property
    def tokens(self) -> Iterable[int]:
        """Every token that a rule names."""
        for made in (self.rules, self.sampling):
            for name in ("first", "last"):
                yield from [made[name]] if name in made else []
            yield from made.get("first_banned", ())
            yield from (token for sequence in made.get("banned", ()) for token in sequence)
            yield from (token for _, token in made.get("forced", ()))
            yield from (token for bias in made.get("bias", ()) for token in bias.tokens)


BY_KIND = ("do_sample", "stop_strings", "num_beams", "forced_bos_token_id")
"""Fields that one kind of model follows and the other does not."""


def rules_in(folder: Path | None) -> dict[str, Any]:
    """What a folder says that is followed, as its files have it."""
    return {key: value for key, value in _said(folder)[0].items() if key in KEPT}


def special_in(folder: Path) -> dict[str, Any]:
    """The special ids that generation_config.json has, which win over those of config.json."""
    if not (folder / FILE).is_file():
        return {}
    said = read_json(folder / FILE)
    return {ours: _ends(said, name) for name, ours in SPECIAL.items() if said.get(name) is not None}


def read_generation(folder: Path | None) -> GenerationSettings:
    """Of a folder; without one, or without the files, nothing is said."""
    said, strange = _said(folder)
    ends = _ends(said, "eos_token_id")
    common = _common(said, (ends,) if isinstance(ends, int) else ends or ())
    forced = {"first": _token(said, "forced_bos_token_id"), "last": _token(said, "forced_eos_token_id")}
    forced = {key: value for key, value in forced.items() if value is not None}
    decoder = {**common, **{key: value for key, value in forced.items() if key == "last"}, **_lengths(said)}
    searching = _searching(said)
    penalty = _number(said, "length_penalty", kinds=(int, float))
    return GenerationSettings(
        beam=_number(said, "num_beams"),
        length_penalty=penalty,
        longest=_new_tokens(said, "max", 1),
        shortest=_new_tokens(said, "min", 0),
        no_repeat=_number(said, "no_repeat_ngram_size"),
        rules={**common, **forced, **searching},
        sampling={**decoder, **_drawing(said)},
        search={**decoder, **searching, **({} if penalty is None else {"length_penalty": float(penalty)})},
        ignored=strange | _ignored(said),
    )


def _said(folder: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the two files say of generation, the newer place before the older; and what nobody knows."""
    said: dict[str, Any] = {}
    if folder is not None and is_adapter(folder) and not (folder / FILE).is_file():
        return _said(adapter_base(folder))
    if folder is not None and (folder / "config.json").is_file():
        known = {*HONOURED, *NOT_HONOURED}
        said = {key: value for key, value in read_json(folder / "config.json").items() if key in known}
        said = {key: value for key, value in said.items() if value is not None and USUAL.get(key, ...) != value}
    if folder is None or not (folder / FILE).is_file():
        return said, {}
    own = {key: value for key, value in read_json(folder / FILE).items() if value is not None}
    known = {*HONOURED, *NOT_HONOURED, *HARMLESS}
    return said | own, {key: value for key, value in own.items() if key not in known}


def _common(said: Mapping[str, Any], ends: Iterable[int]) -> dict[str, Any]:
    """Rules of a decoder and of an encoder–decoder."""
    banned = _sequences(said, "bad_words_ids") if said.get("bad_words_ids") else ()
    banned = tuple(row for row in banned if row not in {(end,) for end in ends})  # a text may end
    made: dict[str, Any] = {
        "repetition": _number(said, "repetition_penalty", kinds=(int, float)),
        "no_repeat_source": _number(said, "encoder_no_repeat_ngram_size"),
        "banned": banned + tuple((token,) for token in _tokens(said, "suppress_tokens")),
        "first_banned": _tokens(said, "begin_suppress_tokens"),
        "bias": _biases(said),
        "forced": tuple(_places(said)),
        "decay": _decay(said),
    }
    usual = {"repetition": 1, "no_repeat_source": 0}
    return {key: value for key, value in made.items() if value not in (None, (), usual.get(key))}


def _drawing(said: Mapping[str, Any]) -> dict[str, Any]:
    """How tokens are drawn. A folder that says so without a temperature means the usual values of its format."""
    made: dict[str, Any] = {}
    draws = said.get("do_sample")
    if draws is not None and type(draws) is not bool:
        raise ConfigError("C002", f"{FILE}: do_sample = {short(draws)} should be true or false")
    if draws is False:
        made["temperature"] = 0.0
    else:
        for name, ours in DRAWN.items():
            if (value := _number(said, name, kinds=(int,) if name == "top_k" else (int, float))) is not None:
                made[ours] = max(0, value) if name == "top_k" else float(value)
        if draws:
            made = {"temperature": USUAL["temperature"], "top_k": USUAL["top_k"], **made}
    if (stops := said.get("stop_strings")) is not None:
        stops = [stops] if isinstance(stops, str) else stops
        if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
            raise ConfigError("C002", f"{FILE}: stop_strings = {short(stops)} should be strings")
        made["stop_strings"] = tuple(stops)
    return made


def _lengths(said: Mapping[str, Any]) -> dict[str, Any]:
    """Of a decoder. 20 tokens in all is what the format means by nothing."""
    made = {
        "max_tokens": _number(said, "max_new_tokens"),
        "min_tokens": _number(said, "min_new_tokens"),
        "max_length": None if "max_new_tokens" in said else _number(said, "max_length"),
        "min_length": None if "min_new_tokens" in said else _number(said, "min_length"),
        "no_repeat": _number(said, "no_repeat_ngram_size"),
    }
    usual = {"max_length": 20}
    return {key: value for key, value in made.items() if value and value != usual.get(key)}


def _searching(said: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    early = said.get("early_stopping")
    if early is not None and early not in (True, False, "never"):
        raise ConfigError("C002", f'{FILE}: early_stopping = {short(early)} should be true, false or "never"')
    if early:
        made["early"] = early
    if said.get("renormalize_logits") is True:
        made["renormalise"] = True
    return made


def _ignored(said: Mapping[str, Any]) -> dict[str, Any]:
    """What is not followed; of BY_KIND, not by every kind of model."""
    found = {}
    for name, off in NOT_HONOURED.items():
        if name in said and said[name] not in off and said[name] not in ([], {}):
            found[name] = said[name]
    beams = said.get("num_beams")
    apart = {"num_beams": isinstance(beams, int) and beams > 1, "do_sample": said.get("do_sample") is True}
    apart |= {name: said.get(name) is not None for name in ("stop_strings", "forced_bos_token_id")}
    return found | {name: said[name] for name, is_set in apart.items() if is_set}


def _new_tokens(said: Mapping[str, Any], bound: str, least: int) -> int | None:
    """max_length and min_length count the token that a decoder starts from; their newer forms do not, and win."""
    new, whole = _number(said, f"{bound}_new_tokens"), _number(said, f"{bound}_length")
    if new is None and whole is not None:
        new = whole - 1
    return None if new is None else max(least, new)


def _number(said: Mapping[str, Any], name: str, kinds: tuple[type, ...] = (int,)) -> Any:
    value = said.get(name)
    if value is not None and type(value) not in kinds:
        raise ConfigError("C002", f"{FILE}: {name} = {short(value)} should be a number")
    return value


def _ends(said: Mapping[str, Any], name: str) -> Any:
    """An id, or several, as a tuple."""
    value = said.get(name)
    several = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token) is int for token in several) or (name != "eos_token_id" and isinstance(value, list)):
        raise ConfigError("C002", f"{FILE}: {name} = {short(value)} should be a token's number")
    return tuple(value) if isinstance(value, list) and len(value) > 1 else several[0] if several else None


def _token(said: Mapping[str, Any], name: str) -> int | None:
    value = said.get(name)
    several = value if isinstance(value, list) and value else [value]
    if value is not None and not all(type(token) is int for token in several):
        raise ConfigError("C002", f"{FILE}: {name} = {short(value)} should be a token's number")
    return None if value is None else min(several)  # of several ends, all free: the first in the vocabulary


def _tokens(said: Mapping[str, Any], name: str) -> tuple[int, ...]:
    value = said.get(name) or []
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise ConfigError("C002", f"{FILE}: {name} = {short(value)} should be a list of token numbers")
    return tuple(value)


def _sequences(said: Mapping[str, Any], name: str) -> tuple[tuple[int, ...], ...]:
    value = said[name]
    rows = value if isinstance(value, list) else [value]
    if not all(isinstance(row, list) and row and all(type(i) is int for i in row) for row in rows):
        raise ConfigError("C002", f"{FILE}: {name} = {short(value)} should be lists of numbers")
    return tuple(tuple(row) for row in rows)


def _places(said: Mapping[str, Any]) -> Iterable[tuple[int, ...]]:
    """Of forced_decoder_ids; a place without a token is free."""
    value = said.get("forced_decoder_ids") or []
    for row in value if isinstance(value, list) else [value]:
        if not isinstance(row, list) or len(row) != 2 or not all(type(i) is int for i in row if i is not None):
            raise ConfigError("C002", f"{FILE}: forced_decoder_ids = {short(value)} should be places and tokens")
        if None not in row:
            yield tuple(row)


def _biases(said: Mapping[str, Any]) -> tuple[Bias, ...]:
    value = said.get("sequence_bias") or []
    rows = value if isinstance(value, list) else [value]
    for row in rows:
        fits = isinstance(row, list) and len(row) == 2 and isinstance(row[0], list) and row[0]
        if not fits or type(row[1]) not in (int, float) or not all(type(token) is int for token in row[0]):
            raise ConfigError("C002", f"{FILE}: sequence_bias = {short(value)} should be sequences and numbers")
    return tuple(Bias(tokens=tuple(tokens), value=float(number)) for tokens, number in rows)


def _decay(said: Mapping[str, Any]) -> tuple[float, ...]:
    value = said.get("exponential_decay_length_penalty") or []
    if not isinstance(value, list) or len(value) not in (0, 2) or not all(type(n) in (int, float) for n in value):
        message = f"{FILE}: exponential_decay_length_penalty = {short(value)} should be a start and a factor"
        raise ConfigError("C002", message)
    return tuple(map(float, value))


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {short(value)}" for name, value in values.items())
