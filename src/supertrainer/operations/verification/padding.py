"""Padding doesn't show: rows in one padded batch give the loss and the logits that they give one by one."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from supertrainer.core.errors import ConfigError
from supertrainer.models.architecture import check_padding_side
from supertrainer.operations.verification.rows import Row, measured, not_applicable, within
from supertrainer.trainers.base import TaskTrainer

BOUND = 1e-5  # of the greatest logit, or of the loss
METRIC_BOUND = 1e-3  # of a score, or of 1: correlations of predictions that hardly differ magnify their rounding
BATCH_ROWS = 4
FURTHER = 8  # columns of padding beyond the longest row, so that rows of one length are padded too

_WRITTEN = "decoder_attention_mask"

Batch = dict[str, Tensor]


def check_padding(trainer: TaskTrainer, module: nn.Module, *, unpromised: str = "") -> Iterator[Row]:
    """Compares a padded batch with its rows alone: loss, logits, another padding token, padding on the left; and the
    metrics of whole batches with those of single rows.

    Args:
        module: a model whose logits depend on what it reads; training in large steps may leave one whose don't.
        unpromised: why nothing of it can be promised for this config.
    """
    numbers = _from_short_to_long(trainer)
    lengths = lengths_of(trainer, numbers)
    padded = padded_batch(trainer, numbers)
    width = padded["input_ids"].shape[1]
    if min(lengths) < width:
        alone = [padded_batch(trainer, [number], width=0) for number in numbers]
        yield _losses(trainer, module, padded, alone, unpromised=unpromised)
        lengths = [batch["input_ids"].shape[1] for batch in alone]  # an encoder's are without the answers
        expected = [logits_of(module, batch, [length])[0] for batch, length in zip(alone, lengths, strict=True)]
        for row in _logits(trainer, module, padded, lengths, expected):
            promised = row.verdict in ("not applicable", "measured") or not unpromised
            yield row if promised else measured(row, unpromised)
    else:
        yield not_applicable("padding", f"every row fills the {width} positions of the model")
    yield _metrics(trainer, module, unpromised=unpromised)


def _losses(trainer: TaskTrainer, module: nn.Module, padded: Batch, alone: Sequence[Batch], *, unpromised: str) -> Row:
    losses = [_loss(trainer, module, batch) for batch in alone]
    together, scale = _loss(trainer, module, padded), math.fsum(map(abs, losses))
    rows, width = padded["input_ids"].shape
    return within(
        f"padding: loss of {rows} rows, {width} wide = one by one",
        abs(together - math.fsum(losses)) / scale if scale else float("nan"),
        bound=BOUND,
        unpromised=unpromised,
    )


def _logits(
    trainer: TaskTrainer, module: nn.Module, padded: Batch, lengths: Sequence[int], expected: Sequence[Tensor]
) -> Iterator[Row]:
    tokenizer = trainer.tokenizer
    yield within("padding: logits of the same", distance(logits_of(module, padded, lengths), expected), bound=BOUND)
    other = 1 if tokenizer.pad_token_id == 0 else 0
    empty = torch.arange(padded["input_ids"].shape[1]) >= torch.tensor(lengths)[:, None]  # the mask itself may be wrong
    refilled = padded | {"input_ids": padded["input_ids"].masked_fill(empty, other)}
    yield within(
        f"padding: logits with {tokenizer.convert_ids_to_tokens(other)} as padding token",
        distance(logits_of(module, refilled, lengths), expected),
        bound=BOUND,
    )
    check = "padding: logits padded on the left"
    refused = _left_refused(module, tokenizer)
    if refused:
        yield not_applicable(check, refused)
        return
    yield within(
        check,
        distance(logits_of(module, _on_the_left(padded, lengths), lengths, left=True), expected),
        bound=BOUND,
        unpromised="" if tokenizer.padding_side == "left" else "this config pads on the right",
    )


def lengths_of(trainer: TaskTrainer, numbers: Sequence[int]) -> list[int]:
    """Tokens of each of these training rows."""
    rows: Any = trainer.rows("train")
    return [len(rows[number]["input_ids"]) for number in numbers]


def padded_batch(trainer: TaskTrainer, numbers: Sequence[int], *, width: int | None = None) -> Batch:
    """A batch of training rows, as the rows themselves make it: with their pictures, where they have some.

    Args:
        numbers: which of them.
        width: columns; None: some more than the longest row has, as far as the model has positions; 0: as many.
    """
    rows: Any = trainer.rows("train")
    longest = max(lengths_of(trainer, numbers))
    if width is None:
        width = min(longest + FURTHER, trainer.model.max_length() or longest + FURTHER)
    batch: Batch = rows.collate(
        [rows[number] for number in numbers],
        pad_token_id=trainer.tokenizer.pad_token_id,
        pad_to_multiple_of=max(width, longest) if width else None,
    )
    return batch


def forward(module: nn.Module, batch: Batch) -> tuple[Any, Batch]:
    """The model's outputs, without showing it the labels; and the batch on its device."""
    device = next(module.parameters()).device
    there = {name: tensor.to(device) for name, tensor in batch.items()}
    return module(**{name: tensor for name, tensor in there.items() if name != "labels"}), there


