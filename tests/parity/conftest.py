"""Tiny random models of `transformers`, one per architecture, saved to folders: the oracle of the parity tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.decoder_cases import DECODERS
from tests.parity.encoder_cases import ENCODER_DECODERS, ENCODERS, SOUND_ENCODERS

VOCAB, PAD = 50, 1
BERT: dict[str, Any] = dict(
    vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=64, pad_token_id=PAD,
)  # fmt: skip
LLAMA: dict[str, Any] = dict(BERT, num_key_value_heads=2)
GPT2: dict[str, Any] = dict(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64, pad_token_id=PAD)
DISTIL: dict[str, Any] = dict(
    vocab_size=VOCAB,
    dim=32,
    n_layers=2,
    n_heads=4,
    hidden_dim=64,
    max_position_embeddings=64,
    pad_token_id=PAD,
)
T5: dict[str, Any] = dict(
    vocab_size=VOCAB, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=4, pad_token_id=PAD,
    decoder_start_token_id=PAD, eos_token_id=2, relative_attention_max_distance=32, initializer_factor=0.3,
)  # fmt: skip
SEQ2SEQ: dict[str, Any] = dict(
    vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=48, max_position_embeddings=64, pad_token_id=PAD,
    decoder_start_token_id=PAD, eos_token_id=2, bos_token_id=0, forced_eos_token_id=None,
)  # fmt: skip
WHISPER: dict[str, Any] = dict(
    {k: v for k, v in SEQ2SEQ.items() if k != "max_position_embeddings"},
    num_mel_bins=8, max_source_positions=20, max_target_positions=40, suppress_tokens=None,
    begin_suppress_tokens=None,
)  # fmt: skip
MOONSHINE: dict[str, Any] = dict(
    vocab_size=VOCAB, hidden_size=48, intermediate_size=64, encoder_num_hidden_layers=2, decoder_num_hidden_layers=2,
    encoder_num_attention_heads=4, decoder_num_attention_heads=4, partial_rotary_factor=0.7, pad_token_id=PAD,
)  # fmt: skip
VISION: dict[str, Any] = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    image_size=32,
    patch_size=8,
)
DINO: dict[str, Any] = {k: v for k, v in VISION.items() if k != "intermediate_size"}
LABELS: dict[str, Any] = dict(num_labels=3)
LLAMA3 = dict(
    rope_type="llama3", rope_theta=500_000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=16,
)  # fmt: skip

LINEAR = dict(rope_type="linear", rope_theta=5_000.0, factor=4.0, partial_rotary_factor=0.5)

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertModel", "BertConfig", BERT),
    "bert-mlm": ("BertForMaskedLM", "BertConfig", BERT),
    "bert-pretraining": ("BertForPreTraining", "BertConfig", BERT),
    "bert-nsp": ("BertForNextSentencePrediction", "BertConfig", BERT),
    "bert-classify": ("BertForSequenceClassification", "BertConfig", dict(BERT, **LABELS)),
    "bert-tag": ("BertForTokenClassification", "BertConfig", dict(BERT, **LABELS)),
    "bert-span": ("BertForQuestionAnswering", "BertConfig", BERT),
    "roberta": ("RobertaModel", "RobertaConfig", BERT),
    "roberta-mlm": ("RobertaForMaskedLM", "RobertaConfig", BERT),
    "roberta-classify": ("RobertaForSequenceClassification", "RobertaConfig", dict(BERT, **LABELS)),
    "roberta-tag": ("RobertaForTokenClassification", "RobertaConfig", dict(BERT, **LABELS)),
    "roberta-span": ("RobertaForQuestionAnswering", "RobertaConfig", BERT),
    "distilbert": ("DistilBertModel", "DistilBertConfig", DISTIL),
    "distilbert-mlm": ("DistilBertForMaskedLM", "DistilBertConfig", DISTIL),
    "distilbert-classify": ("DistilBertForSequenceClassification", "DistilBertConfig", dict(DISTIL, **LABELS)),
    "distilbert-tag": ("DistilBertForTokenClassification", "DistilBertConfig", dict(DISTIL, **LABELS)),
    "distilbert-span": ("DistilBertForQuestionAnswering", "DistilBertConfig", DISTIL),
    "bigbird": ("BigBirdModel", "BigBirdConfig", dict(BERT, block_size=4, num_random_blocks=1)),
    "bigbird-full": ("BigBirdModel", "BigBirdConfig", dict(BERT, attention_type="original_full")),
    "bigbird-mlm": ("BigBirdForMaskedLM", "BigBirdConfig", dict(BERT, block_size=4, num_random_blocks=2)),
    "bigbird-pretraining": ("BigBirdForPreTraining", "BigBirdConfig", dict(BERT, block_size=4, num_random_blocks=1)),
    "bigbird-classify": ("BigBirdForSequenceClassification", "BigBirdConfig", dict(BERT, block_size=4, **LABELS)),
    "bigbird-tag": ("BigBirdForTokenClassification", "BigBirdConfig", dict(BERT, block_size=4, **LABELS)),
    "bigbird-span": ("BigBirdForQuestionAnswering", "BigBirdConfig", dict(BERT, block_size=4, sep_token_id=3)),
    "gpt2": ("GPT2Model", "GPT2Config", GPT2),
    "gpt2-lm": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "gpt2-classify": ("GPT2ForSequenceClassification", "GPT2Config", dict(GPT2, **LABELS)),
    "gpt2-tag": ("GPT2ForTokenClassification", "GPT2Config", dict(GPT2, **LABELS)),
    "gpt2-span": ("GPT2ForQuestionAnswering", "GPT2Config", GPT2),
    "llama": ("LlamaModel", "LlamaConfig", LLAMA),
    "llama-lm": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
    "llama-multi-query": ("LlamaForCausalLM", "LlamaConfig", dict(LLAMA, num_key_value_heads=1, head_dim=12)),
    "llama-biased": ("LlamaForCausalLM", "LlamaConfig", dict(LLAMA, attention_bias=True, mlp_bias=True)),
    "llama-tied": ("LlamaForCausalLM", "LlamaConfig", dict(LLAMA, tie_word_embeddings=True)),
    "llama3": ("LlamaForCausalLM", "LlamaConfig", dict(LLAMA, rope_parameters=LLAMA3)),
    "llama-linear": (
        "LlamaForCausalLM",
        "LlamaConfig",
        dict(LLAMA, rope_parameters=dict(rope_type="linear", rope_theta=10_000.0, factor=4.0)),
    ),
    "llama-classify": ("LlamaForSequenceClassification", "LlamaConfig", dict(LLAMA, **LABELS)),
    "llama-tag": ("LlamaForTokenClassification", "LlamaConfig", dict(LLAMA, **LABELS)),
    "llama-span": ("LlamaForQuestionAnswering", "LlamaConfig", LLAMA),
    "mistral": ("MistralModel", "MistralConfig", dict(LLAMA, sliding_window=4)),
    "mistral-lm": ("MistralForCausalLM", "MistralConfig", dict(LLAMA, sliding_window=5)),
    "mistral-whole": ("MistralForCausalLM", "MistralConfig", dict(LLAMA, sliding_window=None)),
    "mistral-classify": (
        "MistralForSequenceClassification", "MistralConfig", dict(LLAMA, sliding_window=4, **LABELS)
    ),
    "mistral-tag": ("MistralForTokenClassification", "MistralConfig", dict(LLAMA, sliding_window=4, **LABELS)),
    "gemma": ("GemmaModel", "GemmaConfig", dict(LLAMA, head_dim=16)),
    "gemma-lm": ("GemmaForCausalLM", "GemmaConfig", dict(LLAMA, head_dim=16)),
    "gemma-classify": ("GemmaForSequenceClassification", "GemmaConfig", dict(LLAMA, head_dim=16, **LABELS)),
    "gemma-tag": ("GemmaForTokenClassification", "GemmaConfig", dict(LLAMA, head_dim=16, **LABELS)),
    **DECODERS,
    "t5": ("T5Model", "T5Config", T5),
    "t5-lm": ("T5ForConditionalGeneration", "T5Config", T5),
    "t5-1.1": (
        "T5ForConditionalGeneration",
        "T5Config",
        dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False, num_decoder_layers=1),
    ),
    "t5-encoder": ("T5EncoderModel", "T5Config", T5),
    "t5-classify": ("T5ForSequenceClassification", "T5Config", dict(T5, **LABELS)),
    "t5-tag": ("T5ForTokenClassification", "T5Config", dict(T5, **LABELS)),
    "t5-span": ("T5ForQuestionAnswering", "T5Config", T5),
    "bart": ("BartModel", "BartConfig", SEQ2SEQ),
    "bart-lm": ("BartForConditionalGeneration", "BartConfig", SEQ2SEQ),
    "bart-classify": ("BartForSequenceClassification", "BartConfig", dict(SEQ2SEQ, **LABELS)),
    "bart-span": ("BartForQuestionAnswering", "BartConfig", SEQ2SEQ),
    "marian": ("MarianModel", "MarianConfig", dict(SEQ2SEQ, activation_function="swish", scale_embedding=True)),
    "marian-lm": ("MarianMTModel", "MarianConfig", dict(SEQ2SEQ, activation_function="swish", scale_embedding=True)),
    "marian-separate": (
        "MarianMTModel",
        "MarianConfig",
        dict(SEQ2SEQ, share_encoder_decoder_embeddings=False, decoder_vocab_size=VOCAB + 20, tie_word_embeddings=False),
    ),
    "whisper": ("WhisperModel", "WhisperConfig", WHISPER),
    "whisper-lm": ("WhisperForConditionalGeneration", "WhisperConfig", WHISPER),
    "moonshine": ("MoonshineModel", "MoonshineConfig", MOONSHINE),
    "moonshine-lm": ("MoonshineForConditionalGeneration", "MoonshineConfig", MOONSHINE),
    "moonshine-wide": (
        "MoonshineForConditionalGeneration",
        "MoonshineConfig",
        dict(
            MOONSHINE, attention_bias=True, pad_head_dim_to_multiple_of=8, rope_parameters=LINEAR,
            encoder_hidden_act="gelu_new", decoder_hidden_act="gelu",
        ),
    ),
    **ENCODERS,
    **ENCODER_DECODERS,
    **SOUND_ENCODERS,
    "vit": ("ViTModel", "ViTConfig", VISION),
    "vit-classify": ("ViTForImageClassification", "ViTConfig", dict(VISION, qkv_bias=False, **LABELS)),
    "deit": ("DeiTModel", "DeiTConfig", VISION),
    "deit-classify": ("DeiTForImageClassification", "DeiTConfig", dict(VISION, **LABELS)),
    "deit-teacher": ("DeiTForImageClassificationWithTeacher", "DeiTConfig", dict(VISION, **LABELS)),
    "dinov2": ("Dinov2Model", "Dinov2Config", DINO),
    "dinov2-swiglu": ("Dinov2Model", "Dinov2Config", dict(DINO, use_swiglu_ffn=True)),
    "dinov2-classify": ("Dinov2ForImageClassification", "Dinov2Config", dict(DINO, **LABELS)),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An oracle and the folder it was saved to."""

    name: str
    oracle: Any
    folder: Path

    @property
    def config(self) -> Any:
        return self.oracle.config


