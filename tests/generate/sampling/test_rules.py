"""The rules of generation_config.json against `transformers`: greedy, by beams, and what is drawn from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.config.generation import Bias, LogitRules
from headway.errors import ConfigError
from headway.generate.accel import dispatch as fast
from headway.generate.beam.rules import Search
from headway.generate.beam.search import Beam, beam_search
from headway.generate.decode import decode
from headway.generate.engine.engine import Engine, Request
from headway.generate.protocol import Source
from headway.generate.sampling.sampler import Sampler, Sampling
from headway.hub.folder import load_model
from headway.hub.generation_config import read_generation
from headway.model.model import Transformer
from headway.tasks.seq2seq.translate import beam_for, recipe_of
from tests.generate.conftest import answered

transformers = pytest.importorskip("transformers")

VOCAB, PAD, EOS, LENGTH = 14, 1, 2, 12
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", dict(n_embd=16, n_layer=1, n_head=2, n_positions=64)),
    "bart": ("BartForConditionalGeneration", dict(
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64, decoder_start_token_id=PAD,
        forced_eos_token_id=None,
    )),
    "t5": ("T5ForConditionalGeneration", dict(
        d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=PAD,
    )),
}  # fmt: skip
RULES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "several ends": {"eos_token_id": [EOS, 5, 9]},
    "repetition": {"repetition_penalty": 1.7},
    "less than one": {"repetition_penalty": 0.5},
    "no repeats": {"no_repeat_ngram_size": 2},
    "not the source": {"encoder_no_repeat_ngram_size": 2},
    "no word of the source": {"encoder_no_repeat_ngram_size": 1},
    "suppressed": {"suppress_tokens": [4, 6, 7]},
    "suppressed at first": {"begin_suppress_tokens": [3, 4, 5, 6, 7, 8, EOS]},
    "banned": {"bad_words_ids": [[4], [5, 6], [7, 8, 9], [11, 11], [EOS]]},
    "biased": {"sequence_bias": [[[4], 1.5], [[5, 6], -7.0], [[8, 9], 3.0]]},
    "decaying": {"exponential_decay_length_penalty": [2, 1.6]},
    "at least": {"min_new_tokens": 5, "eos_token_id": [EOS, 3, 5, 7, 9, 11]},
    "at least in all": {"min_length": 12, "eos_token_id": [EOS, 3, 5, 7, 9, 11]},
    "at most": {"max_new_tokens": 4},
    "forced end": {"forced_eos_token_id": EOS},
    "renormalised": {"renormalize_logits": True, "suppress_tokens": [3, 4]},
    "all": {
        "eos_token_id": [EOS, 5], "repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "suppress_tokens": [4],
        "encoder_no_repeat_ngram_size": 3, "begin_suppress_tokens": [6], "bad_words_ids": [[7, 8]], "min_new_tokens": 3,
        "sequence_bias": [[[9], 0.5]], "forced_eos_token_id": EOS, "exponential_decay_length_penalty": [3, 1.2],
    },
}  # fmt: skip
EXCEPT = {"at least": "eos_token_id", "at least in all": "eos_token_id"}
"""What a rule is not compared without."""
FIRST = {"forced_bos_token_id": 6, "begin_suppress_tokens": [3, 4]}
EARLY = [{"num_beams": 4, "early_stopping": early, "length_penalty": penalty}
         for early in (True, False, "never") for penalty in (1.0, 0.6, 2.0, 0.0, -0.5)]  # fmt: skip


def oracle_of(kind: str, said: dict[str, Any], seed: int) -> Any:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    name, fields = KINDS[kind]
    torch.manual_seed(seed)
    cls = getattr(transformers, name)
    ids = dict(vocab_size=VOCAB, pad_token_id=PAD, eos_token_id=EOS, bos_token_id=0)
    made = cls(cls.config_class(**ids, **fields)).eval()
    for parameter in made.parameters():
        if parameter.requires_grad:
            parameter.data += 0.3 * torch.randn_like(parameter)
    made.generation_config.update(**{"max_length": None, **said})
    return made


def both(kind: str, said: dict[str, Any], seed: int, folder: Path) -> tuple[Any, Transformer, Tensor]:
    oracle = oracle_of(kind, said, seed)
    oracle.save_pretrained(folder)
    return oracle, load_model(folder), torch.randint(3, VOCAB, (1, 7))


def theirs(oracle: Any, ids: Tensor, **how: Any) -> list[list[int]]:
    """What it writes after the prompt, up to an end."""
    more = {} if oracle.generation_config.max_new_tokens else {"max_new_tokens": LENGTH}
    made = oracle.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **more, **how)
    begin = 1 if oracle.config.is_encoder_decoder else ids.shape[1]
    ends = oracle.generation_config.eos_token_id
    ends = [ends] if isinstance(ends, int) else ends
    rows = []
    for row in made[:, begin:].tolist():
        stop = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
        rows.append(row[:stop])
    return rows


def greedy(model: Transformer, folder: Path, ids: Tensor) -> list[int]:
    said = read_generation(folder)
    if model.config.kind == "decoder":
        how = Sampling(**{"max_tokens": LENGTH, **said.sampling, "temperature": 0.0})
        return [piece.token for piece in decode(model, ids.tolist(), how) if piece.token is not None]
    own = {name: value for name, value in said.rules.items() if name not in ("early", "renormalise")}
    most, least = (said.longest or LENGTH, said.shortest or 0)
    how = Sampling(temperature=0.0, max_tokens=most, min_tokens=least, no_repeat=said.no_repeat or 0, **own)
    return [piece.token for piece in decode(model, None, how, source=Source(ids)) if piece.token is not None]


def searched(model: Transformer, folder: Path, ids: Tensor, **more: Any) -> list[list[int]]:
    said = read_generation(folder)
    if model.config.kind == "decoder":
        beam = Beam(**{"max_tokens": LENGTH, **said.search, **more})
        return [h.tokens for h in beam_search(model, beam, ids.tolist())[0]]
    beam = replace(beam_for(recipe_of(model, folder)), **said.rules, **more)
    beam = beam if said.longest else replace(beam, max_tokens=LENGTH)
    return [h.tokens for h in beam_search(model, beam, source=Source(ids))[0]]


CASES = [(kind, name) for kind in KINDS for name in RULES] + [("bart", "first"), ("t5", "first")]
RULES["first"] = FIRST


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_greedy_and_beams_as_transformers(kind: str, name: str, tmp_path: Path) -> None:
    changed = name == "nothing"
    for seed in range(4):
        oracle, model, ids = both(kind, RULES[name], seed, tmp_path / str(seed))
        free = oracle_of(kind, {key: value for key, value in RULES[name].items() if key == EXCEPT.get(name)}, seed)
        if name == "not the source":  # which is then what it would say
            ids = torch.tensor([theirs(free, ids)[0][:7]])
        assert [greedy(model, tmp_path / str(seed), ids)] == theirs(oracle, ids)
        assert searched(model, tmp_path / str(seed), ids, width=1) == theirs(oracle, ids)
        best = theirs(oracle, ids, num_beams=3, num_return_sequences=3)
        assert searched(model, tmp_path / str(seed), ids, width=3, n_best=3) == best
        changed |= theirs(oracle, ids) != theirs(free, ids)
        changed |= theirs(free, ids, num_beams=3, num_return_sequences=3) != best
    assert changed, "a rule that changes nothing is not tested"


@pytest.mark.parametrize("said", EARLY, ids=[f"{e['early_stopping']} {e['length_penalty']}" for e in EARLY])
@pytest.mark.parametrize("kind", ["gpt2", "bart"])
def test_when_a_search_stops(kind: str, said: dict[str, Any], tmp_path: Path) -> None:
    for seed in range(4):
        oracle, model, ids = both(kind, said | {"eos_token_id": [EOS, 5]}, seed, tmp_path / str(seed))
        best = theirs(oracle, ids, num_beams=4, num_return_sequences=4)
        assert searched(model, tmp_path / str(seed), ids, width=4, n_best=4) == best


def test_never_finds_what_false_does_not(tmp_path: Path) -> None:
    """The rules differ where a longer text may still become better."""
    found = set()
    for seed in range(12):
        said = {"num_beams": 3, "length_penalty": 2.0, "eos_token_id": [EOS, 5, 7, 9, 11]}
        _, model, ids = both("gpt2", said, seed, tmp_path / str(seed))
        rows = [searched(model, tmp_path / str(seed), ids, width=3, early=early) for early in (False, "never")]
        found.add(rows[0] == rows[1])
    assert False in found


DRAWN: dict[str, dict[str, Any]] = {
    "usual": {},
    "all of them": {"temperature": 0.7, "top_k": 9, "top_p": 0.8, "min_p": 0.02},
    "typical": {"typical_p": 0.6, "top_k": 0},
    "little": {"typical_p": 0.1, "temperature": 1.4},
    "epsilon": {"epsilon_cutoff": 0.06},
    "eta": {"eta_cutoff": 0.2},
    "with rules": {"temperature": 1.3, "repetition_penalty": 1.4, "suppress_tokens": [4], "typical_p": 0.9},
    "much": {"temperature": 2.0, "epsilon_cutoff": 0.9},
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_from(name: str, tmp_path: Path) -> None:
    oracle = oracle_of("gpt2", {"do_sample": True, **DRAWN[name]}, 0)
    oracle.save_pretrained(tmp_path)
    said, ids = read_generation(tmp_path), torch.randint(3, VOCAB, (5, 7))
    config, _ = oracle._prepare_generation_config(None)
    oracle._prepare_special_tokens(config, kwargs_has_attention_mask=True, device="cpu")
    shape = oracle._get_logits_processor(config, input_ids_seq_length=7, encoder_input_ids=ids, device="cpu")
    logits = 2 * torch.randn(5, VOCAB)
    sampler = Sampler([Sampling(**said.sampling)] * 5, ids.tolist(), [(EOS,)] * 5)
    ours = sampler.process(logits.clone(), [0] * 5)
    torch.testing.assert_close(ours.softmax(-1), shape(ids, logits.clone()).softmax(-1))


def test_forced_places_and_what_follows_them(tmp_path: Path) -> None:
    """Whisper's: languages and tasks stand where they must, though they are suppressed elsewhere."""
    said = {"forced_decoder_ids": [[1, 7], [2, None], [3, 9]], "suppress_tokens": [7, 9], "begin_suppress_tokens": [4]}
    model = load_folder("bart", tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps(said))
    source = Source(torch.randint(3, VOCAB, (1, 5)))
    own = read_generation(tmp_path).rules
    assert own == {"banned": ((7,), (9,)), "first_banned": (4,), "forced": ((1, 7), (3, 9))}
    drawn = [
        p.token for p in decode(model, None, Sampling(temperature=0.0, max_tokens=6, stop=(), **own), source=source)
    ]
    found = beam_search(model, Beam(max_tokens=6, width=1, eos=(), **own), source=source)[0][0].tokens
    for tokens in (drawn, found):
        assert (tokens[0], tokens[2]) == (7, 9) and not {7, 9} & {tokens[1], *tokens[3:]} and tokens[3] != 4


