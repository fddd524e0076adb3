"""Sentencepiece models, trained here on made-up text: the ids and texts of that package and of `transformers`."""

from __future__ import annotations

import functools
import importlib
import io
import json
import random
import unicodedata
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import torch
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from headway.api import load
from headway.data.tokenizers.charsmap import charsmap_normalizers
from headway.data.tokenizers.spm_file import MAX_BYTES, SpmModel, read_spm
from headway.data.tokenizers.tokenizer import TARGET_FILE, Tokenizer, load_tokenizer
from headway.errors import DamagedError, HeadwayError, NotFoundError
from headway.generate.beam.search import Beam, beam_search
from headway.generate.protocol import Source
from headway.hub.generation_config import read_generation
from headway.tasks.recipe import load_recipe
from headway.train.run import start, train

SYLLABLES = ["lo", "wer", "est", "ne", "the", "ra", "mi", "ço", "é", "über", "st", "o", "a"]
SYLLABLES += ["数", "字", "한", "ß", "ïs"]
TEXTS = (
    "",
    " ",
    "    ",
    "lowerest nethera",
    "  two  spaces   around ",
    "miço, überst! 12-345 numbers.",
    "数字 한 unseen: 中文日本語 🦙👩‍👩‍👧",
    "line\nbreaks\r\n\ttabs\u00a0nbsp\u3000wide\ufeffbom",
    "e\u0301 and \u00ea\u0301 and a\u0323\u0302 and \u1100\u1161\u11a8",
    "½ ² ²\u0301 ﬁne ｆｕｌｌ ｶﾞ ㎏ Å ①\u0301",
    "شَدَّة שָׁלוֹם नमस्ते สวัสดีค่ำ",
    "control\x01\x02chars\x7f\x9f",
    "▁literal ▁▁ marks▁",
    "\x01lead ½lead",
    "[x]lower[x][x] lo[x]",
)
MODELS: dict[str, dict[str, Any]] = {
    "unigram": {},
    "unigram-bytes": {"byte_fallback": True, "vocab_size": 400},
    "unigram-identity": {"normalization_rule_name": "identity"},
    "unigram-plain": {
        "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "add_dummy_prefix": False,
    },
    "unigram-nfkc-spaces": {"normalization_rule_name": "nfkc", "remove_extra_whitespaces": False},
    "unigram-folded": {"normalization_rule_name": "nmt_nfkc_cf"},
    "unigram-phrases": {"split_by_whitespace": False},
    "unigram-symbols": {"user_defined_symbols": ["[x]", "lowe"]},
    "bpe": {"model_type": "bpe"},
    "bpe-bytes": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 400},
    "bpe-llama": {
        "model_type": "bpe", "byte_fallback": True, "vocab_size": 400, "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True,
    },
}  # fmt: skip


def made_up(seed: int, lines: int = 300) -> list[str]:
    """Text of a made-up language."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(120)]
    return [" ".join(rng.choices(words, k=rng.randint(3, 9))) + rng.choice(".!?") for _ in range(lines)]


@functools.cache
def trained(name: str, seed: int = 1) -> bytes:
    made = io.BytesIO()
    options = {"vocab_size": 140, "hard_vocab_limit": False, **MODELS[name]}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(made_up(seed)), model_writer=made, minloglevel=2, **options
    )
    return made.getvalue()


def changed(name: str, change: Any) -> bytes:
    """A trained model in which something is another."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(trained(name))
    change(proto)
    return bytes(proto.SerializeToString())


def write(folder: Path, files: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / name).write_bytes(raw)
    return folder


@functools.cache
def pair(name: str) -> tuple[Tokenizer, Any]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        ours = load_tokenizer(write(Path(folder), {"tokenizer.model": trained(name)}))
    return ours, sentencepiece.SentencePieceProcessor(model_proto=trained(name))


def assert_same(name: str, text: str) -> None:
    """The same ids, or others of the same score: sentencepiece adds in half the precision, so draws are by chance."""
    ours, oracle = pair(name)
    ids, theirs = ours.encode(text, special=False).ids, oracle.encode(text)
    if ids != theirs and name.startswith("unigram"):
        assert oracle.unk_id() not in {*ids} ^ {*theirs}, text
        scores = [sum(oracle.get_score(i) for i in each) for each in (ids, theirs)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4), text
        assert oracle.decode(ids) == oracle.decode(theirs)
    else:
        assert ids == theirs, text
    if oracle.unk_id() not in ids:  # otherwise sentencepiece shows ⁇
        assert ours.decode(ids) == oracle.decode(ids)


def plain(text: str) -> bool:
    """Without what is special to us and text to sentencepiece; NUL is what we part characters by."""
    return not any(mark in text for mark in ("\0", "<s>", "</s>", "<unk>", "<0x"))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_equals_sentencepiece(name: str) -> None:
    oracle = pair(name)[1]
    assert pair(name)[0].vocab_size == oracle.vocab_size()
    for text in (*TEXTS, *made_up(2, 40)):
        assert_same(name, text)
    assert len({i for text in made_up(2, 40) for i in oracle.encode(text)}) > 40  # it was not all unknown


