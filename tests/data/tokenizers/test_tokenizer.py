"""headway's tokenizer against `transformers` on tiny vocabularies trained here, and against broken files."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from headway.data.tokenizers.tokenizer import Encoded, Tokenizer, load_tokenizer
from headway.errors import (
    ConfigError,
    DamagedError,
    DataError,
    HeadwayError,
    NotFoundError,
)

SHARED = Path(__file__).parents[3] / "shared/data/tokenizers"

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog does not care.",
    "Quick! quicker, quickest: foxes were seen running; nobody's dog didn't run.",
    "Ein Café in Zürich, naïve façade, élève, coöperate. ÀÉÎÕÜ",
    "数字 1234567890, 中文 和 日本語 and 한국어; <s> is a tag, not a mark </s> here",
    "# one ## two ### three #### four ## a merge may start like a comment ##",
    "def f(x):\n    return x ** 2  # two  spaces\n\n\ttab",
]
TRICKY = [
    "",
    " ",
    "   ",
    "\n\n \t\r\n",
    "The  quick   brown fox",
    " leading and trailing ",
    "Unbelievably QUICKEST foxes!!! don't they're I'll",
    "naïve café ZÜRICH e\u0301le\u0300ve \u00c5 A\u030a \ufb01ne",
    "数字和中文mixed日本語ひらがな한국어",
    "emoji 🦙👩‍👩‍👧‍👦 👍🏽 flags 🇨🇭",
    "zero\u200bwidth\u00a0nbsp\u3000ideographic\ufeffbom\u2028line",
    "control\x00\x01\x7fchars\ufffd",
    "[CLS] the [MASK] dog [SEP] [mask]",
    "<s>the <mask> dog</s> the<mask><pad><unk>",
    "fox<|endoftext|>dog",
    "x" * 150 + " y",
    "1234567890 3.14159 ½ ² ①",
    "שלום مرحبا привет ελληνικά हिन्दी",
]
PAIRS = [("the dog", "a fox"), ("", ""), ("the dog", ""), ("", "naïve 数字"), ("  two ", "\nlines\n")]


def write(path: Path, content: Any) -> None:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


@functools.cache
def word_pieces() -> list[str]:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    backend.train_from_iterator([*CORPUS, *(line.lower() for line in CORPUS)], trainer)
    vocab = backend.get_vocab()
    return sorted(vocab, key=lambda token: vocab[token])


def write_word_piece(folder: Path, config: dict[str, Any] | None = None) -> Path:
    """A folder as the first BERT releases had it: vocab.txt, one entry a line."""
    folder.mkdir(exist_ok=True)
    write(folder / "vocab.txt", "\n".join(word_pieces()) + "\n")
    write(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", **(config or {})})
    return folder


def write_byte_bpe(
    folder: Path,
    special: list[str],
    config: dict[str, Any] | None = None,
    names: tuple[str, str] = ("vocab.json", "merges.txt"),
) -> Path:
    """A folder as the first GPT-2 and RoBERTa releases had it."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(CORPUS * 3, trainer)
    model = json.loads(backend.to_str())["model"]
    folder.mkdir(exist_ok=True)
    write(folder / names[0], model["vocab"])
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    write(folder / names[1], "#version: 0.2\n" + "\n".join(merges) + "\n")
    if config is not None:
        write(folder / "tokenizer_config.json", config)
    return folder


