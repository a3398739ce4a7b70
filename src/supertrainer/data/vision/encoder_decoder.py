"""Rows for models whose encoder reads pictures and question, and whose decoder writes the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from supertrainer.core.errors import ConfigError
from supertrainer.data.chat.conversation import Conversation
from supertrainer.data.chat.encoding import trained_answers
from supertrainer.data.collation import IGNORED, collate
from supertrainer.data.schema import TrainOn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def answer_start(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that a decoder is given before every answer: BART begins with the end of a text, and then its begin.

    Source: Lewis et al. 2020; `decoder_start_token_id` and `forced_bos_token_id` of its configs.
    """
    start: list[int] = tokenizer.convert_tokens_to_ids([str(tokenizer.eos_token), str(tokenizer.bos_token)])
    return start


def require_one_answer(conversations: Sequence[Conversation], *, train_on: TrainOn, places: Sequence[str]) -> None:
    """Refuses what a decoder can't learn: anything but the answer that a conversation ends with.

    Args:
        places: where each conversation stands.

    Raises:
        ConfigError: of some conversation more, or another answer, is to be learnt.
    """
    if train_on == "all":
        raise ConfigError(
            "dataset.train_on=all with a model whose encoder reads the question.",
            why="only what its decoder writes, an answer, can be learnt.",
            fix="dataset.train_on=assistant, or last for conversations of several turns.",
        )
    wrong = [
        number
        for number, conversation in enumerate(conversations)
        if (wanted := trained_answers(conversation, train_on)) and wanted != [len(conversation.messages) - 1]
    ]
    if wrong:
        raise ConfigError(
            f"dataset.train_on={train_on} wants {len(trained_answers(conversations[wrong[0]], train_on))} answers of "
            f"{places[wrong[0]]} to be learnt, and not the one that it ends with alone; {len(wrong):,} of "
            f"{len(conversations):,} rows are such.",
            why="the model's encoder reads a question and its decoder writes one answer.",
            fix="dataset.train_on=last, by which the encoder reads earlier turns; a row ends with its answer.",
        )


def divided_batch(
    features: Sequence[Mapping[str, Any]],
    *,
    tokenizer: PreTrainedTokenizerBase,
    pad_token_id: int,
    pad_to_multiple_of: int | None = None,
) -> dict[str, torch.Tensor]:
    """Pads rows on the right, divided where their answers begin.

    Args:
        features: `input_ids` and `labels` (T,); or prompts, `input_ids` alone, of which nothing is divided off.
        tokenizer: knows what a decoder begins with.
        pad_token_id: fills both kinds of ids.
        pad_to_multiple_of: rounds both widths up.

    Returns:
        `input_ids` and `attention_mask` (B, T), what the encoder reads. Of rows with labels `decoder_input_ids`,
        `decoder_attention_mask` and `labels` (B, D): labels aren't shifted, so that of the last token of a row nothing
        is predicted, and what the decoder begins with has none.
    """
    how: dict[str, Any] = {"pad_token_id": pad_token_id, "pad_to_multiple_of": pad_to_multiple_of}
    if "labels" not in features[0]:
        return collate([{"input_ids": feature["input_ids"]} for feature in features], **how)
    start = np.asarray(answer_start(tokenizer), dtype=np.int32)
    unlearnt = np.full_like(start, IGNORED)
    read, written = [], []
    for feature in features:
        ids, labels = feature["input_ids"], feature["labels"]
        learnt = np.flatnonzero(labels != IGNORED)
        place = int(learnt[0]) if len(learnt) else len(ids)
        read.append({"input_ids": ids[:place]})
        written.append(
            {
                "input_ids": np.concatenate([start, ids[place:]]),
                "labels": np.concatenate([unlearnt, labels[place:]]),
            }
        )
    decoder = collate(written, **how)
    return {
        **collate(read, **how),
        "decoder_input_ids": decoder["input_ids"],
        "decoder_attention_mask": decoder["attention_mask"],
        "labels": decoder["labels"],
    }