LETTERS = st.text(st.sampled_from("lowerstmiançé数字한 ▁\n.12½²①\u0301\u0302\u0323"), max_size=30)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=60)
@given(st.one_of(LETTERS, st.text()).filter(plain))
@example("aa\u0301 \u0301")
def test_any_text_equals_sentencepiece(name: str, text: str) -> None:
    assert_same(name, text)


# --- spelling ------------------------------------------------------------------------------------

SPELLINGS = {
    "nfd": [unicodedata.normalize("NFD", chr(c)) for c in (*range(0xC0, 0x250), *range(0x1E00, 0x2000))],
    "korean": [unicodedata.normalize("NFD", chr(c)) for c in range(0xAC00, 0xD7A4, 97)],
    "half-width": [chr(c) + mark for c in range(0xFF66, 0xFF9E) for mark in ("\uff9e", "\uff9f")],
    "marked already": [
        *(letter + mark for letter in "âêôăơưé" for mark in "\u0301\u0300\u0309\u0303\u0323"),
        *("\uac00\u11a8", "\ub798\u11c1"),
    ],
    "other order": ["a\u0302\u0323", "\u0633\u0651\u064e", "\u05e9\u05bc\u05c1", "\u0e14\u0e48\u0e38", "o\u0301\u031b"],
    "marks on signs": [sign + mark for sign in "²①ªｅÅ" for mark in "\u0301\u0338\u20dd\ufe0f\uff9e\u200d"],
    "ends of lines": ["\r\n", "\n\r\n", "²\r\n"],
    "alone": [chr(c) for c in (*range(1, 0xD800, 7), *range(0xF900, 0x10000, 3))],
}


@pytest.mark.parametrize("kind", SPELLINGS)
def test_texts_are_spelled_as_sentencepiece_spells_them(kind: str) -> None:
    table = read_pieces_of(trained("unigram")).charsmap
    ours = tokenizers.normalizers.Sequence(charsmap_normalizers(table))
    theirs = sentencepiece.SentencePieceNormalizer(
        rule_name="nmt_nfkc", add_dummy_prefix=False, remove_extra_whitespaces=False, escape_whitespaces=False
    )
    for text in SPELLINGS[kind]:
        for context in (text, f"x{text}y", f"é{text}\n{text}"):
            assert ours.normalize_str(context) == theirs.normalize(context), ascii(context)


@pytest.mark.parametrize(
    ("text", "kind"), [("lo▁lo", 1), ("▁the▁lo", 1), ("▁▁", 1), ("thelo", 4), ("lowerestne", 4), ("ane", 4), ("ara", 4)]
)
def test_pieces_over_words_and_pieces_that_a_user_asked_for(text: str, kind: int, tmp_path: Path) -> None:
    def change(proto: Any) -> None:
        for known in proto.pieces:  # two of these cost more than three letters asked for, and less than the dearest
            known.score = {"a": -5.0, "ne": -4.0, "ra": -4.0}.get(known.piece, known.score)
        proto.pieces.add(piece=text, score=-0.01 if kind == 1 else 0.0, type=kind)

    raw = changed("unigram-nfkc-spaces", change)
    ours = load_tokenizer(write(tmp_path, {"spiece.model": raw}))
    oracle = sentencepiece.SentencePieceProcessor(model_proto=raw)
    texts = ["lo lo the lo", "the  lo", "thelo thelolowerestne", "miço lowerestne thelo mianelo miarane", "the  "]
    texts += made_up(1, 20)
    assert any(len(oracle) - 1 in oracle.encode(each) for each in texts)
    for each in texts:
        assert ours.encode(each).ids == oracle.encode(each)


def read_pieces_of(raw: bytes) -> SpmModel:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(raw)
        file.flush()
        return read_spm(Path(file.name))


def test_offsets_are_those_of_the_text_as_it_was_written() -> None:
    text = "½ lo ｆ e\u0301 數lo"
    encoded = pair("unigram")[0].encode(text, special=False)
    assert [text[a:b] for a, b in encoded.offsets if text[a:b].strip() == "lo"]
    assert encoded.offsets == sorted(encoded.offsets)
    assert encoded.offsets[-1][1] == len(text)
    assert max(word for word in encoded.words if word is not None) == 4  # the words that spaces part


def test_what_a_file_says_later_counts_and_a_role_needs_a_piece_for_it(tmp_path: Path) -> None:
    raw = changed("unigram", lambda proto: setattr(proto.trainer_spec, "bos_id", 5))
    spaces = b"\x1a\x02\x20\x00"  # a second part of the normalizer's settings: spaces are kept
    ours = load_tokenizer(write(tmp_path, {"spiece.model": raw + spaces}))
    oracle = sentencepiece.SentencePieceProcessor(model_proto=raw + spaces)
    assert ours.encode("ｌｏ  lo ").ids == oracle.encode("ｌｏ  lo ") != pair("unigram")[1].encode("ｌｏ  lo ")
    assert read_spm(tmp_path / "spiece.model").roles == {"unk": "<unk>", "eos": "</s>"}


# --- families ------------------------------------------------------------------------------------