GPT2 = ["<|endoftext|>"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
OPT = {"tokenizer_class": "GPT2Tokenizer", "pad_token": "<pad>", "add_bos_token": True}
OPT |= {f"{role}_token": {"__type": "AddedToken", "content": "</s>"} for role in ("bos", "eos", "unk")}
BART = {"tokenizer_class": "BartTokenizer", "add_prefix_space": True}
BART |= {"mask_token": {"__type": "AddedToken", "content": "<mask>", "rstrip": True}}
MASK = tokenizers.AddedToken("<mask>", lstrip=True, special=True, normalized=False)
FOLDERS: dict[str, tuple[list[str], dict[str, Any] | None, str, dict[str, Any]]] = {
    "bert": ([], None, "Bert", {}),
    "bert-cased": ([], {"do_lower_case": False}, "Bert", {}),
    "bert-accents": ([], {"strip_accents": False, "tokenize_chinese_chars": False}, "Bert", {}),
    "gpt2": (GPT2, None, "GPT2", {}),
    "gpt2-prefix": (GPT2, {"add_prefix_space": True}, "GPT2", {}),
    "opt": (ROBERTA[:4], OPT, "GPT2", {}),
    # Version 5 forgets that the mask takes the space before it, as every published RoBERTa has it.
    "roberta": (ROBERTA, None, "Roberta", {"mask_token": MASK}),
    "bart-prefix": (ROBERTA, BART, "Bart", {}),
}
"""Special tokens, config, the class of transformers, and its arguments."""


@pytest.fixture(scope="module", params=FOLDERS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any]:
    special, config, kind, more = FOLDERS[request.param]
    folder = tmp_path_factory.mktemp("old") / request.param
    folder = write_byte_bpe(folder, special, config) if special else write_word_piece(folder, config)
    return load_tokenizer(folder), getattr(transformers, f"{kind}Tokenizer").from_pretrained(folder, **more)


def assert_same(ours: Encoded, theirs: tokenizers.Encoding) -> None:
    assert ours.ids == theirs.ids
    assert ours.token_type_ids == theirs.type_ids
    assert ours.offsets == theirs.offsets
    assert ours.words == theirs.word_ids


def oracle_encode(oracle: Any, text: str, pair: str | None = None, special: bool = True) -> tokenizers.Encoding:
    """A batch of one: given alone, an empty second text counts as none there, and in a batch it counts."""
    texts = [text] if pair is None else [(text, pair)]
    found: tokenizers.Encoding = oracle(texts, add_special_tokens=special).encodings[0]
    return found


@pytest.mark.parametrize("special", [True, False])
def test_old_files_equal_transformers(both: tuple[Tokenizer, Any], special: bool) -> None:
    ours, oracle = both
    assert len(ours) == ours.vocab_size == len(oracle)
    for text in [*CORPUS, *TRICKY]:
        encoded = ours.encode(text, special=special)
        assert_same(encoded, oracle_encode(oracle, text, special=special))
        assert ours.pieces(encoded.ids) == oracle.convert_ids_to_tokens(encoded.ids)
        for skip in (True, False):
            assert ours.decode(encoded.ids, skip_special=skip) == oracle.decode(encoded.ids, skip_special_tokens=skip)


@pytest.mark.parametrize("special", [True, False])
def test_pairs_equal_transformers(both: tuple[Tokenizer, Any], special: bool) -> None:
    ours, oracle = both
    for text, pair in PAIRS:
        assert_same(ours.encode(text, pair, special=special), oracle_encode(oracle, text, pair, special))


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_equals_transformers(both: tuple[Tokenizer, Any], text: str) -> None:
    ours, oracle = both
    assert_same(ours.encode(text, text[::-1]), oracle_encode(oracle, text, text[::-1]))


@settings(max_examples=30, deadline=None)
@given(words=st.lists(st.sampled_from(["the", " ", "é", "\n", "数", "<mask>", "</s>", "[MASK]", "<|endoftext|>"])))
def test_special_tokens_in_a_text_equal_transformers(both: tuple[Tokenizer, Any], words: list[str]) -> None:
    ours, oracle = both
    text = "".join(words)
    assert_same(ours.encode(text), oracle_encode(oracle, text))


def test_offsets_count_characters(both: tuple[Tokenizer, Any]) -> None:
    ours, _ = both
    text = "数字 👍🏽 café dog"
    start, end = ours.encode(text).offsets[-1 if "sep" not in ours.special else -2]
    assert text[start:end].strip() and end == len(text)


def test_batch_equals_one_by_one(both: tuple[Tokenizer, Any]) -> None:
    ours, _ = both
    assert ours.encode_batch(TRICKY) == [ours.encode(text) for text in TRICKY]
    texts, seconds = [a for a, _ in PAIRS], [b for _, b in PAIRS]
    assert ours.encode_batch(texts, seconds, special=False) == [ours.encode(*p, special=False) for p in PAIRS]
    assert ours.encode_batch([]) == []


@pytest.mark.parametrize("model_type", [None, "bert", "gpt2", "roberta", "llama"])
def test_saved_folder_opens_in_headway_and_transformers(
    both: tuple[Tokenizer, Any], tmp_path: Path, model_type: str | None
) -> None:
    """The class named by a model's config.json must not bring its own rules."""
    ours, _ = both
    ours.save(tmp_path)
    if model_type:
        write(tmp_path / "config.json", {"model_type": model_type})
        oracle = transformers.AutoTokenizer.from_pretrained(tmp_path)
    else:
        oracle = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    again = load_tokenizer(tmp_path)
    assert (again.special, len(again)) == (ours.special, len(ours))
    assert {role: getattr(oracle, f"{role}_token_id") for role in ours.special} == ours.special
    for text in TRICKY:
        assert again.encode(text) == ours.encode(text)
        assert_same(ours.encode(text), oracle_encode(oracle, text))
    for pair in PAIRS:
        assert again.encode(*pair) == ours.encode(*pair)
        assert_same(ours.encode(*pair), oracle_encode(oracle, *pair))


def test_old_files_equal_tokenizer_json(both: tuple[Tokenizer, Any], tmp_path: Path) -> None:
    """The file that `transformers` writes for the same vocabulary."""
    ours, oracle = both
    oracle.save_pretrained(tmp_path)
    other = load_tokenizer(tmp_path)
    assert other.encode_batch(TRICKY) == ours.encode_batch(TRICKY)
    assert ours.special.items() <= other.special.items()


def test_segments_are_asked_for_only_where_a_model_has_them(both: tuple[Tokenizer, Any], tmp_path: Path) -> None:
    ours, oracle = both
    ours.save(tmp_path)
    asked = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))["model_input_names"]
    assert set(asked) == set(oracle.model_input_names)