def load_folder(kind: str, folder: Path) -> Transformer:
    oracle_of(kind, {}, 0).save_pretrained(folder)
    return load_model(folder)


def test_rows_have_rules_of_their_own(tmp_path: Path) -> None:
    """As if each were alone, in `decode` and in the engine."""
    model = load_folder("gpt2", tmp_path)
    how = [
        Sampling(temperature=0.0, max_tokens=8, bias=(Bias(tokens=(4,), value=9.0),), no_repeat=2),
        Sampling(temperature=0.0, max_tokens=8, min_tokens=8, last=3),
        Sampling(seed=4, max_tokens=8, first=5, first_banned=(6, 7), decay=(2, 1.3)),
        Sampling(seed=5, max_tokens=40, max_length=11),
        Sampling(seed=5, max_tokens=8, no_repeat_source=1, min_length=9),
        Sampling(temperature=0.0, max_tokens=8, timestamps=(9, 7, 2)),
        Sampling(temperature=0.0, max_tokens=8),
    ]
    prompts = [[3 + i, 4, 5 + i, 6][: 1 + i % 4] for i in range(len(how))]
    together: list[list[int | None]] = [[] for _ in how]
    for piece in decode(model, prompts, how):
        together[piece.row].append(piece.token)
    alone = [[p.token for p in decode(model, [prompt], each)] for prompt, each in zip(prompts, how, strict=True)]
    assert together == alone
    assert len(alone[3]) <= 11 - len(prompts[3]) and alone[2][0] == 5 and not {*alone[4]} & {*prompts[4]}

    class Letters:
        def decode(self, ids: Any) -> str:
            return "".join(chr(97 + i) for i in ids)

    engine = Engine(model, Letters(), slots=4, capacity=32)
    requests = answered(engine, *(Request(tuple(p), each, likely=False) for p, each in zip(prompts, how, strict=True)))
    assert [[event.token for event in request if event.token is not None] for request in requests] == alone