T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
BIGBIRD = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}
ALBERT = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}
DEBERTA = {
    "pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]", "bos_piece": "[CLS]",
    "eos_piece": "[SEP]", "unk_piece": "[UNK]", "unk_surface": "[UNK]",
}  # fmt: skip
MODELS |= {"albert": ALBERT, "deberta": DEBERTA}
CODES = {
    name: importlib.import_module(f"transformers.models.{name}.tokenization_{name}").FAIRSEQ_LANGUAGE_CODES
    for name in ("mbart", "mbart50", "nllb")
}
MODELS |= {"t5": T5, "bigbird": {**BIGBIRD, "normalization_rule_name": "identity"}}
FAMILIES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "t5": ("spiece.model", "t5", {"tokenizer_class": "T5Tokenizer", "extra_ids": 7}, "T5Tokenizer"),
    "t5-by-model": ("spiece.model", "t5", {"model_type": "t5"}, "T5Tokenizer"),
    "big-bird": ("spiece.model", "bigbird", {"tokenizer_class": "BigBirdTokenizer"}, "BigBirdTokenizer"),
    "xlm-r": ("sentencepiece.bpe.model", "unigram", {"tokenizer_class": "XLMRobertaTokenizer"}, "XLMRobertaTokenizer"),
    "camembert": (
        "sentencepiece.bpe.model",
        "unigram",
        {"tokenizer_class": "CamembertTokenizer"},
        "CamembertTokenizer",
    ),
    "albert": ("spiece.model", "albert", {"tokenizer_class": "AlbertTokenizer"}, "AlbertTokenizer"),
    "albert-cased": (
        "spiece.model",
        "albert",
        {"tokenizer_class": "AlbertTokenizer", "do_lower_case": False, "keep_accents": True},
        "AlbertTokenizer",
    ),
    "deberta": ("spm.model", "deberta", {"tokenizer_class": "DebertaV2Tokenizer"}, "DebertaV2Tokenizer"),
    "pegasus": ("spiece.model", "t5", {"tokenizer_class": "PegasusTokenizer"}, "PegasusTokenizer"),
    "mbart": (
        "sentencepiece.bpe.model",
        "unigram",
        {"tokenizer_class": "MBartTokenizer", "additional_special_tokens": CODES["mbart"]},
        "MBartTokenizer",
    ),
    "mbart50": (
        "sentencepiece.bpe.model",
        "unigram",
        {"tokenizer_class": "MBart50Tokenizer", "additional_special_tokens": CODES["mbart50"], "src_lang": "fr_XX"},
        "MBart50Tokenizer",
    ),
    "llama": (
        "tokenizer.model",
        "bpe-llama",
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True},
        "LlamaTokenizer",
    ),
}
USUAL = [text for text in (*TEXTS[3:7], *made_up(3, 20)) if text == text.strip() and "  " not in text]


def family_folder(folder: Path, name: str) -> Path:
    file, model, config, _ = FAMILIES[name]
    kept = {"config.json": {"model_type": "t5"}} if "model_type" in config else {"tokenizer_config.json": config}
    return write(folder, {file: trained(model), **kept})


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_equals_transformers(name: str, tmp_path: Path) -> None:
    folder = family_folder(tmp_path / "made", name)
    ours, oracle = load_tokenizer(folder), getattr(transformers, FAMILIES[name][3]).from_pretrained(folder)
    for text in USUAL:
        theirs = oracle(text)["input_ids"]
        assert ours.encode(text).ids == theirs, text
        assert ours.decode(theirs) == oracle.decode(theirs, skip_special_tokens=True)
    if name != "llama":  # whose pairs its class leaves open
        both = oracle("lower the", "miço", return_token_type_ids=True)
        assert ours.encode("lower the", "miço").ids == both["input_ids"]
        assert ours.encode("lower the", "miço").token_type_ids == both["token_type_ids"]
    for role in ("bos", "eos", "unk", "pad", "cls", "sep", "mask"):
        if role in ours.special and getattr(oracle, f"{role}_token_id") is not None:
            assert ours.special[role] == getattr(oracle, f"{role}_token_id"), role
    ours.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert again.special == ours.special
    for text in (*USUAL, *TEXTS):
        assert again.encode(text) == ours.encode(text)


def test_a_class_that_says_nothing_leaves_it_to_the_model(tmp_path: Path) -> None:
    files = {
        "config.json": {"model_type": "t5"},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
    }
    ours = load_tokenizer(write(tmp_path, {"spiece.model": trained("t5"), **files}))
    assert ours.encode("the").ids[-1] == ours.special["eos"] and ours.backend.token_to_id("<extra_id_0>")


def test_sentinels_of_t5(tmp_path: Path) -> None:
    ours = load_tokenizer(family_folder(tmp_path, "t5-by-model"))
    pieces = len(sentencepiece.SentencePieceProcessor(model_proto=trained("t5")))
    assert len(ours) == pieces + 100
    assert ours.encode("<extra_id_0> the <extra_id_99>").ids[0] == pieces + 99
    assert ours.encode("<extra_id_0> the <extra_id_99>").ids[-2:] == [pieces, ours.special["eos"]]
    assert ours.decode([pieces + 99, *ours.encode("the").ids]) == "the"