def test_openai_names(tmp_path: Path) -> None:
    old = load_tokenizer(write_byte_bpe(tmp_path / "new", GPT2))
    openai = load_tokenizer(write_byte_bpe(tmp_path / "openai", GPT2, names=("encoder.json", "vocab.bpe")))
    assert openai.encode_batch(TRICKY) == old.encode_batch(TRICKY)


def test_tokenizer_json_wins_and_neither_pads_nor_truncates(tmp_path: Path) -> None:
    plain = load_tokenizer(write_word_piece(tmp_path / "plain"))
    texts = ["the dog", "the quick brown fox jumps over the lazy dog"]
    expected = plain.encode_batch(texts)
    plain.backend.enable_truncation(4)
    plain.backend.enable_padding(length=32)
    plain.backend.save(str(tmp_path / "plain/tokenizer.json"))
    write(tmp_path / "plain/vocab.txt", "broken")
    assert load_tokenizer(tmp_path / "plain").encode_batch(texts) == expected


def test_roles_from_config_then_map_then_names(tmp_path: Path) -> None:
    folder = write_byte_bpe(tmp_path, [*ROBERTA, "<begin>", "<end>"], {"bos_token": "<begin>", "eos_token": None})
    write(folder / "special_tokens_map.json", {"bos_token": "<s>", "eos_token": {"content": "<end>"}})
    tokenizer = load_tokenizer(folder)
    names = dict(zip(tokenizer.special, tokenizer.pieces(list(tokenizer.special.values())), strict=True))
    usual = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    assert names == usual | {"bos": "<begin>", "eos": "<end>"}
    assert tokenizer.decode(tokenizer.encode("<begin>the dog<end>").ids) == "the dog"


def test_roles_without_any_config(tmp_path: Path) -> None:
    write_byte_bpe(tmp_path, ROBERTA)
    expected = load_tokenizer(tmp_path)
    expected.save(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    assert load_tokenizer(tmp_path).special == expected.special
    assert expected.special.keys() == {"pad", "bos", "eos", "unk", "cls", "sep", "mask"}


def test_a_role_whose_token_is_absent_is_absent(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_byte_bpe(tmp_path, GPT2, {"pad_token": "[PAD]"}))
    assert tokenizer.special.keys() == {"bos", "eos"}


def test_marks_that_merges_can_build_are_text(tmp_path: Path) -> None:
    """A GPT-2 vocabulary may contain "<s>" as a piece of HTML; that makes it no RoBERTa."""
    write_byte_bpe(tmp_path, GPT2)
    vocab = json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))
    steps = [("<", "s"), ("<s", ">"), ("<", "/"), ("</", "s"), ("</s", ">")]
    for first, second in steps:
        vocab.setdefault(first + second, len(vocab))
    write(tmp_path / "vocab.json", vocab)
    with (tmp_path / "merges.txt").open("a", encoding="utf-8") as file:
        file.writelines(f"{first} {second}\n" for first, second in steps)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.special == {"bos": 0, "eos": 0}
    assert tokenizer.decode(tokenizer.encode("the<s>dog</s>").ids) == "the<s>dog</s>"
    for name in ("BartTokenizer", "RobertaTokenizerFast"):  # unless the folder says it is one
        write(tmp_path / "tokenizer_config.json", {"tokenizer_class": name})
        assert load_tokenizer(tmp_path).encode("").ids == [vocab["<s>"], vocab["</s>"]]


