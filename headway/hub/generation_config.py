"""Generation settings of a model folder: generation_config.json, or config.json in older folders.

headway supports a field of `transformers.GenerationConfig`, or the field has no effect on the text, or a note names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.config.generation import Bias
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.adapter import adapter_base, is_adapter
from headway.hub.download import run_base
from headway.hub.run_names import is_unfinished, run_of
from headway.jsonfile import read_json

FILE = "generation_config.json"
SPECIAL_IDS = {"bos_token_id": "bos", "eos_token_id": "eos", "decoder_start_token_id": "start"}
"""Special ids, which replace those of the model's config: theirs → ours."""
SAMPLING_FIELDS = {name: name for name in ("temperature", "top_k", "top_p", "min_p", "typical_p")}
SAMPLING_FIELDS |= {"epsilon_cutoff": "epsilon", "eta_cutoff": "eta"}
"""Theirs → a field of Sampling."""
OLD_DEFAULTS = {"do_sample": False, "temperature": 1.0, "top_k": 50, "top_p": 1.0, "typical_p": 1.0}
"""Defaults that older versions wrote into every config.json: they have no meaning there."""
SUPPORTED = (
    *SPECIAL_IDS,
    *("do_sample", *SAMPLING_FIELDS, "stop_strings", "max_length", "max_new_tokens", "min_length", "min_new_tokens"),
    *("repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "sequence_bias"),
    *("suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id", "forced_decoder_ids"),
    *("exponential_decay_length_penalty", "num_beams", "length_penalty", "early_stopping", "renormalize_logits"),
)
SPEECH = (
    *("is_multilingual", "lang_to_id", "task_to_id", "language", "task", "return_timestamps", "no_timestamps_token_id"),
    *("prev_sot_token_id", "max_initial_timestamp_index", "alignment_heads"),
)
"""Settings of speech models, which the task that uses such a model reads itself."""
COPIED = (*(name for name in SUPPORTED if name not in SPECIAL_IDS), *SPEECH)
"""Settings that a new folder takes over from its base model's; special ids are in the model's config."""
WITHOUT_EFFECT = {
    **dict.fromkeys(("pad_token_id",), "padding has a mask, so its token does not matter"),
    **dict.fromkeys(("transformers_version", "_from_model_config"), "says what wrote the file"),
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
        "is about speculative decoding, which changes the time and not the text",
    ),
}
"""Fields that do not change the text, and why."""
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
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
"""Fields that headway does not support, and the values that switch them off. A note names those that are on."""


@dataclass(frozen=True)
class GenerationSettings:
    """The generation settings of a folder in headway's words; None or empty where the folder sets nothing."""

    beam: int | None = None
    length_penalty: float | None = None
    longest: int | None = None
    """Most tokens after the decoder's start token, in an encoder–decoder."""
    shortest: int | None = None
    """Fewest of them before the end token."""
    no_repeat: int | None = None
    """No n-gram of this size occurs twice."""
    rules: dict[str, Any] = field(default_factory=dict)
    """Fields of Beam for an encoder–decoder that belong to the model and not to a recipe."""
    sampling: dict[str, Any] = field(default_factory=dict)
    """Fields of Sampling, for a decoder; `max_length` counts the prompt."""
    search: dict[str, Any] = field(default_factory=dict)
    """Fields of Beam, for a decoder with --beam."""
    ignored: dict[str, Any] = field(default_factory=dict)
    """Settings that headway does not support."""

    def fields(self, given: Mapping[str, Any], *, beam: bool = False) -> dict[str, Any]:
        """Fields of Sampling, or of Beam, for a decoder: those of the folder, replaced by those `given`."""
        own = dict(self.search if beam else self.sampling)
        if "max_tokens" in given:
            own.pop("max_length", None)
        return {**own, **given}

    def taken(self, given: Mapping[str, Any], *, beam: bool = False) -> str:
        """The settings of the folder that are in use, in one line; empty if there are none."""
        own = self.search if beam else self.sampling
        used = {name: value for name, value in own.items() if name not in given}
        if "max_tokens" in given:
            used.pop("max_length", None)
        return f"from {FILE}: {_as_text(used)}" if used else ""

    def notes(self, *, encodes: bool) -> tuple[str, ...]:
        """A note on the settings that a decoder, or an encoder–decoder, does not support."""
        apart = ("do_sample", "stop_strings") if encodes else ("num_beams", "forced_bos_token_id")
        found = {name: value for name, value in self.ignored.items() if name in apart or name not in BY_KIND}
        if not found:
            return ()
        hint = "; --beam N turns beam search on" if "num_beams" in found else ""
        return (f"{FILE} has settings that headway does not support: {_as_text(found)}{hint}",)

    @property
    def tokens(self) -> Iterable[int]:
        """All tokens that occur in a rule."""
        for made in (self.rules, self.sampling):
            for name in ("first", "last"):
                yield from [made[name]] if name in made else []
            yield from made.get("first_banned", ())
            yield from (token for sequence in made.get("banned", ()) for token in sequence)
            yield from (token for _, token in made.get("forced", ()))
            yield from (token for bias in made.get("bias", ()) for token in bias.tokens)