NLLB = {"tokenizer_class": "NllbTokenizer", "additional_special_tokens": CODES["nllb"]}


@pytest.mark.parametrize(("said", "language"), [({}, "eng_Latn"), ({"src_lang": "fra_Latn"}, "fra_Latn")])
def test_nllb_begins_with_the_language(said: dict[str, Any], language: str, tmp_path: Path) -> None:
    """Ids as published: pieces after fairseq's four tokens, then languages, then the mask."""
    raw = trained("bpe")
    oracle = sentencepiece.SentencePieceProcessor(model_proto=raw)
    write(tmp_path, {"sentencepiece.bpe.model": raw, "tokenizer_config.json": NLLB | said})
    ours, pieces = load_tokenizer(tmp_path), len(oracle)
    first = pieces + 1 + CODES["nllb"].index(language)
    for text in USUAL:
        inner = [i + 1 if i else 3 for i in oracle.encode(text)]
        assert ours.encode(text).ids == [first, *inner, 2]
        assert (
            ours.decode(ours.encode(text).ids) == oracle.decode(oracle.encode(text)).replace(" ⁇ ", "<unk>")
            or 3 in inner
        )
    assert ours.special["mask"] == pieces + 1 + len(CODES["nllb"]) == len(ours) - 1


@pytest.mark.parametrize(
    ("class_", "languages", "said"),
    [
        ("MBartTokenizer", "mbart", {}),
        ("MBartTokenizer", "mbart", {"src_lang": "ro_RO"}),
        ("MBart50Tokenizer", "mbart50", {"src_lang": "ro_RO"}),
    ],
)
def test_the_class_of_a_translator_places_the_language(
    class_: str, languages: str, said: dict[str, Any], tmp_path: Path
) -> None:
    """Whatever the template in tokenizer.json says."""
    config = {"tokenizer_class": class_, "additional_special_tokens": CODES[languages]}
    write(tmp_path / "a", {"sentencepiece.bpe.model": trained("unigram"), "tokenizer_config.json": config})
    made = json.loads(load_tokenizer(tmp_path / "a").backend.to_str()) | {"post_processor": None}
    write(tmp_path / "b", {"tokenizer.json": made, "tokenizer_config.json": config | said})
    write(tmp_path / "c", {"sentencepiece.bpe.model": trained("unigram"), "tokenizer_config.json": config | said})
    read, pieces = load_tokenizer(tmp_path / "b"), load_tokenizer(tmp_path / "c")
    for text in USUAL:
        assert read.encode(text).ids == pieces.encode(text).ids
    assert read.encode("lower", "the").ids == pieces.encode("lower", "the").ids


@pytest.mark.parametrize(
    ("said", "code"),
    [({"src_lang": "xx_XX"}, "F005"), ({"src_lang": 3}, "C002"), ({"additional_special_tokens": []}, "F005")],
)
def test_a_language_that_is_not_there(said: dict[str, Any], code: str, tmp_path: Path) -> None:
    write(tmp_path, {"sentencepiece.bpe.model": trained("bpe"), "tokenizer_config.json": NLLB | said})
    with pytest.raises(HeadwayError) as caught:
        load_tokenizer(tmp_path)
    assert caught.value.code == code


@pytest.mark.parametrize(("settings_", "around"), [({}, (1, 0)), ({"add_bos_token": False}, (0, 0)),
                                                   ({"add_eos_token": True}, (1, 1))])  # fmt: skip
def test_what_llama_puts_around_is_said_in_its_config(
    tmp_path: Path, settings_: dict[str, Any], around: tuple[int, int]
) -> None:
    config = {"tokenizer_class": "LlamaTokenizer", **settings_}
    ours = load_tokenizer(write(tmp_path, {"tokenizer.model": trained("bpe-llama"), "tokenizer_config.json": config}))
    bare = ours.encode("lower", special=False).ids
    bos, eos = ours.special["bos"], ours.special["eos"]
    assert ours.encode("lower").ids == [*[bos] * around[0], *bare, *[eos] * around[1]]


SPECIAL_INSIDE = (
    "<s>lower</s>the </s> lower<unk>miço", "lower <s> the", "<s>", "</s></s>lower", "the</s>  two  ", "lower the"
)  # fmt: skip


def as_published(folder: Path, spelled: str) -> None:
    """Put a tokenizer.json beside a model, whose spaces are spelled as one or another converter did it."""
    made = json.loads(load_tokenizer(folder).backend.to_str())
    made |= {"normalizer": None, "pre_tokenizer": None}
    if spelled == "prepend":
        steps = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
        made["normalizer"] = {"type": "Sequence", "normalizers": steps}
    else:
        made["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": spelled, "split": False}
    write(folder, {"tokenizer.json": made})


@pytest.mark.parametrize("spelled", ["", "prepend", "first", "always"])
@pytest.mark.parametrize("class_", ["LlamaTokenizer", "LlamaTokenizerFast"])
@pytest.mark.parametrize("said", [{}, {"legacy": True}, {"legacy": False}, {"legacy": None},
                                  {"add_prefix_space": False}, {"legacy": True, "add_prefix_space": False}],
                         ids=str)  # fmt: skip