@pytest.mark.parametrize(
    "rule",
    [
        {"bias": (Bias(tokens=(4,), value=1.0),)}, {"repetition": 1.1}, {"no_repeat": 2}, {"no_repeat_source": 2},
        {"min_tokens": 2}, {"min_length": 2}, {"decay": (1.0, 1.1)}, {"first_banned": (4,)}, {"forced": ((1, 4),)},
        {"banned": ((4, 5),)}, {"banned": ((4,),)}, {"first": 4}, {"last": 4}, {"timestamps": (9, 7, 2)},
    ],
    ids=lambda rule: next(iter(rule)),
)  # fmt: skip
def test_every_rule_leaves_the_fast_way(rule: dict[str, Any], tmp_path: Path) -> None:
    """Whoever takes the best token without a look at all logits knows none of them; a search knows three."""
    assert not Sampler([Sampling(temperature=0.0, **rule)], [[1]]).argmax_only
    search = Search(load_folder("gpt2", tmp_path), Beam(**rule), [[1]])
    assert search.simple == (rule in ({"banned": ((4,),)}, {"first": 4}, {"last": 4}))
    assert {name for name in LogitRules.__dataclass_fields__} - {"max_length"} >= {*rule}


def test_no_rule_is_left_out_above() -> None:
    marks = test_every_rule_leaves_the_fast_way.pytestmark  # type: ignore[attr-defined]
    tried = {name for rule in marks[0].args[1] for name in rule}
    assert tried == {*LogitRules.__dataclass_fields__} - {"max_length"}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("kind", ["gpt2", "bart"])
