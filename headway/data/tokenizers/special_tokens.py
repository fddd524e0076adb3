"""Special tokens: their usual names, the token of each role, and how a backend treats them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headway.data.tokenizers.bounds import bounded, check_added
from headway.errors import ConfigError, DamagedError

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Backend

WELL_KNOWN = {
    "pad": ("[PAD]", "<pad>"),
    "bos": ("<s>", "<bos>", "<|endoftext|>"),
    "eos": ("</s>", "<eos>", "<|endoftext|>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}
"""Role → its usual names, for folders that do not name the token."""


def add_tokens(backend: Backend, config: Mapping[str, Any], legacy: Mapping[str, Any]) -> None:
    """Add tokens that no vocabulary file contains; each must get the id that the model was trained with."""
    special = {token_of(config, role) for role in WELL_KNOWN}
    try:
        special |= {content_of(x, "a special token") for x in config.get("additional_special_tokens") or ()}
        stated = {int(i): {"content": name, "special": name in special} for name, i in legacy.items()}
        stated |= {int(i): dict(token) for i, token in (config.get("added_tokens_decoder") or {}).items()}
    except (AttributeError, TypeError, ValueError) as cause:
        raise ConfigError("C002", f"added tokens should be given as ids and tokens: {cause}") from cause
    names = {i: content_of(token, f"added token {i}") or "" for i, token in stated.items()}
    with bounded("the list of added tokens"):
        check_added(names.values())
    backend.add_tokens([added_token(token) for _, token in sorted(stated.items())])  # one call: each call sorts all
    for i, name in names.items():
        if (got := backend.token_to_id(name)) != i:
            raise DamagedError("X001", f"the added token {name[:40]!r} should have id {i}, but gets {got}")
    mark_special(backend, [name for name in special if name and backend.token_to_id(name) is not None], config)


def mark_special(backend: Backend, names: Iterable[str], config: Mapping[str, Any]) -> None:
    """Make tokens of the vocabulary special: matched before a text is split, and skipped by decode."""
    said = {token_of(config, role): config.get(f"{role}_token") for role in WELL_KNOWN}
    flags = {name: token for name, token in said.items() if isinstance(token, dict)}
    new = [{"content": n, **flags.get(n, {}), "special": True} for n in set(names) - added_names(backend)]
    backend.add_special_tokens([added_token(token) for token in new])


def added_token(token: Mapping[str, Any]) -> AddedToken:
    from tokenizers import AddedToken

    flags = {key: bool(token.get(key, False)) for key in ("single_word", "lstrip", "rstrip", "special")}
    flags["normalized"] = bool(token.get("normalized", not flags["special"]))
    return AddedToken(token["content"], **flags)


def added_names(backend: Backend) -> set[str]:
    return {token.content for token in backend.get_added_tokens_decoder().values()}


def find_roles(backend: Backend, config: Mapping[str, Any], usual: Container[str]) -> dict[str, str]:
    """Return role → token: the config's token, or else a well-known name that is in `usual`."""
    roles = {}
    for role, names in WELL_KNOWN.items():
        if "<mask>" in usual:  # RoBERTa and similar models use BOS and EOS as CLS and SEP
            names += {"cls": ("<s>",), "sep": ("</s>",)}.get(role, ())
        candidates = [token_of(config, role), *(name for name in names if name in usual)]
        found = next((name for name in candidates if name and backend.token_to_id(name) is not None), None)
        if found:
            roles[role] = found
    return roles


def token_of(config: Mapping[str, Any], role: str) -> str | None:
    return content_of(config.get(f"{role}_token"), f"{role}_token")


def content_of(value: Any, what: str) -> str | None:
    """Return the text of a token, which is a string, or an object with flags in other versions of the file."""
    content = value.get("content") if isinstance(value, dict) else value
    if isinstance(content, str) or value is None:
        return content
    raise ConfigError("C002", f"{what} in tokenizer_config.json is {str(value)[:40]!r}, not a token")


def bool_setting(config: Mapping[str, Any], key: str, default: bool | None) -> Any:
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return default if value is None else value
    raise ConfigError("C002", f"{key} in tokenizer_config.json is {str(value)[:40]!r}, not true or false")