def test_where_llama_puts_a_space_is_said_in_its_config(
    said: dict[str, Any], class_: str, spelled: str, tmp_path: Path
) -> None:
    """`legacy` is whether a text goes on with a space after each special token in it, whatever file it is read from."""
    config = {"tokenizer_class": class_, "add_bos_token": True, **said}
    files = {"tokenizer_config.json": config, "config.json": {"model_type": "llama"}}
    write(tmp_path, {"tokenizer.model": trained("bpe-llama"), **files})
    if spelled:
        as_published(tmp_path, spelled)
    ours, oracle = load_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (*SPECIAL_INSIDE, *TEXTS, *USUAL):
        assert ours.encode(text).ids == oracle(text)["input_ids"], text
    ours.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in SPECIAL_INSIDE:
        assert again.encode(text).ids == ours.encode(text).ids == theirs(text)["input_ids"]


def test_a_tokenizer_json_of_another_model_is_taken_as_it_stands(tmp_path: Path) -> None:
    """Llama's class is named by many others; and byte-level files have it by mistake."""
    config = {"tokenizer_class": "LlamaTokenizer", "legacy": False}
    write(tmp_path, {"tokenizer.model": trained("bpe-llama"), "tokenizer_config.json": config})
    as_published(tmp_path, "always")
    write(tmp_path, {"config.json": {"model_type": "mistral"}})
    other = load_tokenizer(tmp_path)
    oracle = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in SPECIAL_INSIDE:
        assert other.encode(text, special=False).ids == oracle(text, add_special_tokens=False)["input_ids"]
    made = json.loads((tmp_path / "tokenizer.json").read_text())
    made["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    write(tmp_path, {"tokenizer.json": made, "config.json": {"model_type": "llama"}})
    assert json.loads(load_tokenizer(tmp_path).backend.to_str())["pre_tokenizer"] == made["pre_tokenizer"]


@pytest.mark.parametrize("legacy", [True, False, None])
@pytest.mark.parametrize("name", ["t5", "xlm-r"])
def test_special_tokens_inside_a_text_of_other_families(name: str, legacy: bool | None, tmp_path: Path) -> None:
    file, model, config, class_ = FAMILIES[name]
    said = config | ({} if legacy is None else {"legacy": legacy})
    write(tmp_path, {file: trained(model), "tokenizer_config.json": said})
    ours, oracle = load_tokenizer(tmp_path), getattr(transformers, class_).from_pretrained(tmp_path)
    marks = [oracle.convert_ids_to_tokens(i) for i in sorted(ours.special.values())]
    marks += ["<extra_id_0>"] if name == "t5" else []
    for mark in marks:
        for text in (f"{mark}lower", f"lower{mark}the", f"lower {mark} the", f"{mark} {mark}the lower"):
            assert ours.encode(text).ids == oracle(text)["input_ids"], text


# --- Marian --------------------------------------------------------------------------------------


def names_of(raw: bytes) -> list[str]:
    oracle = sentencepiece.SentencePieceProcessor(model_proto=raw)
    return [oracle.id_to_piece(i) for i in range(len(oracle)) if not (oracle.is_control(i) or oracle.is_unknown(i))]


def vocab_of(*sides: bytes, without: Collection[str] = (), size: int = 0) -> dict[str, int]:
    pieces = [name for name in dict.fromkeys(name for side in sides for name in names_of(side)) if name not in without]
    random.Random(5).shuffle(pieces)  # ids have nothing to do with the places in the model files
    filler = [f"<filler{i}>" for i in range(size - len(pieces) - 5)]
    names = ["</s>", "<unk>", *pieces, *filler, ">>fra<<", ">>cmn_Hans<<", "<pad>"]
    return {name: i for i, name in enumerate(names)}


def marian_files(separate: bool = False, without: Collection[str] = ()) -> dict[str, Any]:
    source, target = trained("unigram", 1), trained("unigram-nfkc-spaces", 7)
    files: dict[str, Any] = {"source.spm": source, "target.spm": target}
    if separate:  # padding has the same id on both sides, as the model wants it
        size = 5 + max(len(names_of(source)), len(names_of(target)))
        files |= {
            "vocab.json": vocab_of(source, without=without, size=size),
            "target_vocab.json": vocab_of(target, size=size),
        }
    else:
        files["vocab.json"] = vocab_of(source, target, without=without)
    config = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}
    return {**files, "tokenizer_config.json": config}


def marian_oracle(folder: Path) -> Any:
    with pytest.warns(UserWarning, match="sacremoses"):
        return transformers.MarianTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("separate", [False, True])