def test_kernels_follow_the_same_rules(kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or leave them to the ordinary way, where they do not know them."""
    pytest.importorskip("numba")
    _, model, ids = both(kind, RULES[name], 0, tmp_path)
    plain = greedy(model, tmp_path, ids), searched(model, tmp_path, ids, width=3, n_best=3)
    monkeypatch.setattr(fast, "MIN_WEIGHTS", 0)
    if kind == "gpt2" and not fast.accelerates(model, 1):
        pytest.skip("no threads that several callers may use at once")
    assert (greedy(model, tmp_path, ids), searched(model, tmp_path, ids, width=3, n_best=3)) == plain


@pytest.mark.parametrize("wrong", [
    {"repetition": 0.0}, {"repetition": float("nan")}, {"min_tokens": -1}, {"banned": ((),)}, {"decay": (1.0,)},
    {"decay": (1.0, 0.0)}, {"forced": ((1,),)}, {"bias": (Bias(tokens=(), value=1.0),)}, {"no_repeat_source": -2},
    {"bias": (Bias(tokens=(1,), value=float("inf")),)},
])  # fmt: skip
@pytest.mark.parametrize("kind", [Sampling, Beam])
def test_rules_that_are_none(kind: type, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        kind(**wrong)
    assert error.value.code == "C003"