@pytest.mark.parametrize("modern", [True, False])
def test_tokens_added_after_training(tmp_path: Path, modern: bool) -> None:
    folder = write_byte_bpe(tmp_path, GPT2, {"pad_token": "[PAD]", "additional_special_tokens": ["<user>"]})
    size = len(load_tokenizer(folder))
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    added = {"[PAD]": size, "<user>": size + 1, "plain": size + 2}
    if modern:
        config["added_tokens_decoder"] = {
            str(i): {
                "content": name,
                "special": name != "plain",
                "normalized": name == "plain",
                "lstrip": True,
            }
            for name, i in added.items()
        }
        write(folder / "tokenizer_config.json", config)
    write(folder / "added_tokens.json", added)
    ours, oracle = load_tokenizer(folder), transformers.GPT2Tokenizer.from_pretrained(folder)
    assert len(ours) == size + 3 and ours.special["pad"] == size
    text = "the <user>dog is plainly[PAD]"
    assert_same(ours.encode(text), oracle_encode(oracle, text))
    assert ours.decode(ours.encode(text).ids) == ("thedog isplainly" if modern else "the dog is plainly")


def test_added_token_with_another_id_is_refused(tmp_path: Path) -> None:
    write_byte_bpe(tmp_path, GPT2)
    write(tmp_path / "added_tokens.json", {"<user>": 9999})
    with pytest.raises(DamagedError, match="9999"):
        load_tokenizer(tmp_path)


def test_vocab_size_covers_every_id(tmp_path: Path) -> None:
    """A doubled line leaves fewer tokens than rows."""
    folder = write_word_piece(tmp_path)
    before = len(load_tokenizer(folder))
    lines = (folder / "vocab.txt").read_text(encoding="utf-8") + "the\nlast\n"
    write(folder / "vocab.txt", lines.replace("\n", "\r\n"))
    tokenizer = load_tokenizer(folder)
    assert len(tokenizer) == before + 2 and tokenizer.pieces([before + 1]) == ["last"]
    assert tokenizer.encode("the last", special=False).ids == [before, before + 1]


def test_save_keeps_settings_and_drops_code(tmp_path: Path) -> None:
    kept = {"chat_template": "{{ x }}", "model_max_length": 512, "padding_side": "left"}
    code = {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}, "tokenizer_class": "os.system"}
    tokenizer = load_tokenizer(write_word_piece(tmp_path / "a", {**kept, **code}))
    tokenizer.save(tmp_path / "b/c")
    saved = json.loads((tmp_path / "b/c/tokenizer_config.json").read_text(encoding="utf-8"))
    assert kept.items() <= saved.items()
    assert "evil" not in str(saved) and "os.system" not in str(saved)


def test_a_fresh_backend_makes_a_tokenizer() -> None:
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2, "<pad>": 3}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = Tokenizer(backend, {"unk_token": "?"})
    assert tokenizer.special == {"unk": 2, "pad": 3}
    assert tokenizer.encode("a c <pad>").ids == [0, 2, 3]


def test_ids_outside_the_vocabulary(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_byte_bpe(tmp_path, GPT2))
    ids = tokenizer.encode("dog").ids
    assert tokenizer.decode([*ids, 10_000]) == "dog"
    assert tokenizer.pieces([10_000]) == [""]
    for bad in (-100, 2**32):
        for method in (tokenizer.decode, tokenizer.pieces):
            with pytest.raises(DataError, match=str(bad)):
                method([bad])


def test_text_that_is_not_unicode(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_byte_bpe(tmp_path, GPT2))
    for call in (
        lambda: tokenizer.encode("dog \ud83d"),
        lambda: tokenizer.encode_batch(["a"], ["dog \udc00"]),
    ):
        with pytest.raises(DataError, match="character 4"):
            call()
    with pytest.raises(DataError, match="2 texts but 1"):
        tokenizer.encode_batch(["a", "b"], ["c"])