def test_marian_equals_transformers(separate: bool, tmp_path: Path) -> None:
    folder = write(tmp_path / "made", marian_files(separate))
    ours, oracle = load_tokenizer(folder), marian_oracle(folder)
    assert len(ours) == len(oracle.encoder) and ours.special["pad"] == oracle.pad_token_id
    assert len(ours.target) == len(json.loads((folder / ("target_" * separate + "vocab.json")).read_bytes()))
    texts = [*TEXTS, *made_up(1, 30), *made_up(7, 30), ">>fra<< lowerest nethera", ">>cmn_Hans<<the", "the</s> lo"]
    for text in texts:
        assert ours.encode(text).ids == oracle(text)["input_ids"], text
        written = oracle(text_target=text)["input_ids"]
        assert ours.target.encode(text).ids == written, text
        # The oracle leaves out the source's ids for special tokens, also where the target's are others.
        shown = [oracle.decoder[i] for i in written if oracle.decoder[i] not in ("</s>", "<unk>")]
        assert ours.target.decode(written).strip() == oracle.spm_target.decode(shown).replace("▁", " ").strip()
    assert ours.encode("the", "lo").ids == oracle("the", "lo")["input_ids"]
    assert {i for text in texts for i in ours.encode(text).ids} != {i for t in texts for i in ours.target.encode(t).ids}
    ours.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert (tmp_path / "saved" / TARGET_FILE).is_file() and again.special == ours.special
    for text in texts:
        assert again.encode(text) == ours.encode(text)
        assert again.target.encode(text) == ours.target.encode(text)
        assert again.target.decode(ours.encode(text).ids) == ours.target.decode(ours.encode(text).ids)


@functools.cache
def marian_pair() -> tuple[Tokenizer, Any]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        made = write(Path(folder), marian_files())
        return load_tokenizer(made), marian_oracle(made)


@settings(max_examples=80)
@given(st.one_of(LETTERS, st.text()).filter(plain), st.booleans())
def test_any_text_equals_marian(text: str, written: bool) -> None:
    ours, oracle = marian_pair()
    side, spm = (ours.target, oracle.spm_target) if written else (ours, oracle.spm_source)
    ids = side.encode(text).ids
    theirs = oracle(**{"text_target" if written else "text": text})["input_ids"]
    if ids != theirs:  # a draw, as above
        names = [oracle.convert_ids_to_tokens(each[:-1]) for each in (ids, theirs)]
        scores = [sum(spm.get_score(spm.piece_to_id(name)) for name in each) for each in names]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4), text
        assert "".join(names[0]) == "".join(names[1])


def test_every_id_of_marian_shows_its_own_text(tmp_path: Path) -> None:
    """What only the other side's model has is written all the same; in a text it is never found."""
    files = marian_files()
    ours = load_tokenizer(write(tmp_path, files))
    theirs = set(names_of(files["target.spm"])) - set(names_of(files["source.spm"]))
    assert theirs
    for name, i in files["vocab.json"].items():
        if name not in ("</s>", "<unk>", "<pad>"):
            for side in (ours, ours.target):
                assert side.decode([i, i]).strip() == (name * 2).replace("▁", " ").strip()
        if name in theirs:
            assert i not in ours.encode(name.replace("▁", " ")).ids


def test_pieces_that_marians_list_lacks(tmp_path: Path) -> None:
    """Characters become unknown, as in `transformers`; longer pieces are cut into what the list has."""
    alone = {"!", "?"}
    folder = write(tmp_path / "alone", marian_files(without=alone))
    ours, oracle = load_tokenizer(folder), marian_oracle(folder)
    for text in ("lower!", "the? lo", "!?lo!"):
        ids = ours.encode(text).ids
        assert ours.special["unk"] in ids
        assert {*ids} == {*oracle(text)["input_ids"]}
    longer = {name for name in names_of(trained("unigram")) if len(name) > 3}
    folder = write(tmp_path / "longer", marian_files(without=longer))
    ours, oracle = load_tokenizer(folder), marian_oracle(folder)
    text = " ".join(made_up(1, 10))
    assert oracle.unk_token_id in oracle(text)["input_ids"]
    assert ours.special["unk"] not in ours.encode(text).ids
    assert ours.decode(ours.encode(text).ids) == text


def test_unknown_characters_cost_what_they_cost_in_sentencepiece(tmp_path: Path) -> None:
    """Names that the model has not must not lower the lowest score, by which an unknown character is counted."""
    ours = load_tokenizer(write(tmp_path, marian_files()))
    model = json.loads(ours.backend.to_str())["model"]
    proto = sentencepiece_model_pb2.ModelProto.FromString(trained("unigram"))
    lowest = min(piece.score for piece in proto.pieces if piece.type == 1)
    assert min(score for _, score in model["vocab"]) == lowest


