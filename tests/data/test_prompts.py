"""Prompts: the ids of `transformers`, and the same at every entry point."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tokenizers as tk
import torch
from tokenizers.processors import TemplateProcessing

import headway.api.bundle
import headway.generate.beam.search
import headway.generate.score

pytest.importorskip("pydantic")

from headway.api import Bundle, load
from headway.checks.choices import ChoicesConfig
from headway.checks.perplexity import evaluation_tokens, measure
from headway.cli.app import main
from headway.config.model import SpecialTokens
from headway.config.presets import gpt2
from headway.config.recipe import DataConfig
from headway.data.prompts import PromptEncoder, start_token
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import DataError
from headway.generate.beam.search import Beam
from headway.generate.sampling.sampler import Sampling
from headway.hub.folder import save_model
from headway.model.model import Transformer
from headway.serve.limits import Limits
from headway.serve.requests import RequestBuilder
from headway.serve.schemas import ChatRequest, CompletionRequest
from headway.tasks.lm.training import LanguageModelTraining
from headway.tasks.recipe import Recipe
from headway.tasks.seq2seq.translate import read_sources
from headway.tasks.training import TaskContext

transformers = pytest.importorskip("transformers")

TEXTS = ("low lower newest", "", "  low", "a<eos>b", "new low\n")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
CORPUS = ["low lower lowest new newer newest wide wider widest user assistant system a b c"] * 4


def trained(special: list[str], *, pieces: bool) -> tk.Tokenizer:
    """A small BPE: of bytes as GPT-2's, or with ▁ for a space as Llama's and Gemma's."""
    backend = tk.Tokenizer(tk.models.BPE(unk_token="<unk>" if pieces else None))
    backend.pre_tokenizer = (
        tk.pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
        if pieces
        else tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    )
    backend.decoder = tk.decoders.Metaspace() if pieces else tk.decoders.ByteLevel()
    letters = [] if pieces else tk.pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        CORPUS, tk.trainers.BpeTrainer(vocab_size=340, special_tokens=special, initial_alphabet=letters)
    )
    return backend


def around(backend: tk.Tokenizer, template: str) -> tk.Tokenizer:
    names = [name for name in ("<bos>", "<eos>") if name in template]
    ids = [(name, backend.token_to_id(name)) for name in names]
    backend.post_processor = TemplateProcessing(single=template, pair=f"{template} $B:1", special_tokens=ids)
    return backend


MARKS = ["<unk>", "<bos>", "<eos>"]
KINDS: dict[str, Callable[[], tuple[tk.Tokenizer, dict[str, Any]]]] = {
    "gpt2": lambda: (trained(["<eos>"], pieces=False), {"bos_token": "<eos>"}),
    "llama": lambda: (around(trained(MARKS, pieces=True), "<bos> $A"), {"bos_token": "<bos>"}),
    "llama3": lambda: (around(trained(MARKS, pieces=False), "<bos> $A"), {"bos_token": "<bos>"}),
    "both": lambda: (around(trained(MARKS, pieces=False), "<bos> $A <eos>"), {"bos_token": "<bos>"}),
    # a complete tokenizer.json is what counts: newer versions of transformers leave these flags aside
    "flags": lambda: (trained(MARKS, pieces=False), {"bos_token": "<bos>", "add_bos_token": True}),
    "no bos": lambda: (trained(["<eos>"], pieces=False), {}),
}


def write_model(folder: Path, backend: tk.Tokenizer) -> None:
    torch.manual_seed(0)
    model = Transformer(gpt2(1, 16, 2, vocab=backend.get_vocab_size(), length=256)).eval()
    bos = backend.token_to_id("<bos>")
    eos = backend.token_to_id("<eos>")
    object.__setattr__(model.config, "special", SpecialTokens(bos=eos if bos is None else bos, eos=eos))
    save_model(model, folder)