BY_KIND = ("do_sample", "stop_strings", "num_beams", "forced_bos_token_id")
"""Fields that are supported for a decoder only, or for an encoder–decoder only."""


def copied_settings(folder: Path | None) -> dict[str, Any]:
    """The settings of a folder that a new folder takes over, as in its files."""
    return {key: value for key, value in _read_settings(folder)[0].items() if key in COPIED}


def special_ids(folder: Path) -> dict[str, Any]:
    """The special ids of generation_config.json, which replace those of config.json."""
    if not (folder / FILE).is_file():
        return {}
    settings = read_json(folder / FILE)
    return {ours: _special_id(settings, name) for name, ours in SPECIAL_IDS.items() if settings.get(name) is not None}


def read_generation(folder: Path | None) -> GenerationSettings:
    """The settings of a folder; empty without a folder or without the files."""
    settings, strange = _read_settings(folder)
    ends = _special_id(settings, "eos_token_id")
    common = _rules(settings, (ends,) if isinstance(ends, int) else ends or ())
    forced = {"first": _as_token(settings, "forced_bos_token_id"), "last": _as_token(settings, "forced_eos_token_id")}
    forced = {key: value for key, value in forced.items() if value is not None}
    decoder = {**common, **{key: value for key, value in forced.items() if key == "last"}, **_lengths(settings)}
    searching = _beam_search(settings)
    penalty = _as_number(settings, "length_penalty", kinds=(int, float))
    return GenerationSettings(
        beam=_as_number(settings, "num_beams"),
        length_penalty=penalty,
        longest=_new_tokens(settings, "max", 1),
        shortest=_new_tokens(settings, "min", 0),
        no_repeat=_as_number(settings, "no_repeat_ngram_size"),
        rules={**common, **forced, **searching},
        sampling={**decoder, **_sampling(settings)},
        search={**decoder, **searching, **({} if penalty is None else {"length_penalty": float(penalty)})},
        ignored=strange | _unsupported(settings),
    )