def test_no_files_lists_what_was_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "vocab.json", {"a": 0})
    with pytest.raises(NotFoundError) as caught:
        load_tokenizer(tmp_path)
    assert caught.value.code == "F005"
    for name in ("tokenizer.json", "vocab.txt", "vocab.json + merges.txt", "encoder.json + vocab.bpe", "spiece.model"):
        assert name in caught.value.message
    assert caught.value.message.endswith("found vocab.json")
    with pytest.raises(NotFoundError) as caught:
        load_tokenizer(tmp_path / "absent")
    assert caught.value.code == "F001"


def test_files_with_unknown_rules_are_refused(tmp_path: Path) -> None:
    folder = write_word_piece(tmp_path / "japanese", {"tokenizer_class": "BertJapaneseTokenizer"})
    with pytest.raises(NotFoundError, match="BertJapaneseTokenizer") as caught:
        load_tokenizer(folder)
    assert caught.value.code == "F005" and "save_pretrained" in caught.value.hint
    folder = write_byte_bpe(tmp_path / "ends", GPT2)
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    write(folder / "vocab.json", vocab | {"dog</w>": len(vocab)})
    with pytest.raises(NotFoundError, match="</w>"):
        load_tokenizer(folder)


BROKEN: list[tuple[dict[str, Any], str, str]] = [
    ({"tokenizer.json": '{"version": "1.0", "model": {"type": "BPE", "voc'}, "C001", "tokenizer.json"),
    ({"tokenizer.json": "[" * 200_000}, "C001", "tokenizer.json"),
    ({"tokenizer.json": ""}, "C001", "tokenizer.json"),
    ({"tokenizer.json": "[]"}, "C001", "tokenizer.json"),
    ({"tokenizer.json": {"model": {"type": "Magic"}}}, "X001", "tokenizer.json"),
    ({"tokenizer.json": b'{"\xff": 1}'}, "X001", "tokenizer.json"),
    ({"vocab.txt": "the\ndog\n"}, "X001", "[UNK]"),
    ({"vocab.txt": ""}, "X001", "vocab.txt"),
    ({"vocab.txt": b"[UNK]\n\xff\xfe\n"}, "X001", "byte 6"),
    ({"vocab.json": "{", "merges.txt": ""}, "C001", "vocab.json"),
    ({"vocab.json": ["a"], "merges.txt": ""}, "C001", "vocab.json"),
    ({"vocab.json": '{"a": ' * 200_000, "merges.txt": ""}, "C001", "vocab.json"),
    ({"vocab.json": {"a": "0"}, "merges.txt": ""}, "X001", "'a'"),
    ({"vocab.json": {"a": True}, "merges.txt": ""}, "X001", "'a'"),
    ({"vocab.json": {"a": -1}, "merges.txt": ""}, "X001", "'-1'"),
    ({"vocab.json": {"a": {"b": 1}}, "merges.txt": ""}, "X001", "vocab.json"),
    ({"vocab.json": '{"a": ' + "9" * 5000 + "}", "merges.txt": ""}, "C001", "vocab.json"),
    ({"vocab.json": {"a": 0, "b": 0}, "merges.txt": ""}, "X001", "same id"),
    ({"vocab.json": {"a": 0, "b": 1}, "merges.txt": "#version\na b\n"}, "X001", "merges.txt:2: 'ab'"),
    ({"vocab.json": {"a": 0, "b": 1}, "merges.txt": "a c\n"}, "X001", "merges.txt:1: 'c'"),
    ({"vocab.json": {"a": 0, "b": 1}, "merges.txt": "a\n"}, "X001", "merges.txt:1"),
    ({"vocab.json": {"a": 0, "b": 1}, "merges.txt": "a b a\n"}, "X001", "merges.txt:1"),
    ({"vocab.json": {"a": 0}, "merges.txt": b"\xff"}, "X001", "merges.txt"),
    (
        {"vocab.json": {"a": 0}, "merges.txt": "", "tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer"}},
        "X001",
        "'<s>'",
    ),
    ({"tokenizer_config.json": "{"}, "C001", "tokenizer_config.json"),
    ({"tokenizer_config.json": "[" * 200_000}, "C001", "tokenizer_config.json"),
    ({"tokenizer_config.json": "7"}, "C001", "tokenizer_config.json"),
    ({"special_tokens_map.json": "nonsense"}, "C001", "special_tokens_map.json"),
]
VALID_WORD_PIECE = "[UNK]\n[CLS]\n[SEP]\na\n"
BAD_SETTINGS: list[dict[str, Any]] = [
    {"do_lower_case": "yes"},
    {"strip_accents": 1},
    {"pad_token": 7},
    {"pad_token": {"lstrip": True}},
    {"pad_token": {"content": 3}},
    {"added_tokens_decoder": {"x": {"content": "y"}}},
    {"added_tokens_decoder": {"4": "y"}},
    {"added_tokens_decoder": ["y"]},
    {"additional_special_tokens": [3]},
    {"additional_special_tokens": 3},
]