def marian_model(folder: Path, files: dict[str, Any], separate: bool) -> Any:
    """A folder as it is published, and the model in it."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    vocab, target = files["vocab.json"], files["target_vocab.json" if separate else "vocab.json"]
    config = transformers.MarianConfig(
        vocab_size=len(vocab), decoder_vocab_size=len(target), share_encoder_decoder_embeddings=not separate,
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64, pad_token_id=target["<pad>"],
        eos_token_id=target["</s>"], decoder_start_token_id=target["<pad>"], forced_eos_token_id=target["</s>"],
    )  # fmt: skip
    torch.manual_seed(1)
    made = transformers.MarianMTModel(config).eval()
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter) * parameter.requires_grad
    made.save_pretrained(folder)
    return made


@pytest.mark.parametrize("separate", [False, True])
def test_a_translator_as_marian_publishes_it(separate: bool, tmp_path: Path) -> None:
    """It writes what it writes in `transformers`, is trained on, and what is saved reads texts as before."""
    files = marian_files(separate)
    folder = write(tmp_path / "base", files)
    oracle, theirs = marian_model(folder, files, separate), marian_oracle(folder)
    bundle, rules = load(folder), read_generation(folder).rules
    tokenizer, texts = bundle.require_tokenizer(), [">>fra<< lowerest nethera", *made_up(1, 3)]
    for text in texts:
        ids = torch.tensor([tokenizer.encode(text).ids])
        found = beam_search(bundle.model, Beam(width=4, max_tokens=9, **rules), source=Source(ids))[0][0]
        expected = oracle.generate(**theirs(text, return_tensors="pt"), do_sample=False, num_beams=4, max_new_tokens=9)
        written = [i for i in expected[0].tolist()[1:] if i != tokenizer.target.special["eos"]]
        assert [i for i in found.tokens if i != tokenizer.target.special["eos"]] == written
        assert bundle.translate([text], Beam(width=4, max_tokens=9, **rules)) == [
            tokenizer.target.decode(written).strip()
        ]
    pairs = write(tmp_path / "data", {"pairs.tsv": b"source\ttarget\n" + pairs_of(40)}) / "pairs.tsv"
    words = ["train.steps=2", "train.batch=8", "train.warmup=1", "train.eval_every=2", "seq2seq.eval_texts=2",
             "seq2seq.max_new_tokens=6", f"data.train={pairs}", "data.length=64", f"out={tmp_path / 'runs'}",
             f"model.from={folder}", *(["seq2seq.vocabulary=separate"] if separate else [])]  # fmt: skip
    run = train(start(*load_recipe("translate", words)), lambda kind, **facts: None)
    again = load(run.folder).require_tokenizer()
    assert {"tokenizer.json", TARGET_FILE} <= {path.name for path in run.folder.iterdir()}
    for text in (*texts, *TEXTS):
        assert again.encode(text) == tokenizer.encode(text)
        assert again.target.encode(text) == tokenizer.target.encode(text)
    assert again.special == tokenizer.special and again.target.special == tokenizer.target.special


def pairs_of(number: int) -> bytes:
    sides = zip(made_up(1, number), made_up(7, number), strict=True)
    return "".join(f"{source}\t{target}\n" for source, target in sides).encode()


# --- files that cannot be used -------------------------------------------------------------------


def field(message: str, name: str, value: Any) -> bytes:
    def change(proto: Any) -> None:
        setattr(getattr(proto, message), name, value)

    return changed("unigram", change)


def piece(place: int, name: str, value: Any, model: str = "unigram") -> bytes:
    return changed(model, lambda proto: setattr(proto.pieces[place], name, value))


REFUSED = [
    (b"", "X001", "no pieces"),
    (b"{}", "X001", "type 3"),
    (b"\x0a", "X001", "ends within a number"),
    (b"\x0a\x7fabc", "X001", "ends within a field of 127 bytes"),
    (b"\xff" * 40, "X001", "without end"),
    (b"\x08\x01", "X001", "is a number"),
    (trained("unigram")[:-9], "X001", "ends within"),
    (trained("unigram")[:1000], "X001", "ends within"),
    (piece(5, "piece", ""), "X001", "piece 5 has no text"),
    (piece(5, "score", float("nan")), "X001", "score of piece 5"),
    (piece(5, "piece", "<s>"), "X001", "same piece twice"),
    (piece(0, "type", 1), "X001", "0 unknown"),
    (piece(5, "type", 2), "X001", "2 unknown"),
    (piece(5, "piece", "x" * 129, "bpe"), "X001", "129 characters"),
    (field("normalizer_spec", "precompiled_charsmap", b"damaged"), "X001", "normalization table"),
    (field("trainer_spec", "model_type", 3), "F005", "a model of words"),
    (field("trainer_spec", "model_type", 4), "F005", "a model of characters"),
    (field("trainer_spec", "treat_whitespace_as_suffix", True), "F005", "suffixes"),
    (field("normalizer_spec", "escape_whitespaces", False), "F005", "unescaped"),
    (field("denormalizer_spec", "precompiled_charsmap", b"x"), "F005", "denormalizer"),
    (piece(9, "type", 4, "bpe"), "F005", "user-defined"),
    (changed("unigram", lambda p: (setattr(p.pieces[9], "type", 4), setattr(p.pieces[9], "piece", "½"))), "F005", "½"),
]


@pytest.mark.parametrize(("raw", "code", "said"), REFUSED)
def test_files_that_are_refused(raw: bytes, code: str, said: str, tmp_path: Path) -> None:
    folder = write(tmp_path, {"spiece.model": raw})
    with pytest.raises(HeadwayError) as caught:
        load_tokenizer(folder)
    assert caught.value.code == code
    assert said in str(caught.value) and "spiece.model" in caught.value.message


def test_pieces_that_are_not_used_are_not_found(tmp_path: Path) -> None:
    """As the trainer's owner may mark them; sentencepiece leaves them out as well."""
    oracle = sentencepiece.SentencePieceProcessor(model_proto=trained("unigram"))
    common = oracle.encode("lower the nethera lo")[0]
    raw = piece(common, "type", 5)
    ours = load_tokenizer(write(tmp_path, {"spiece.model": raw}))
    oracle = sentencepiece.SentencePieceProcessor(model_proto=raw)
    for text in ("lower the nethera lo", *made_up(1, 20)):
        assert common not in ours.encode(text).ids
        assert ours.encode(text).ids == oracle.encode(text)


