"""The task `chat`: only answers count, packed or padded; figures agree with decoding; what is saved can converse."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.config.model import ModelConfig
from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.data.chat_template.template import (
    TEXT_TEMPLATE,
    TOKEN_TEMPLATE,
    TURN_TOKENS,
    ChatTemplate,
    encode_chats,
    ensure_template,
    special_token_strings,
)
from headway.data.datasets.chat import Conversation, EncodedChats, encode_conversations
from headway.data.files.rows import BadRows
from headway.data.synthetic.texts.chat import make_conversations
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError
from headway.generate.decode import Sampling, generate
from headway.model.model import Transformer
from headway.tasks.chat.training import ChatTraining, answer_losses, chat_tokenizer
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.recipe import Recipe, load_recipe
from headway.tasks.training import TaskContext, make_training
from headway.train.distributed import World
from headway.train.run import start, train

ALONE = World(0, 1, torch.device("cpu"))
QUIZ = [Conversation(messages) for messages in make_conversations(8, 7)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return chat_tokenizer(tmp_path_factory.mktemp("tokenizer"), DataConfig(), QUIZ)


@pytest.fixture(scope="module")
def chats(tokenizer: Tokenizer) -> EncodedChats:
    return encode_conversations(QUIZ, tokenizer, ChatTemplate(TOKEN_TEMPLATE), BadRows(), 224)


def recipe(rows: str = "pack", **train: Any) -> Recipe:
    data = DataConfig(length=224, rows=rows)  # type: ignore[arg-type]
    shape = ShapeConfig(depth=2, width=16, heads=2)
    return Recipe(task="chat", seed=1, data=data, model=shape, train=TrainConfig(steps=1, **train))


def task(tokenizer: Tokenizer, chats: EncodedChats, rows: str = "pack", **train: Any) -> ChatTraining:
    return ChatTraining(recipe(rows, **train), tokenizer, chats, chats)


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer, chats: EncodedChats) -> Transformer:
    torch.manual_seed(0)
    return Transformer(task(tokenizer, chats).config(None)).eval()


def each(chats: EncodedChats) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Every conversation alone: ids, and targets where answers count."""
    found = []
    for a, b in zip(chats.starts[:-1], chats.starts[1:], strict=True):
        ids, answer = torch.from_numpy(chats.ids[a:b]), torch.from_numpy(chats.assistant_mask[a:b])
        found.append((ids[None, :-1], ids[None, 1:].masked_fill(~answer[None, 1:], IGNORE)))
    return found


@pytest.mark.parametrize("rows", ["pack", "pad"])
def test_the_loss_is_that_of_each_answer_read_alone(
    tokenizer: Tokenizer, chats: EncodedChats, model: Transformer, rows: str
) -> None:
    made = task(tokenizer, chats, rows)
    batch = made.batch(np.arange(len(made.rows[0])))
    together = made.loss(model, *batch.tensors)  # type: ignore[arg-type]
    apart = torch.stack([made.loss(model, ids, targets, None) for ids, targets in each(chats)]).sum()
    assert batch.count == chats.assistant_mask.sum() < batch.tokens == len(chats.ids)
    assert torch.allclose(together, apart, rtol=1e-5)
    assert made.facts["answer_tokens"] == batch.count and made.facts["samples"] == len(made.rows[0])


def test_targets_are_the_answers_and_the_end_of_their_turns(tokenizer: Tokenizer, chats: EncodedChats) -> None:
    made = task(tokenizer, chats, "pad", batch_tokens=256)
    _, targets, _ = made.batch(np.arange(len(chats))).tensors
    assert targets is not None
    for row, one in zip(targets, QUIZ, strict=True):  # with batches by tokens, rows have the order of the data
        said = tokenizer.decode(row[row != IGNORE].tolist(), skip_special=False)
        assert said == "".join(m["content"] + "<|end|>" for m in one.messages[1::2])
    plan = made.plan(1)
    assert sorted(int(i) for s in range(int(plan.steps_per_epoch)) for i in plan.samples(s)) == list(range(len(chats)))


