"""How a folder says that its model generates, from the files to every way of asking for a text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("pydantic")

from headway.api import Bundle, load
from headway.cli import main
from headway.config.model import SpecialTokens
from headway.config.presets import gpt2
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError
from headway.generate.decode import decode
from headway.generate.sampling.sampler import Sampling
from headway.hub.folder import load_model, save_model, write_model_files
from headway.hub.generation_config import COPIED, copied_settings, read_generation
from headway.model.model import Transformer
from headway.serve.context import ServedModel
from headway.serve.limits import Limits
from headway.serve.schemas import ChatRequest, CompletionRequest

ENDS = [3, 7, 11]
CHAT = "{% for m in messages %}{{ m.content }}{% endfor %}"
ALL: dict[str, Any] = {
    "do_sample": True, "temperature": 0.6, "top_k": 5, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.9,
    "epsilon_cutoff": 1e-4, "eta_cutoff": 1e-4, "stop_strings": ["zz"], "max_length": 60, "max_new_tokens": 12,
    "min_length": 2, "min_new_tokens": 1, "repetition_penalty": 1.1, "no_repeat_ngram_size": 4,
    "encoder_no_repeat_ngram_size": 5, "bad_words_ids": [[40]], "sequence_bias": [[[41], 0.5]],
    "suppress_tokens": [42], "begin_suppress_tokens": [43], "forced_bos_token_id": None, "forced_eos_token_id": 3,
    "forced_decoder_ids": [[50, 44]], "exponential_decay_length_penalty": [5, 1.1], "num_beams": 2,
    "length_penalty": 0.7, "early_stopping": "never", "renormalize_logits": True,
    "is_multilingual": True, "lang_to_id": {"<|en|>": 5}, "task_to_id": {"transcribe": 6}, "language": "en",
    "task": "transcribe", "return_timestamps": True, "no_timestamps_token_id": 9, "prev_sot_token_id": 8,
    "max_initial_timestamp_index": 50, "alignment_heads": [[0, 1]],
}  # fmt: skip
ALL = {key: value for key, value in ALL.items() if value is not None}


def write(folder: Path, **said: Any) -> Path:
    """A small decoder of bytes; its config.json knows one end, generation_config.json whatever it says."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer("bytes", [])
    tokenizer.config["chat_template"] = CHAT
    model = Transformer(gpt2(1, 16, 2, vocab=256, length=128)).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    object.__setattr__(model.config, "special", SpecialTokens(bos=0, eos=3))
    save_model(model, folder, tokenizer)
    (folder / "generation_config.json").write_text(json.dumps(said))
    return folder


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as done:
        main(["run", *map(str, words)])
    assert isinstance(done.value.code, int)
    return done.value.code


def test_any_of_several_ends_ends_a_text(tmp_path: Path) -> None:
    bundle = load(write(tmp_path / "m", eos_token_id=ENDS, sequence_bias=[[[11], 50.0]], suppress_tokens=[3, 7]))
    assert bundle.config.special.eos_ids == tuple(ENDS)
    assert list(bundle.stream("ab")) == [] == list(bundle.chat([{"role": "user", "content": "ab"}]))
    assert bundle.generate(["ab", "c"]) == ["", ""]
    pieces = list(decode(bundle.model, [[97]], bundle.sampling()))
    assert [(piece.token, piece.finish) for piece in pieces] == [(11, "stop")]
    assert [text for text, _ in bundle.beams("ab", bundle.beam(width=2, early=True))] == [
        bundle.require_tokenizer().decode([11])
    ]
    service = ServedModel(bundle, Limits(slots=2))
    try:
        assert service.engine is not None and service.requests is not None
        asked = CompletionRequest.model_validate({"model": "m", "prompt": "ab", "max_tokens": 9})
        ticket = service.engine.submit(service.requests.build(asked)[0])
        while service.engine.step():
            pass
        assert [event.finish for event in ticket] == ["stop"]
    finally:
        service.close()


def test_ends_are_read_once_and_written_again(tmp_path: Path) -> None:
    """Also where config.json has another one: the newer file wins, as in transformers."""
    folder = write(tmp_path / "m", eos_token_id=ENDS, bos_token_id=9)
    model = load_model(folder)
    assert model.config.special == SpecialTokens(bos=9, eos=tuple(ENDS))
    save_model(model, tmp_path / "again")
    assert load_model(tmp_path / "again").config == model.config
    assert json.loads((tmp_path / "again" / "generation_config.json").read_text())["eos_token_id"] == ENDS
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 5}))
    assert load_model(folder).config.special == SpecialTokens(bos=0, eos=5)
    (folder / "generation_config.json").unlink()
    assert load_model(folder).config.special == SpecialTokens(bos=0, eos=3)