@pytest.mark.parametrize(("files", "code", "said"), BROKEN)
def test_broken_files(tmp_path: Path, files: dict[str, Any], code: str, said: str) -> None:
    for name, content in files.items():
        if isinstance(content, bytes):
            (tmp_path / name).write_bytes(content)
        else:
            write(tmp_path / name, content)
    with pytest.raises(HeadwayError) as caught:
        load_tokenizer(tmp_path)
    assert caught.value.code == code
    assert said in caught.value.message and len(caught.value.message) < 700


@pytest.mark.parametrize("settings_", BAD_SETTINGS)
def test_settings_of_the_wrong_type(tmp_path: Path, settings_: dict[str, Any]) -> None:
    write(tmp_path / "vocab.txt", VALID_WORD_PIECE)
    assert load_tokenizer(tmp_path).encode("a").ids == [1, 3, 2]
    write(tmp_path / "tokenizer_config.json", settings_)
    with pytest.raises(ConfigError) as caught:
        load_tokenizer(tmp_path)
    assert caught.value.code == "C002"


def test_a_vocabulary_without_its_unknown_token_fails_as_damaged(tmp_path: Path) -> None:
    """The library accepts such a file and fails at the first unknown word."""
    backend = tokenizers.Tokenizer(models.WordPiece({"a": 0}, unk_token="[UNK]"))
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    with pytest.raises(DamagedError, match="UNK"):
        tokenizer.encode("b")


def test_a_panic_of_the_library_is_an_error_like_any_other(tmp_path: Path) -> None:
    load_tokenizer(write_word_piece(tmp_path)).save(tmp_path)
    tree = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    tree["post_processor"]["special_tokens"] = {}
    write(tmp_path / "tokenizer.json", tree)
    with pytest.raises(DamagedError):
        load_tokenizer(tmp_path).encode("the dog")


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_tokenizer_json_never_escapes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """One value of a good file replaced by any other: it loads and encodes, or it is a headway error."""
    folder = tmp_path_factory.mktemp("damaged")
    load_tokenizer(write_word_piece(folder)).save(folder)
    tree = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tree["model"]["vocab"] = {token: i for token, i in tree["model"]["vocab"].items() if i < 40}
    tree["added_tokens"] = tree["added_tokens"][:3]
    node: Any = tree
    while True:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = data.draw(st.sampled_from([None, True, -1, 0, 2**40, 1.5, "", "x", [], [[]], {}, {"type": "x"}]))
    write(folder / "tokenizer.json", tree)
    try:
        load_tokenizer(folder).encode("the quick dog", "naïve 数字")
    except HeadwayError as error:
        assert error.message


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_word_piece(tmp_path / "good"))
    write(tmp_path / "file", "in the way")
    with pytest.raises(NotFoundError) as caught:
        tokenizer.save(tmp_path / "file")
    assert caught.value.code == "F007"


def test_import_is_light() -> None:
    heavy = "{'torch', 'tokenizers', 'transformers'}"
    code = f"import sys, headway.data.tokenizers.tokenizer; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared data")
@pytest.mark.parametrize(
    ("folder", "vectors", "size"),
    [("bert", "bert-bge", 30_522), ("gpt2", "gpt-2", 50_257), ("llama", "llama-spm", 32_000)],
)
def test_published_vocabularies(folder: str, vectors: str, size: int) -> None:
    tokenizer = load_tokenizer(SHARED / folder)
    assert len(tokenizer) == size
    stem = SHARED / f"llamacpp_vectors/ggml-vocab-{vectors}.gguf"
    texts = stem.with_name(stem.name + ".inp").read_bytes().decode("utf-8").split("\n__ggml_vocab_test__\n")
    lines = stem.with_name(stem.name + ".out").read_text(encoding="utf-8").split("\n")
    assert len(texts) > 40
    for text, line in zip(texts, lines, strict=True):
        assert tokenizer.encode(text, special=False).ids == [int(i) for i in line.split()], text