def test_a_file_too_large_or_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"spiece.model": trained("unigram")}) / "spiece.model"
    monkeypatch.setattr("headway.data.tokenizers.spm_file.MAX_BYTES", 1000)
    with pytest.raises(DamagedError, match="more than 1,000 bytes"):
        read_spm(path)
    assert MAX_BYTES > 10**7
    with pytest.raises(NotFoundError, match="cannot be read"):
        read_spm(tmp_path)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"vocab.json": {"<unk>": 0, "a": 1}}, "X001", "no '</s>' among its 2"),
        ({"vocab.json": {"</s>": 0, "a": 1}}, "X001", "no '<unk>' among its 2"),
        ({"vocab.json": {"</s>": 0, "<unk>": 2}}, "X001", "2 tokens have ids up to 2"),
        ({"vocab.json": {"</s>": 0, "<unk>": 0}}, "X001", "same id"),
        ({"vocab.json": {"</s>": 0, "<unk>": "1"}}, "X001", "not an integer"),
        ({"vocab.json": b"[]"}, "C001", "not a JSON object"),
        ({"target.spm": trained("unigram")[:500]}, "X001", "target.spm is no sentencepiece model"),
        ({"source.spm": b"nothing"}, "X001", "source.spm is no sentencepiece model"),
        ({"source.spm": piece(0, "piece", "<huh>")}, "X001", "'<huh>'"),
        ({"tokenizer_config.json": {"separate_vocabs": True}}, "F005", "target_vocab.json"),
        ({"tokenizer_config.json": {"separate_vocabs": "yes"}}, "C002", "separate_vocabs"),
        ({"tokenizer_config.json": {"eos_token": "<end>"}}, "X001", "no '<end>' among"),
    ],
)
def test_marian_folders_that_are_refused(change: dict[str, Any], code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(HeadwayError) as caught:
        load_tokenizer(write(tmp_path, {**marian_files(), **change}))
    assert caught.value.code == code
    assert said in str(caught.value)
    if code != "C002":  # which names the setting
        assert str(tmp_path) in caught.value.message and caught.value.hint


@pytest.mark.parametrize(
    ("files", "code", "said"),
    [
        ({"tokenizer_config.json": {"tokenizer_class": "GemmaTokenizer"}}, "F005", "GemmaTokenizer"),
        ({"tokenizer_config.json": {"tokenizer_class": "T5GemmaTokenizer"}}, "F005", "T5GemmaTokenizer"),
        ({"config.json": {"model_type": "xlnet"}}, "F005", "xlnet"),
        ({"config.json": {"model_type": ["t5"]}}, "F005", "t5"),
        ({"tokenizer_config.json": {"tokenizer_class": "T5Tokenizer", "extra_ids": -1}}, "C002", "extra_ids"),
        ({"tokenizer_config.json": {"tokenizer_class": "T5Tokenizer", "eos_token": "<end>"}}, "X001", "'<end>'"),
        ({"tokenizer_config.json": {"tokenizer_class": "BigBirdTokenizer"}}, "X001", "[CLS]"),
    ],
)
def test_families_that_are_refused(files: dict[str, Any], code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(HeadwayError) as caught:
        load_tokenizer(write(tmp_path, {"spiece.model": trained("unigram"), **files}))
    assert caught.value.code == code and said in str(caught.value)


def test_xlm_r_with_other_first_pieces_is_refused(tmp_path: Path) -> None:
    files = {"sentencepiece.bpe.model": trained("t5"), "config.json": {"model_type": "xlm-roberta"}}
    with pytest.raises(DamagedError, match="XLM-R"):
        load_tokenizer(write(tmp_path, files))


def opened(folder: Path, raw: bytes) -> None:
    try:
        tokenizer = load_tokenizer(write(folder, {"spiece.model": raw}))
        tokenizer.decode(tokenizer.encode("lower é ½ the 数\u0301").ids)
    except HeadwayError as error:
        assert error.message and error.code in ("X001", "F005")


def without_charsmap(name: str) -> bytes:
    return changed(name, lambda proto: setattr(proto.normalizer_spec, "precompiled_charsmap", b""))


SMALL = [without_charsmap("unigram"), without_charsmap("bpe"), trained("unigram-identity")]


@settings(max_examples=100)
@given(st.data())
def test_damaged_files_never_escape(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    raw = data.draw(st.sampled_from(SMALL), label="from")
    raw = raw[: data.draw(st.integers(0, len(raw)), label="cut")] if data.draw(st.booleans()) else raw
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, min(len(raw), 4000)))
        raw = raw[:at] + data.draw(st.binary(max_size=6)) + raw[at + data.draw(st.integers(0, 6)) :]
    opened(tmp_path_factory.mktemp("damaged"), raw)


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_random_bytes_never_escape(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    opened(tmp_path_factory.mktemp("random"), raw)
