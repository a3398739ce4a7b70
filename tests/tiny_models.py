"""Models small enough to build in every test: two layers of width 32, a vocabulary of a hundred words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedTokenizerFast

WORDS = 94
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[EXTRA]")

# The sizes of a two-layer model under each architecture's own names.
SIZES: dict[str, dict[str, Any]] = {
    "bert": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
    "roberta": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "modernbert": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48},
}


def tiny_tokenizer(**options: Any) -> PreTrainedTokenizerFast:
    """A word-level tokenizer: `w0` … `w93` are one token each, texts are framed by [CLS] and [SEP]."""
    vocabulary = {word: index for index, word in enumerate((*SPECIAL, *(f"w{n}" for n in range(WORDS))))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    settings = {"model_max_length": 64, "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{**names, **settings, **options})


def tiny_config(model_type: str = "bert", **overrides: Any) -> Any:
    """The config of a two-layer model without dropout."""
    settings: dict[str, Any] = {"vocab_size": WORDS + len(SPECIAL), "max_position_embeddings": 64, "pad_token_id": 0}
    dropout = {"attention_dropout": 0.0} if model_type in ("distilbert", "modernbert") else {}
    if model_type == "distilbert":
        dropout |= {"dropout": 0.0, "seq_classif_dropout": 0.0}
    elif model_type != "modernbert":
        dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return AutoConfig.for_model(model_type, **{**settings, **SIZES[model_type], **dropout, **overrides})


def save_tiny(
    directory: Path, model_type: str = "bert", *, labels: tuple[str, ...] | None = None, seed: int = 0, **overrides: Any
) -> Path:
    """Writes an encoder without a head, or a classifier of these labels, with its tokenizer; returns the directory."""
    config = tiny_config(model_type, **overrides)
    torch.manual_seed(seed)
    if labels is None:
        model = AutoModel.from_config(config)
    else:
        config.num_labels = len(labels)
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: index for index, label in enumerate(labels)}
        model = AutoModelForSequenceClassification.from_config(config)
    model.save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return directory


def tiny_texts(count: int, *, seed: int = 0, shortest: int = 2, longest: int = 20) -> list[str]:
    """Texts of random words, of mixed length."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=generator).tolist()
    words = [torch.randint(0, WORDS, (length,), generator=generator).tolist() for length in lengths]
    return [" ".join(f"w{word}" for word in row) for row in words]
