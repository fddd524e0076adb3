"""Small Whisper folders with random weights, as `transformers` writes them: the oracle of transcription."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

MEMORY, LONGEST, MELS = 50, 56, 8
"""Positions of the encoder (a second of sound), tokens of a text, mel channels."""
LANGUAGES = ("en", "de", "zh")


def make_folder(folder: Path, seed: int, *, multilingual: bool = True, spread: float = 0.35) -> Path:
    """A byte-level vocabulary, then the special tokens in the order of the real ones, then the times."""
    import transformers
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    languages = LANGUAGES if multilingual else ("en",)
    names = ["endoftext", "startoftranscript", *languages, "translate", "transcribe", "startoflm", "startofprev"]
    names += ["nospeech", "notimestamps"]
    backend.add_special_tokens([f"<|{name}|>" for name in names])
    backend.add_tokens([AddedToken(f"<|{i / 50:.2f}|>", special=False, normalized=False) for i in range(MEMORY + 1)])
    vocab = backend.get_vocab()
    token = {name: vocab[f"<|{name}|>"] for name in names}
    folder.mkdir(parents=True)
    backend.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "WhisperTokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "pad_token": "<|endoftext|>"}))
    torch.manual_seed(seed)
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), token["endoftext"])
    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=len(vocab), num_mel_bins=MELS, d_model=32, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
            max_source_positions=MEMORY, max_target_positions=LONGEST, init_std=spread,
            decoder_start_token_id=token["startoftranscript"], suppress_tokens=None, begin_suppress_tokens=None, **ids,
        )
    )  # fmt: skip
    with torch.no_grad():  # texts that end, and words between the times
        model.model.decoder.embed_tokens.weight[token["endoftext"]] *= 1.6
        model.model.decoder.embed_tokens.weight[token["notimestamps"] + 1 :] *= 0.8
        model.model.decoder.embed_tokens.weight[token["nospeech"]] *= 1.5
    said: dict[str, Any] = {
        **ids, "decoder_start_token_id": token["startoftranscript"], "max_length": LONGEST,
        "suppress_tokens": [3, 7, token["translate"], token["transcribe"], token["startofprev"], token["nospeech"]],
        "begin_suppress_tokens": [vocab["Ġ"], token["endoftext"]], "is_multilingual": multilingual,
        "no_timestamps_token_id": token["notimestamps"], "prev_sot_token_id": token["startofprev"],
        "max_initial_timestamp_index": 10, "return_timestamps": False, "alignment_heads": [[0, 1], [1, 0], [1, 3]],
    }  # fmt: skip
    if multilingual:
        said["lang_to_id"] = {f"<|{name}|>": token[name] for name in languages}
        said["task_to_id"] = {name: token[name] for name in ("transcribe", "translate")}
    model.generation_config = transformers.GenerationConfig(**said)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a folder once for each seed and kind."""
    root, made = tmp_path_factory.mktemp("whisper"), dict[str, Path]()

    def make(seed: int = 0, *, multilingual: bool = True) -> Path:
        name = f"{seed}-{multilingual}"
        if name not in made:
            made[name] = make_folder(root / name, seed, multilingual=multilingual)
        return made[name]

    return make


def make_moonshine(folder: Path, seed: int) -> Path:
    """A small Moonshine folder with random weights, and letters as its tokens."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    special = ["<unk>", "<s>", "</s>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate([*special, *letters])}, []))
    backend.add_special_tokens(special)
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    folder.mkdir(parents=True)
    backend.save(str(folder / "tokenizer.json"))
    names = dict(zip(("unk_token", "bos_token", "eos_token"), special, strict=True))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    torch.manual_seed(seed)
    model = transformers.MoonshineForConditionalGeneration(
        transformers.MoonshineConfig(
            vocab_size=len(special) + len(letters), hidden_size=32, intermediate_size=48, encoder_num_hidden_layers=2,
            decoder_num_hidden_layers=2, encoder_num_attention_heads=4, decoder_num_attention_heads=4,
            max_position_embeddings=194, initializer_range=0.35,
        )
    )  # fmt: skip
    with torch.no_grad():  # texts that end
        model.model.decoder.embed_tokens.weight[2] *= 2.0
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def moonshine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_moonshine(tmp_path_factory.mktemp("moonshine") / "model", 0)