def _read_settings(folder: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of both files, with generation_config.json first; and the unknown ones."""
    settings: dict[str, Any] = {}
    folder = None if folder is None else run_of(folder)
    if folder is not None and is_adapter(folder) and not (folder / FILE).is_file():
        return _read_settings(adapter_base(folder))
    if folder is not None and is_unfinished(folder):
        return _read_settings(run_base(folder))
    if folder is not None and (folder / "config.json").is_file():
        known = {*SUPPORTED, *UNSUPPORTED, *SPEECH}
        given = {key: value for key, value in read_json(folder / "config.json").items() if key in known}
        settings = {k: v for k, v in given.items() if v is not None and OLD_DEFAULTS.get(k, ...) != v}
    if folder is None or not (folder / FILE).is_file():
        return settings, {}
    own = {key: value for key, value in read_json(folder / FILE).items() if value is not None}
    known = {*SUPPORTED, *UNSUPPORTED, *WITHOUT_EFFECT, *SPEECH}
    return settings | own, {key: value for key, value in own.items() if key not in known}


def _rules(settings: Mapping[str, Any], ends: Iterable[int]) -> dict[str, Any]:
    """Rules for decoders and encoder–decoders alike."""
    banned = _as_sequences(settings, "bad_words_ids") if settings.get("bad_words_ids") else ()
    banned = tuple(row for row in banned if row not in {(end,) for end in ends})  # an end token stays possible
    made: dict[str, Any] = {
        "repetition": _as_number(settings, "repetition_penalty", kinds=(int, float)),
        "no_repeat_source": _as_number(settings, "encoder_no_repeat_ngram_size"),
        "banned": banned + tuple((token,) for token in _as_tokens(settings, "suppress_tokens")),
        "first_banned": _as_tokens(settings, "begin_suppress_tokens"),
        "bias": _sequence_biases(settings),
        "forced": tuple(_forced_tokens(settings)),
        "decay": _decay(settings),
    }
    usual = {"repetition": 1, "no_repeat_source": 0}
    return {key: value for key, value in made.items() if value not in (None, (), usual.get(key))}


def _sampling(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of Sampling. With do_sample, temperature and top_k have the defaults of the format."""
    made: dict[str, Any] = {}
    draws = settings.get("do_sample")
    if draws is not None and type(draws) is not bool:
        raise ConfigError("C002", f"{FILE}: do_sample = {short(draws)} should be true or false")
    if draws is False:
        made["temperature"] = 0.0
    else:
        for name, ours in SAMPLING_FIELDS.items():
            if (value := _as_number(settings, name, kinds=(int,) if name == "top_k" else (int, float))) is not None:
                made[ours] = max(0, value) if name == "top_k" else float(value)
        if draws:
            made = {"temperature": OLD_DEFAULTS["temperature"], "top_k": OLD_DEFAULTS["top_k"], **made}
    if (stops := settings.get("stop_strings")) is not None:
        stops = [stops] if isinstance(stops, str) else stops
        if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
            raise ConfigError("C002", f"{FILE}: stop_strings = {short(stops)} should be strings")
        made["stop_strings"] = tuple(stops)
    return made


def _lengths(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Lengths for a decoder. max_length = 20 is the default of the format and means nothing."""
    made = {
        "max_tokens": _as_number(settings, "max_new_tokens"),
        "min_tokens": _as_number(settings, "min_new_tokens"),
        "max_length": None if "max_new_tokens" in settings else _as_number(settings, "max_length"),
        "min_length": None if "min_new_tokens" in settings else _as_number(settings, "min_length"),
        "no_repeat": _as_number(settings, "no_repeat_ngram_size"),
    }
    usual = {"max_length": 20}
    return {key: value for key, value in made.items() if value and value != usual.get(key)}


def _beam_search(settings: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    early = settings.get("early_stopping")
    if early is not None and early not in (True, False, "never"):
        raise ConfigError("C002", f'{FILE}: early_stopping = {short(early)} should be true, false or "never"')
    if early:
        made["early"] = early
    if settings.get("renormalize_logits") is True:
        made["renormalise"] = True
    return made


def _unsupported(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Unsupported settings, and all of BY_KIND, from which `notes` chooses."""
    found = {}
    for name, off in UNSUPPORTED.items():
        if name in settings and settings[name] not in off and settings[name] not in ([], {}):
            found[name] = settings[name]
    beams = settings.get("num_beams")
    apart = {"num_beams": isinstance(beams, int) and beams > 1, "do_sample": settings.get("do_sample") is True}
    apart |= {name: settings.get(name) is not None for name in ("stop_strings", "forced_bos_token_id")}
    return found | {name: settings[name] for name, is_set in apart.items() if is_set}


def _new_tokens(settings: Mapping[str, Any], bound: str, least: int) -> int | None:
    """max_new_tokens or min_new_tokens; else max_length or min_length, which count the start token too."""
    new, whole = _as_number(settings, f"{bound}_new_tokens"), _as_number(settings, f"{bound}_length")
    if new is None and whole is not None:
        new = whole - 1
    return None if new is None else max(least, new)


def _as_number(settings: Mapping[str, Any], name: str, kinds: tuple[type, ...] = (int,)) -> Any:
    value = settings.get(name)
    if value is not None and type(value) not in kinds:
        raise ConfigError("C002", f"{FILE}: {name} = {short(value)} should be a number")
    return value


def _special_id(settings: Mapping[str, Any], name: str) -> Any:
    """An id, or several as a tuple."""
    value = settings.get(name)
    several = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token) is int for token in several) or (name != "eos_token_id" and isinstance(value, list)):
        raise ConfigError("C002", f"{FILE}: {name} = {short(value)} should be a token's number")
    return tuple(value) if isinstance(value, list) and len(value) > 1 else several[0] if several else None