def logits_of(module: nn.Module, batch: Batch, lengths: Sequence[int], *, left: bool = False) -> list[Tensor]:
    """The logits of each row, (C,); of its own tokens alone, (T, C), where every token has some.

    Args:
        lengths: tokens of each row; of a decoder beside an encoder its mask has them.
        left: whether the padding stands before them.
    """
    if _WRITTEN in batch:
        lengths = batch[_WRITTEN].sum(dim=1).tolist()
    module.eval()
    with torch.no_grad():
        logits = forward(module, batch)[0].logits.float().cpu()
    if logits.ndim < 3:
        return list(logits)
    return [row[-length:] if left else row[:length] for row, length in zip(logits, lengths, strict=True)]


def distance(given: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The greatest difference, as a share of the greatest logit."""
    if any(one.shape != other.shape for one, other in zip(given, expected, strict=True)):
        return float("nan")
    furthest = max(float((one - other).abs().max()) for one, other in zip(given, expected, strict=True))
    return furthest / max(float(one.abs().max()) for one in expected)


def _from_short_to_long(trainer: TaskTrainer) -> list[int]:
    """Numbers of rows from the shortest to the longest."""
    rows = trainer.rows("train")
    assert rows is not None, "it was trained on them"
    order = sorted(range(len(rows)), key=lambda number: int(rows.lengths[number]))
    places = [round(index * (len(order) - 1) / (BATCH_ROWS - 1)) for index in range(BATCH_ROWS)]
    return [order[place] for place in places]


def _loss(trainer: TaskTrainer, module: nn.Module, batch: Batch) -> float:
    module.eval()
    with torch.no_grad():
        outputs, there = forward(module, batch)
        return float(trainer.objective().summed(outputs.logits, there["labels"]))


def _left_refused(module: nn.Module, tokenizer: Any) -> str:
    left = copy.copy(tokenizer)
    left.padding_side = "left"
    try:
        check_padding_side(module.config.get_text_config(), left)  # type: ignore[operator, union-attr]
    except ConfigError as error:
        return error.problems[0].why.rstrip(".")
    return ""


def _on_the_left(batch: Batch, lengths: Sequence[int]) -> Batch:
    """The batch with every row's padding before it."""
    shape = batch["input_ids"].shape
    return {
        name: torch.stack([row.roll(shape[1] - length) for row, length in zip(tensor, lengths, strict=True)])
        if tensor.shape == shape and not tensor.is_floating_point()  # else a label a row, or one a class
        else tensor
        for name, tensor in batch.items()
    }


def _metrics(trainer: TaskTrainer, module: nn.Module, *, unpromised: str) -> Row:
    rows = trainer.rows("validation") or trainer.rows("train")
    whole = trainer.evaluate(module, rows, batch_size=len(rows))
    split = [trainer.evaluate(module, rows, batch_size=size) for size in (max(len(rows) - 1, 1), 1)]
    furthest = max(_apart(scores[name], whole[name]) for scores in split for name in whole)
    check = f"evaluation: metrics of {len(rows)} rows at once = in batches"
    return within(check, furthest, bound=METRIC_BOUND, unpromised=unpromised)


def _apart(one: float, other: float) -> float:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    return abs(one - other) / max(abs(one), abs(other), 1.0)