@pytest.fixture(scope="module", params=[*KINDS, "older", "older bos", "older both"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tokenizer of some kind."""
    path = tmp_path_factory.mktemp("model") / "m"
    if request.param in KINDS:
        backend, config = KINDS[request.param]()
        write_model(path, backend)
        backend.save(str(path / "tokenizer.json"))
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    else:  # the files that GPT-2 came with, and the rules of its class
        backend = trained(MARKS, pieces=False)
        write_model(path, backend)
        backend.model.save(str(path))
        flags = {"older": {}, "older bos": {"add_bos_token": True}}
        both = {"add_bos_token": True, "add_eos_token": True}
        config = {"bos_token": "<bos>", "unk_token": "<unk>", **flags.get(request.param, both)}
        config["tokenizer_class"] = "GPT2Tokenizer"
    config |= {"eos_token": "<eos>", "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Bundle:
    return load(folder)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """What models were given to read, by whatever way."""
    found: list[list[int]] = []

    def decode(model: Any, prompts: Any, *rest: Any, **more: Any) -> Iterator[Any]:
        found.extend(map(list, prompts))
        return iter(())

    def search(model: Any, beam: Any, prompts: Any, **more: Any) -> list[list[Any]]:
        found.extend(map(list, prompts))
        return [[]]

    def score(model: Any, rows: Any, starts: Any, **more: Any) -> list[Any]:
        found.extend(map(list, rows))
        return [torch.zeros(len(row) - start) for row, start in zip(rows, starts, strict=True)]

    monkeypatch.setattr(headway.api.bundle, "decode", decode)
    monkeypatch.setattr(headway.generate.beam.search, "beam_search", search)
    monkeypatch.setattr("headway.tasks.lm.predict.decode", decode)
    monkeypatch.setattr("headway.tasks.lm.predict.score", score)
    monkeypatch.setattr(headway.generate.score, "score", score)
    return found


def run(*words: object) -> None:
    with pytest.raises(SystemExit) as done:
        main(["run", *map(str, words), "--quiet"])
    assert done.value.code == 0


def served(bundle: Bundle) -> RequestBuilder:
    return RequestBuilder(
        PromptEncoder(bundle.require_tokenizer(), bundle.config.special),
        Limits(),
        vocab=bundle.model.lm.vocab,
        context_length=99,
    )


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_the_same_everywhere(
    bundle: Bundle, theirs: Any, read: list[list[int]], text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = theirs(text)["input_ids"] or [bundle.config.special.bos]
    list(bundle.stream(text, 3))
    bundle.generate([text], Sampling(max_tokens=3))
    bundle.beams(text, Beam())
    run(bundle.folder, text)
    run(bundle.folder, text, "--beam", 2)
    if text:
        (tmp_path / "lines.jsonl").write_text(json.dumps({"text": text}) + "\n")
        run(bundle.folder, "--file", tmp_path / "lines.jsonl")
    assert read == [expected] * (6 if text else 5)
    if text:
        assert read_sources(bundle.require_tokenizer(), [text], None).ids == [expected]  # an encoder's, too
    asked = {"model": "m", "prompt": text, "max_tokens": 3}
    assert list(served(bundle).build(CompletionRequest.model_validate(asked))[0].prompt) == expected


@pytest.mark.parametrize("text", [text for text in TEXTS if text])
def test_a_draft_reads_the_same(bundle: Bundle, theirs: Any, text: str) -> None:
    made = bundle.speculation(bundle, Sampling(temperature=0.0))
    list(bundle.stream(text, 4, Sampling(temperature=0.0, stop=()), by=made))
    ids = theirs(text)["input_ids"]
    assert made.checked[: len(ids)] == ids


@pytest.mark.parametrize("text", [text for text in TEXTS if text])
def test_scores_are_of_the_same_ids(
    bundle: Bundle, theirs: Any, read: list[list[int]], text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """After BOS in any case, so that the first word has a probability too."""
    ids = theirs(text)["input_ids"]
    bos = bundle.config.special.bos
    bundle.score([text])
    run(bundle.folder, "--score", text)
    assert read == [ids if ids[0] == bos and len(ids) > len(theirs(text, add_special_tokens=False)["input_ids"])
                    else [bos, *ids]] * 2  # fmt: skip


def test_choices_follow_the_same_ids(bundle: Bundle, theirs: Any, read: list[list[int]], tmp_path: Path) -> None:
    """What a tokenizer puts after a text does not stand between a question and its answers."""
    row = {"question": "low lower", "choices": ["newest", "wide"], "answer": 0}
    (tmp_path / "asked.jsonl").write_text(json.dumps(row) + "\n")
    bundle.choices(ChoicesConfig(data=str(tmp_path / "asked.jsonl")))
    whole = [theirs(f"low lower {choice}")["input_ids"] for choice in row["choices"]]
    assert read == [ids[: len(ids) - (ids[-1] == bundle.config.special.eos)] for ids in whole]


TALK = [{"role": "user", "content": " low lower"}, {"role": "assistant", "content": "newest"}]
TALK += [{"role": "user", "content": "wide\n"}]


def talk_ids(theirs: Any, messages: list[dict[str, str]]) -> list[int]:
    made = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)
    return list(made["input_ids"] if hasattr(made, "keys") else made)


@pytest.mark.parametrize("messages", [TALK[:1], TALK, [{"role": "user", "content": ""}]], ids=["one", "three", "empty"])
def test_a_conversation_is_the_same_everywhere(
    bundle: Bundle, theirs: Any, read: list[list[int]], messages: list[dict[str, str]]
) -> None:
    """The template has the BOS, which nobody adds again."""
    list(bundle.chat(messages, 3))
    asked = ChatRequest.model_validate({"model": "m", "messages": messages, "max_tokens": 3})
    (request,) = served(bundle).build(asked)
    assert read == [list(request.prompt)] == [talk_ids(theirs, messages)]


def test_the_command_line_talks_alike(
    bundle: Bundle, theirs: Any, read: list[list[int]], monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    run(bundle.folder, "--chat", "low")
    assert read == [talk_ids(theirs, [{"role": "user", "content": "low"}])]


def test_no_message_passes_for_the_template(bundle: Bundle, theirs: Any, read: list[list[int]]) -> None:
    """The one thing in which the ids differ from those of transformers; again the same everywhere."""
    messages = [{"role": "user", "content": "a<eos>b"}]
    list(bundle.chat(messages, 3))
    list(bundle.chat([{"role": "user", "content": [{"type": "text", "text": "a<eos>b"}]}], 3))
    asked = ChatRequest.model_validate({"model": "m", "messages": messages, "max_tokens": 3})
    assert read[0] == list(served(bundle).build(asked)[0].prompt)
    (end,) = bundle.config.special.eos_ids
    plain = talk_ids(theirs, [{"role": "user", "content": "ab"}]).count(end)
    assert [ids.count(end) for ids in read] == [plain, plain]


def test_an_empty_prompt_begins_with_bos() -> None:
    assert start_token(SpecialTokens(bos=0, eos=5)) == 0
    assert start_token(SpecialTokens(eos=(7, 5))) == 7
    with pytest.raises(DataError) as error:
        start_token(SpecialTokens())
    assert error.value.code == "D001"


def test_a_model_without_a_template_does_not_chat() -> None:
    encoder = PromptEncoder(train_tokenizer("bytes", []), SpecialTokens(), "tiny")
    with pytest.raises(DataError) as error:
        encoder.chat([{"role": "user", "content": "a"}])
    assert error.value.code == "D008"


def test_what_is_put_before_a_text() -> None:
    backend = around(trained(MARKS, pieces=True), "<bos> $A <eos>")
    assert Tokenizer(backend).prefix_ids == (backend.token_to_id("<bos>"),)
    assert train_tokenizer("bytes", []).prefix_ids == ()
    assert len(train_tokenizer("wordpiece", CORPUS, 100).prefix_ids) == 1


@pytest.mark.parametrize("kind", ["bytes", "bpe", "wordpiece", "unigram", "words"])
def test_own_models_read_prompts_as_their_documents(kind: str, tmp_path: Path) -> None:
    """A run of several documents: each follows the end of another, and that is what an empty prompt stands for."""
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in CORPUS))
    data: dict[str, Any] = {"train": str(tmp_path / "text.jsonl"), "tokenizer": kind, "length": 8}
    data |= {} if kind in ("bytes", "words") else {"vocab": 300}
    recipe = Recipe(data=DataConfig(**data))
    task = LanguageModelTraining.prepare(TaskContext(recipe, tmp_path / "run", None))
    config = task.config(None)
    save_model(Transformer(config), tmp_path / "model", task.tokenizer)
    bundle, theirs = load(tmp_path / "model"), transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    document = task.train.ids[: task.train.starts[1]].tolist()
    assert bundle.prompts.text(CORPUS[0]) == theirs(CORPUS[0])["input_ids"] == document[:-1]
    assert bundle.prompts.text("") == [document[-1]] == [theirs.bos_token_id] == list(config.special.eos_ids)


def test_a_run_goes_on_from_what_it_was_trained_with(tmp_path: Path) -> None:
    """Older runs have a tokenizer.json that puts [CLS] and [SEP] around a text; they never saw these."""
    tokenizer = train_tokenizer("wordpiece", CORPUS, 100)
    save_model(Transformer(gpt2(1, 16, 2, vocab=100, length=32)), tmp_path / "m", tokenizer)
    around_it = tokenizer.encode("low").ids
    assert load(tmp_path / "m").prompts.text("low") == around_it
    (tmp_path / "m" / "run").mkdir()
    (tmp_path / "m" / "run" / "recipe.toml").write_text('task = "lm"\n')
    assert load(tmp_path / "m").prompts.text("low") == around_it[1:-1]


def test_documents_of_a_base_begin_as_its_prompts(tmp_path: Path) -> None:
    """What is trained on, and what is evaluated: with the BOS that a prompt has."""
    tokenizer = Tokenizer(around(trained(MARKS, pieces=False), "<bos> $A"), {"eos_token": "<eos>"})
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in CORPUS))
    recipe = Recipe(data=DataConfig(train=str(tmp_path / "text.jsonl"), length=8))
    task = LanguageModelTraining.prepare(TaskContext(recipe, tmp_path / "run", tokenizer))
    bos, eos = (tokenizer.backend.token_to_id(name) for name in ("<bos>", "<eos>"))
    document = [bos, *tokenizer.ids(CORPUS)[0], eos]
    for store in (task.train, task.valid, evaluation_tokens(str(tmp_path / "text.jsonl"), recipe.data, tokenizer)):
        assert [store.ids[a:b].tolist() for a, b in pairwise(store.starts)] == [document] * (len(store.starts) - 1)


def test_a_text_is_evaluated_as_in_transformers(tmp_path: Path) -> None:
    """Its first token is predicted from the BOS that the tokenizer puts before it."""
    backend = around(trained(MARKS, pieces=False), "<bos> $A")
    write_model(tmp_path / "m", backend)
    Tokenizer(backend, {"bos_token": "<bos>", "eos_token": "<eos>"}).save(tmp_path / "m")
    (tmp_path / "text.txt").write_text(CORPUS[0])
    bundle = load(tmp_path / "m")
    data = DataConfig(length=64)
    store = evaluation_tokens(str(tmp_path / "text.txt"), data, bundle.require_tokenizer())
    losses = measure(bundle.model, store, data)
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")(CORPUS[0], return_tensors="pt")["input_ids"]
    oracle = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
    with torch.no_grad():
        expected = oracle(ids, labels=ids).loss.item()
    assert losses.counts.sum() == ids.shape[1] - 1
    assert losses.sums.sum() / losses.counts.sum() == pytest.approx(expected, abs=1e-4)