def _as_token(settings: Mapping[str, Any], name: str) -> int | None:
    value = settings.get(name)
    several = value if isinstance(value, list) and value else [value]
    if value is not None and not all(type(token) is int for token in several):
        raise ConfigError("C002", f"{FILE}: {name} = {short(value)} should be a token's number")
    return None if value is None else min(several)  # of several end tokens, the first in the vocabulary


def _as_tokens(settings: Mapping[str, Any], name: str) -> tuple[int, ...]:
    value = settings.get(name) or []
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise ConfigError("C002", f"{FILE}: {name} = {short(value)} should be a list of token numbers")
    return tuple(value)


def _as_sequences(settings: Mapping[str, Any], name: str) -> tuple[tuple[int, ...], ...]:
    value = settings[name]
    rows = value if isinstance(value, list) else [value]
    if not all(isinstance(row, list) and row and all(type(i) is int for i in row) for row in rows):
        raise ConfigError("C002", f"{FILE}: {name} = {short(value)} should be lists of numbers")
    return tuple(tuple(row) for row in rows)


def _forced_tokens(settings: Mapping[str, Any]) -> Iterable[tuple[int, ...]]:
    """Pairs of forced_decoder_ids: position and token. A position without a token is not forced."""
    value = settings.get("forced_decoder_ids") or []
    for row in value if isinstance(value, list) else [value]:
        if not isinstance(row, list) or len(row) != 2 or not all(type(i) is int for i in row if i is not None):
            raise ConfigError("C002", f"{FILE}: forced_decoder_ids = {short(value)} should be places and tokens")
        if None not in row:
            yield tuple(row)


def _sequence_biases(settings: Mapping[str, Any]) -> tuple[Bias, ...]:
    value = settings.get("sequence_bias") or []
    rows = value if isinstance(value, list) else [value]
    for row in rows:
        fits = isinstance(row, list) and len(row) == 2 and isinstance(row[0], list) and row[0]
        if not fits or type(row[1]) not in (int, float) or not all(type(token) is int for token in row[0]):
            raise ConfigError("C002", f"{FILE}: sequence_bias = {short(value)} should be sequences and numbers")
    return tuple(Bias(tokens=tuple(tokens), value=float(number)) for tokens, number in rows)


def _decay(settings: Mapping[str, Any]) -> tuple[float, ...]:
    value = settings.get("exponential_decay_length_penalty") or []
    if not isinstance(value, list) or len(value) not in (0, 2) or not all(type(n) in (int, float) for n in value):
        message = f"{FILE}: exponential_decay_length_penalty = {short(value)} should be a start and a factor"
        raise ConfigError("C002", message)
    return tuple(map(float, value))


def _as_text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {short(value)}" for name, value in values.items())