def test_answered_is_what_greedy_decoding_writes(tokenizer: Tokenizer, chats: EncodedChats, model: Transformer) -> None:
    """A model that has learned some of the answers by heart, and not others."""
    learner = Transformer(model.config).train()
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-2)
    made = task(tokenizer, chats)
    batch = made.batch(np.arange(len(made.rows[0])))
    for _ in range(32):
        optimizer.zero_grad()
        (made.loss(learner, *batch.tensors) / batch.count).backward()  # type: ignore[arg-type]
        optimizer.step()
    learner.eval()
    got = answer_losses(learner, chats, ALONE)
    right = np.zeros(len(chats))
    for i, one in enumerate(QUIZ):
        for place in range(1, len(one.messages), 2):
            before = [*one.messages[:place], {"role": "assistant", "content": ""}]
            prompt = encode_chats(tokenizer, ChatTemplate(TOKEN_TEMPLATE), [before])[0][0][:-1]  # type: ignore[index]
            written = list(generate(learner, prompt, 16, Sampling(temperature=0.0)))
            right[i] += tokenizer.decode(written) == one.messages[place]["content"]
    assert got.right.tolist() == right.tolist()
    assert 0 < right.sum() < got.answers.sum(), "neither all nor nothing, or this says little"
    assert got.answers.tolist() == [len(one.messages) // 2 for one in QUIZ]


def test_evaluation_is_the_loss_of_all_answers(tokenizer: Tokenizer, chats: EncodedChats, model: Transformer) -> None:
    made = task(tokenizer, chats)
    got = made.evaluate(model, ALONE)
    sums = [float(made.loss(model, ids, targets, None).detach()) for ids, targets in each(chats)]
    assert got["valid"] == pytest.approx(sum(sums) / chats.assistant_mask.sum(), rel=1e-5)
    assert got["perplexity"] == pytest.approx(np.exp(got["valid"]))
    assert got["answered"] == 0.0
    assert answer_losses(model, chats, ALONE).loss.tolist() == pytest.approx(sums, rel=1e-4)
    assert not model.training
    model.train()
    made.evaluate(model, ALONE)
    assert model.training
    model.eval()


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("tokens", [1, 600])
def test_evaluation_is_the_same_for_any_number_of_processes(
    tokenizer: Tokenizer,
    chats: EncodedChats,
    model: Transformer,
    size: int,
    tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = task(tokenizer, chats).evaluate(model, ALONE)
    monkeypatch.setattr("headway.tasks.chat.training.EVAL_TOKENS", tokens)
    sums: list[tuple[float, ...]] = []

    class Part(World):
        def sum(self, *values: float) -> list[float]:
            sums.append(values)
            return [1.0] * len(values)

    passes = []
    for rank in range(size):
        hook = model.register_forward_hook(lambda *_: passes.append(rank))  # noqa: B023
        task(tokenizer, chats).evaluate(model, Part(rank, size, torch.device("cpu")))
        hook.remove()
    loss, count, right, answers = np.array(sums).sum(0)
    assert loss / count == pytest.approx(whole["valid"], rel=1e-6)
    assert (count, right, answers) == (chats.assistant_mask.sum(), 0, sum(len(one.messages) // 2 for one in QUIZ))
    assert len({passes.count(rank) for rank in range(size)}) == 1, "sharded weights are gathered in every process"


def test_scores_are_computed_some_at_a_time(
    chats: EncodedChats, model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = answer_losses(model, chats, ALONE)
    monkeypatch.setattr("headway.tasks.chat.training.SCORED", 7)
    assert answer_losses(model, chats, ALONE).loss.tolist() == pytest.approx(whole.loss.tolist(), rel=1e-6)


def test_the_sample_shows_questions_and_answers(tokenizer: Tokenizer, chats: EncodedChats, model: Transformer) -> None:
    lines = task(tokenizer, chats).sample(model)
    for one in QUIZ[:2]:
        assert one.messages[0]["content"] + "\n→ " in lines
    assert QUIZ[2].messages[0]["content"] not in lines


def test_examine_gives_intervals(tmp_path: Path, tokenizer: Tokenizer, chats: EncodedChats, model: Transformer) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"messages": one.messages}) + "\n" for one in QUIZ))
    got = ChatTraining.evaluate_file(model, tokenizer, recipe(), str(path))
    loss, low, high = got.metrics["loss"]
    assert list(got.metrics) == ["loss", "perplexity", "answered"] and got.examples == len(QUIZ)
    assert low < loss < high and loss == pytest.approx(task(tokenizer, chats).evaluate(model, ALONE)["valid"])
    assert got.metrics["perplexity"] == pytest.approx(tuple(np.exp([loss, low, high])))
    assert got.details["answer_tokens"] == chats.assistant_mask.sum() == sum(one["tokens"] for one in got.each)
    assert got.details["answers"] == sum(one["answers"] for one in got.each) == sum(len(q.messages) // 2 for q in QUIZ)
    short = ChatTraining.evaluate_file(
        model, tokenizer, replace(recipe(), data=DataConfig(length=60, rows="pack")), str(path)
    )
    assert short.details["answer_tokens"] < chats.assistant_mask.sum()


def test_streams_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'data\.rows = "stream".*\n.*"pack" or "pad"'):
        make_training(TaskContext(recipe("stream"), tmp_path))


def test_nothing_usable_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"question": "q" * 300, "answer": "a"}) + "\n" + '{"question": "q", "answer": "a"}\n')
    made = recipe()
    made = replace(made, data=replace(made.data, train=str(path)))
    with pytest.raises(
        DataError, match=r"no conversation of 1 can be used: .*1 without room for an answer in 224 tokens"
    ):
        make_training(TaskContext(made, tmp_path / "run"))