def _perturb(model: torch.nn.Module) -> None:
    """Fresh weights are so small that a wrong field would hardly show."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            size = 0.05 if "norm" in name.lower() or "ln_" in name else 0.12
            parameter.data += size * torch.randn(parameter.shape, generator=generator)
    for name, buffer in model.named_buffers():
        if name.endswith("final_logits_bias"):
            buffer += torch.randn(buffer.shape, generator=generator)


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    made: dict[str, Case] = {}

    def make(name: str) -> Case:
        import transformers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        if name not in made:
            model_class, config_class, settings = CASES[name]
            torch.manual_seed(0)
            oracle = getattr(transformers, model_class)(getattr(transformers, config_class)(**settings)).eval()
            _perturb(oracle)
            folder = tmp_path_factory.mktemp(name)
            oracle.save_pretrained(folder)
            made[name] = Case(name, oracle, folder)
        return made[name]

    return make


@dataclass(frozen=True)
class Batch:
    """Inputs for both sides; masks are None where a model takes none."""

    inputs: torch.Tensor
    attention_mask: torch.Tensor | None = None
    targets: torch.Tensor | None = None
    target_attention_mask: torch.Tensor | None = None


@pytest.fixture
def batch() -> Callable[..., Batch]:
    """A batch that fits an oracle: `pad` is "none", "right" or "left"."""

    def make(config: Any, architecture: str, pad: str = "none") -> Batch:
        generator = torch.Generator().manual_seed(7)
        kind = config.model_type
        if kind in ("vit", "deit", "dinov2"):
            return Batch(torch.randn(2, 3, 32, 32, generator=generator))
        if kind in ("wav2vec2", "hubert"):
            return Batch(torch.randn(3, 900, generator=generator))
        length = 38 if kind == "big_bird" and pad == "none" else 40
        tokens = torch.randint(4, VOCAB, (3, length), generator=generator)
        tokens[:, -1] = 2
        attention_mask = None
        if pad != "none":
            attention_mask = torch.ones(3, length, dtype=torch.bool)
            for row, drop in ((1, 2), (2, 3)):  # within BigBird's last block: see docs/log.md
                side = slice(length - drop, None) if pad == "right" else slice(0, drop)
                attention_mask[row, side] = False
            if pad == "right":
                tokens[1, -3], tokens[2, -4] = 2, 2
            tokens[~attention_mask] = PAD
        if not config.is_encoder_decoder or "Encoder" in architecture or "Token" in architecture:
            return Batch(tokens, attention_mask)
        targets = torch.randint(4, VOCAB, (3, 35), generator=generator)
        if "Sequence" in architecture or "Question" in architecture:  # these read their own input again
            first = torch.full((3, 1), 2 if kind == "mbart" else config.decoder_start_token_id)  # mBART: the last token
            targets = torch.cat([first, tokens[:, :-1]], 1)
            return Batch(tokens, attention_mask, targets, attention_mask)
        if kind == "whisper":
            return Batch(torch.randn(3, 8, 40, generator=generator), None, targets)
        if kind == "moonshine":
            return Batch(torch.randn(3, 9000, generator=generator), None, targets)
        target_attention_mask = None
        if pad == "right":
            target_attention_mask = torch.ones(3, 35, dtype=torch.bool)
            target_attention_mask[0, 30:] = False
        return Batch(tokens, attention_mask, targets, target_attention_mask)

    return make
