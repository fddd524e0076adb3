"""Beam search against `transformers`: the same hypotheses and scores, for tiny random models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from headway.generate.beam.search import Beam, beam_search
from headway.generate.protocol import Source
from headway.hub.folder import load_model

VOCAB, PAD, EOS, LENGTH = 14, 1, 2, 10
SEQ2SEQ: dict[str, Any] = dict(
    vocab_size=VOCAB, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
    decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=32, pad_token_id=PAD,
    decoder_start_token_id=PAD, eos_token_id=EOS, bos_token_id=0, forced_eos_token_id=None,
)  # fmt: skip
T5: dict[str, Any] = dict(
    vocab_size=VOCAB, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, pad_token_id=PAD,
    decoder_start_token_id=PAD, eos_token_id=EOS,
)  # fmt: skip
GPT2: dict[str, Any] = dict(
    vocab_size=VOCAB, n_embd=16, n_layer=1, n_head=2, n_positions=32, pad_token_id=PAD, eos_token_id=EOS,
    bos_token_id=0,
)  # fmt: skip
CASES = {
    "bart": ("BartForConditionalGeneration", "BartConfig", SEQ2SEQ),
    "marian": ("MarianMTModel", "MarianConfig", SEQ2SEQ),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
}
PENALTIES = (1.0, 0.6, 2.0, 0.0, -0.5)


def oracle_of(name: str, seed: int) -> Any:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model, config, fields = CASES[name]
    torch.manual_seed(seed)
    made = getattr(transformers, model)(getattr(transformers, config)(**fields)).eval()
    for parameter in made.parameters():
        if parameter.requires_grad:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return made


def settings_of(seed: int) -> tuple[Beam, dict[str, Any]]:
    """The same settings in both languages; together the seeds try all that there is."""
    forced, banned = seed % 3 == 0, ((4,), (5, 6), (7, 8, 9)) if seed % 4 == 1 else ()
    ours = Beam(
        width=4, n_best=3, max_tokens=LENGTH, early=seed % 2 == 0, length_penalty=PENALTIES[seed % 5],
        eos=(EOS, 3) if seed % 7 == 3 else None, first=5 if forced else None, last=EOS if forced else None,
        banned=banned, no_repeat=(0, 2, 3, 0, 1, 2)[seed % 6], min_tokens=(0, 4, 0, 12)[seed % 4],
    )  # fmt: skip
    theirs = dict(
        num_beams=4, num_return_sequences=3, max_new_tokens=LENGTH, early_stopping=ours.early, do_sample=False,
        length_penalty=ours.length_penalty, return_dict_in_generate=True, output_scores=True,
        eos_token_id=[EOS, 3] if ours.eos else EOS, forced_bos_token_id=ours.first, forced_eos_token_id=ours.last,
        bad_words_ids=[list(b) for b in banned] or None, no_repeat_ngram_size=ours.no_repeat,
        min_new_tokens=min(ours.min_tokens, LENGTH) or None,  # more of them than there may be, it refuses
    )  # fmt: skip
    return ours, theirs


def compare(name: str, seed: int, folder: Path) -> list[int]:
    """The lengths of the hypotheses, which were the same."""
    oracle = oracle_of(name, seed)
    oracle.save_pretrained(folder)
    model = load_model(folder)
    beam, theirs = settings_of(seed)
    ids = torch.randint(4, VOCAB, (3, 6))
    attention_mask = torch.ones(3, 6, dtype=torch.bool)
    if name == "gpt2":  # forced_bos_token_id is for texts of one token, there
        theirs["forced_bos_token_id"] = None
        beam = Beam(**{**vars(beam), "first": None})
        out = oracle.generate(ids, attention_mask=attention_mask.long(), **theirs)
        found, begin = beam_search(model, beam, ids.tolist()), 6
    else:
        attention_mask[1, 5:], attention_mask[2, 2:] = False, False
        ids = ids.masked_fill(~attention_mask, PAD)
        out = oracle.generate(ids, attention_mask=attention_mask.long(), **theirs)
        found, begin = beam_search(model, beam, source=Source(ids, attention_mask)), 1
    lengths = []
    ends = beam.eos or (EOS,)
    for i, hypothesis in enumerate(h for hypotheses in found for h in hypotheses):
        tokens = out.sequences[i, begin:].tolist()
        end = next((n for n, token in enumerate(tokens) if token in ends), len(tokens) - 1)
        assert hypothesis.tokens == tokens[: end + 1]
        assert hypothesis.score == pytest.approx(float(out.sequences_scores[i]), rel=1e-4, abs=1e-5)
        lengths.append(len(hypothesis.tokens))
    assert len(lengths) == 9
    return lengths


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", CASES)
def test_the_same_hypotheses_as_transformers(name: str, seed: int, tmp_path: Path) -> None:
    compare(name, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_same_hypotheses_as_transformers_for_100_seeds(name: str, tmp_path: Path) -> None:
    lengths = [n for seed in range(100) for n in compare(name, seed, tmp_path / str(seed))]
    assert sum(n < LENGTH for n in lengths) > 90 and sum(n == LENGTH for n in lengths) > 90  # both ends were met