def base(special: tuple[str, ...], **config: str) -> Tokenizer:
    return Tokenizer(train_tokenizer("bytes", [], special=special).backend, config)


def prepared(tmp_path: Path, own: Tokenizer) -> ChatTraining:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"question": f"q{i}", "answer": f"a{i}"}) + "\n" for i in range(20)))
    made = recipe()
    made = replace(made, data=replace(made.data, train=str(path)), model=replace(made.model, from_="elsewhere"))
    return ChatTraining.prepare(TaskContext(made, tmp_path / "run", own))


def test_a_base_without_template_gets_plain_words(tmp_path: Path) -> None:
    made = prepared(tmp_path, base(("<s>", "</s>")))
    assert made.tokenizer.config["chat_template"] == TEXT_TEMPLATE
    first = made.train.ids[: made.train.starts[1]].tolist()
    assert made.tokenizer.decode(first, skip_special=False) == "<s>User: q0\nAssistant: a0</s>\n"
    answer = [i for i, counts in zip(first, made.train.assistant_mask, strict=False) if counts]
    assert made.tokenizer.decode(answer, skip_special=False) == " a0</s>"
    assert made.about["bad_rows"] == 0 and made.facts["documents"] == 18
    assert not (tmp_path / "run").exists(), "no tokenizer of its own"
    same = prepared(tmp_path, base(("<|endoftext|>",)))
    text = same.tokenizer.decode(same.train.ids[: same.train.starts[1]].tolist(), skip_special=False)
    assert text == "User: q0\nAssistant: a0<|endoftext|>\n", "where one token begins and ends texts, it only ends them"
    with pytest.raises(ConfigError, match="nothing could end an answer"):
        prepared(tmp_path, base(()))


def test_what_ends_an_answer_ends_a_text(tmp_path: Path) -> None:
    """A base may have a template whose turns end otherwise than its texts."""
    made = prepared(tmp_path, base((*TURN_TOKENS, "</s>"), eos_token="</s>", chat_template=TOKEN_TEMPLATE))
    old, end = made.tokenizer.special["eos"], made.tokenizer.backend.token_to_id("<|end|>")
    config = ChatTraining(recipe(), made.tokenizer, made.train, made.valid).config(None)
    assert config.special.eos == (old, end)

    def with_eos(eos: Any) -> ModelConfig:
        before = replace(config, special=replace(config.special, eos=eos))
        return made.config(before)

    assert with_eos(end).special.eos == end
    assert with_eos((old, end)).special.eos == (old, end)
    assert with_eos(None).special.eos == end


def test_a_run_can_converse_and_transformers_reads_it_alike(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    from headway.cli import main

    small = ["model.depth=1", "model.width=16", "model.heads=2", "train.batch=2", "train.steps=4", "train.eval_every=2"]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"messages": one.messages}) + "\n" for one in QUIZ))
    name, made = load_recipe("chat", [*small, f"data.train={path}", f"data.test={path}", f"out={tmp_path / 'runs'}"])
    events: list[tuple[str, dict[str, Any]]] = []
    folder = train(start(name, made), lambda kind, **facts: events.append((kind, facts))).folder
    told = dict(events)
    assert {"valid", "perplexity", "answered"} <= told["eval"].keys() and {"test", "answered"} <= told["test"].keys()
    assert "\n→ " in told["sample"]["text"]
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ours = load_tokenizer(folder)
    end = ours.backend.token_to_id("<|end|>")
    assert model.generation_config.eos_token_id == model.config.eos_token_id == theirs.eos_token_id == end
    template = ensure_template(ours)[1]
    for messages in [QUIZ[0].messages, [{"role": "system", "content": "Be brief."}, *QUIZ[1].messages[:1]]]:
        for asking in (False, True):
            text = template.render(messages, tokens=special_token_strings(ours), add_generation_prompt=asking)
            assert theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=asking) == text
    encoded: Any = theirs.apply_chat_template(
        QUIZ[0].messages, return_dict=True, return_assistant_tokens_mask=True, tokenize=True
    )
    ids, mask = encode_chats(ours, template, [QUIZ[0].messages])[0]  # type: ignore[misc]
    assert encoded["input_ids"] == ids and [bool(i) for i in encoded["assistant_masks"]] == mask
    monkeypatch.setattr("sys.stdin", io.StringIO("Who am I?\n/save talk.json\n"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["run", str(folder), "--chat", "--tokens", "3", "Hello, I am Ada."])
    assert caught.value.code == 0, capfd.readouterr()
    assert [m["role"] for m in json.loads(Path("talk.json").read_text())["messages"]] == ["user", "assistant"] * 2
