"""A sentencepiece model as a backend of `tokenizers`, with the same pieces and the model's ids.

The ids are positions in the file, or come from a separate vocabulary, which may contain names that the file lacks. Such
a name must never match a text: it gets a leading space, which no normalized text contains. A low score instead, as is
often used, would change the score of unknown characters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from headway.data.tokenizers.bounds import bounded, check_added
from headway.data.tokenizers.charsmap import charsmap_normalizers
from headway.data.tokenizers.spm_file import BPE, BYTE, NORMAL, USER_DEFINED, SpmModel, unsupported_rule
from headway.errors import DamagedError
from headway.jsonfile import AGAIN, show

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.decoders import Decoder
    from tokenizers.models import Model
    from tokenizers.normalizers import Normalizer

SPACE = "▁"
"""The character for a space in pieces."""
UNREACHABLE = " "
"""Prefix of a piece that must not match."""
MAX_PIECE_CHARACTERS = 128
"""The most characters of a token that merges produce; sentencepiece's own limit is 16, special tokens have more."""
ALL_SPACES = 2**31
"""More spaces than any text has."""


def spm_backend(
    file: SpmModel,
    names: Sequence[str],
    special: Collection[str],
    whole: Collection[str] = (),
    prefix: str | None = None,
) -> Backend:
    """Build a backend with these names, in the order of their ids; `special` and `whole` names are added tokens.

    `prefix` says where a missing space is inserted: "first" at the start of the text, "always" also after every added
    token, "never"; None as sentencepiece itself does, which has no added tokens.
    """
    from tokenizers import AddedToken, pre_tokenizers
    from tokenizers import Tokenizer as Backend

    found = {piece.text: piece.score for piece in file.pieces if piece.kind in (NORMAL, USER_DEFINED)}
    plain = {*found, *special, *whole, *file.of_kind(BYTE)}
    spelled = [name if name in plain else UNREACHABLE + name for name in names]
    scores = {name: found[name] for name in names if name in found}
    _check_normalizer(file)
    backend = Backend(_bpe(file, spelled, scores) if file.model == BPE else _unigram(file, spelled, scores))
    backend.normalizer = _normalizer(file, prepend=file.dummy_prefix and prefix is None)
    by_word = SPACE in scores and not any(SPACE in name[1:] for name in scores)  # no piece crosses into the next word
    if by_word or prefix is not None:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=prefix or "never", split=by_word)
    dummy = file.dummy_prefix if prefix is None else prefix != "never"
    backend.decoder = _decoder(file, dummy, hidden=spelled != list(names))
    with bounded(file.path):
        check_added(name for name in names if name in special or name in whole)
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in names if name in special])
    backend.add_tokens([AddedToken(name, normalized=False) for name in names if name in whole])
    return backend


def _unigram(file: SpmModel, spelled: Sequence[str], scores: Mapping[str, float]) -> Model:
    """A Unigram model. Pieces of the file that `spelled` lacks are dropped: other pieces or <unk> replace them."""
    from tokenizers.models import Unigram

    normal = [piece.score for piece in file.pieces if piece.kind == NORMAL]
    low, high = min(normal, default=0.0), max(normal, default=0.0)
    scores = dict(scores)
    for name in file.of_kind(USER_DEFINED):  # sentencepiece prefers them to any combination of pieces
        scores[name] = max(low, len(name.encode()) * high - 0.1)
    # The lowest score determines that of unknown characters, so no new score may be lower.
    return Unigram([(name, scores.get(name, low)) for name in spelled], spelled.index(file.unk), file.byte_fallback)


def _bpe(file: SpmModel, spelled: Sequence[str], scores: Mapping[str, float]) -> Model:
    from tokenizers.models import BPE

    if (longest := max(map(len, scores), default=0)) > MAX_PIECE_CHARACTERS:
        message = f"{show(file.path)}: a piece of {longest:,} characters; the limit is {MAX_PIECE_CHARACTERS}"
        raise DamagedError("X001", message, AGAIN)
    vocab = {name: i for i, name in enumerate(spelled)}
    merges = merges_from_scores(scores)
    return BPE(vocab=vocab, merges=merges, unk_token=file.unk, fuse_unk=True, byte_fallback=file.byte_fallback)


def merges_from_scores(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return all pairs of tokens that concatenate to a token, by falling score: sentencepiece's order of merges."""
    order = {token: i for i, token in enumerate(scores)}
    pairs = (
        (-score, order[token[:cut]], order[token[cut:]], token[:cut], token[cut:])
        for token, score in scores.items()
        for cut in range(1, len(token))
        if token[:cut] in order and token[cut:] in order
    )
    return [(first, second) for *_, first, second in sorted(pairs)]


def _normalizer(file: SpmModel, prepend: bool) -> Normalizer:
    from tokenizers import Regex
    from tokenizers.normalizers import Prepend, Replace, Sequence

    spaces: list[Normalizer] = [Replace(" ", SPACE)]
    if file.single_spaces:  # also drops a ▁ that the text itself ends with
        single = [Replace(Regex(r"\A +"), ""), Replace(Regex(" {2,}"), " ")]
        spaces = [*single, *spaces, Replace(Regex(rf"{SPACE}+\z"), "")]
    return Sequence([*charsmap_normalizers(file.charsmap), *spaces, *([Prepend(SPACE)] if prepend else [])])


def _check_normalizer(file: SpmModel) -> None:
    """Refuse user-defined pieces that normalization changes: sentencepiece protects them, `tokenizers` cannot."""
    from tokenizers.normalizers import Sequence

    respelled = Sequence(charsmap_normalizers(file.charsmap))
    for name in file.of_kind(USER_DEFINED):
        if respelled.normalize_str(name) != name or (SPACE in name and file.single_spaces):
            raise unsupported_rule(file.path, f"a piece {name[:40]!r} that normalization must not change")


def _decoder(file: SpmModel, dummy: bool, hidden: bool) -> Decoder:
    from tokenizers.decoders import ByteFallback, Fuse, Replace, Sequence, Strip

    shown = [Replace(UNREACHABLE, "")] if hidden else []
    text = [*shown, Replace(SPACE, " "), *([ByteFallback()] if file.byte_fallback else []), Fuse()]
    before = ALL_SPACES if file.single_spaces else int(dummy)
    return Sequence([*text, Strip(" ", before, 0)] if before else text)