def test_what_is_followed_survives_being_saved_and_trained_on(tmp_path: Path) -> None:
    assert {*ALL} == {*COPIED} - {"forced_bos_token_id"}
    first = load(write(tmp_path / "m", **ALL, eos_token_id=ENDS, top_h=0.3))
    first.save(tmp_path / "saved")
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    write_model_files(first.model, run_folder, first.tokenizer, tmp_path / "saved")  # as a run does from its base
    for folder in (tmp_path / "saved", run_folder):
        assert copied_settings(folder) == ALL
        assert replace(read_generation(folder), ignored={}) == replace(first.generation, ignored={})
        assert load(folder).sampling() == first.sampling()
    theirs = pytest.importorskip("transformers").GenerationConfig.from_pretrained(run_folder)
    assert all(getattr(theirs, key) == value for key, value in ALL.items())


def test_an_adapter_generates_as_its_base(tmp_path: Path) -> None:
    base, adapter = write(tmp_path / "m", temperature=0.3), tmp_path / "a"
    adapter.mkdir()
    (adapter / "adapter.json").write_text(json.dumps({"base": str(base)}))
    assert read_generation(adapter).sampling == {"temperature": 0.3}


def test_a_token_that_the_model_does_not_have(tmp_path: Path) -> None:
    bundle = load(write(tmp_path / "m", suppress_tokens=[4, 256]))
    with pytest.raises(ConfigError) as error:
        bundle.sampling()
    assert error.value.code == "C003" and "256" in error.value.message


def test_settings_of_ones_own_win(tmp_path: Path) -> None:
    bundle = load(write(tmp_path / "m", **ALL))
    assert bundle.sampling().temperature == 0.6 and bundle.sampling().max_tokens == 12
    mine = bundle.sampling(temperature=0.2, max_tokens=3, stop_strings=["a"])
    assert (mine.temperature, mine.max_tokens, mine.stop_strings, mine.top_p) == (0.2, 3, ("a",), 0.9)
    assert bundle.beam(width=4).early == "never" and bundle.beam(width=4, early=True).early is True
    plain = Bundle("plain", bundle.model, bundle.tokenizer, None)
    assert plain.sampling() == Sampling() and plain.notes == ()


def test_the_command_line_tells_what_it_took(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "m", temperature=0.0, max_new_tokens=4, penalty_alpha=0.6, num_beams=3)
    assert run(folder, "ab") == 0
    out, err = capfd.readouterr()
    assert out.strip("\n") == "ab" + "".join(load(folder).stream("ab", 4, Sampling(temperature=0.0)))
    assert "from generation_config.json: max_tokens = 4, temperature = 0.0" in err
    assert "penalty_alpha = 0.6, num_beams = 3" in err
    assert run(folder, "ab", "--tokens", 2, "temperature=0.5", "--seed", 1) == 0
    err = capfd.readouterr().err
    assert "from generation_config.json" not in err and "penalty_alpha" in err
    assert run(folder, "ab", "--quiet") == 0
    assert capfd.readouterr().err == ""
    assert run(folder, "ab", "--beam", 2, "early=never") == 0
    assert "max_tokens = 4" in capfd.readouterr().err


def test_requests_win_over_the_folder(tmp_path: Path) -> None:
    service = ServedModel(load(write(tmp_path / "m", **ALL, eos_token_id=ENDS)), Limits(slots=1))
    try:
        assert service.requests is not None
        builder = service.requests

        def sampling(kind: Any = ChatRequest, **more: Any) -> Sampling:
            body = {"model": "m", **({"prompt": "a"} if kind is CompletionRequest else {}), **more}
            if kind is ChatRequest:
                body["messages"] = [{"role": "user", "content": "a"}]
            return builder.build(kind.model_validate(body))[0].sampling

        assert sampling() == load(tmp_path / "m").sampling()
        assert sampling(CompletionRequest).max_tokens == 16  # OpenAI's own
        mine = sampling(temperature=0, top_k=-1, max_tokens=3, stop="q", repetition_penalty=1.0, top_p=1.0)
        assert (mine.temperature, mine.top_k, mine.max_tokens, mine.stop_strings) == (0, 0, 3, ("q",))
        assert (mine.repetition, mine.top_p, mine.typical_p) == (1.0, 1.0, 0.9)
        assert sampling(max_tokens=100).max_length == 0
    finally:
        service.close()
    silent = ServedModel(load(write(tmp_path / "n")), Limits(slots=1))
    try:
        body = {"model": "n", "messages": [{"role": "user", "content": "a"}]}
        assert silent.requests is not None
        made = silent.requests.build(ChatRequest.model_validate(body))[0].sampling
        assert made == Sampling(temperature=1.0, max_tokens=127)
    finally:
        silent.close()
