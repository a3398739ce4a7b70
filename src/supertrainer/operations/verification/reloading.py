"""The saved model, read back, gives the logits that were trained; an adapter folded into its base gives its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from supertrainer.core.errors import SupertrainerError
from supertrainer.models.initial import start_of
from supertrainer.models.saving import TrainedModel, load_trained
from supertrainer.operations.verification.padding import distance, lengths_of, logits_of, padded_batch
from supertrainer.operations.verification.rows import Row, broken, not_applicable, same_bits, within
from supertrainer.operations.verification.workbench import differing, trained_weights
from supertrainer.trainers.base import TaskTrainer

ROWS = 4
MERGE_BOUND = 1e-5  # of the greatest logit
NOISE = 0.05  # added to an adapter that is merged: after three steps alone, none would be missed
RELOAD = "reload: logits of the saved model = trained"
WEIGHTS = "reload: trained weights in the saved model"
MERGE = "merge: logits of the merged model = adapter"


class _Batch:
    """Some training rows, the same for every model that is compared."""

    def __init__(self, trainer: TaskTrainer) -> None:
        self._batch = padded_batch(trainer, range(ROWS))
        self._lengths = lengths_of(trainer, range(ROWS))

    def logits(self, module: nn.Module) -> list[Tensor]:
        return logits_of(module, self._batch, self._lengths)


def check_reload(trainer: TaskTrainer) -> Iterator[Row]:
    """Compares the model that was saved with the one that is still in memory, and the merged one with its adapter.

    Args:
        trainer: has trained.
    """
    module = trainer.module
    assert module is not None, "it has trained"
    batch = _Batch(trainer)
    expected = batch.logits(module)
    try:
        saved = _load(trainer, module)
    except SupertrainerError as error:
        yield broken(RELOAD, error.problems[0].what)
        yield broken(MERGE, "the saved model can't be read")
        return
    why = _otherwise(trainer, saved, module)
    # An adapter that began inside of full-width weights is saved as a plain one on them: the same sum in another order.
    summed_anew = start_of(module) is not None and trainer.model.base_reference() is not None
    bound = MERGE_BOUND if summed_anew else 0.0
    yield broken(RELOAD, why) if why else within(RELOAD, distance(batch.logits(saved.model), expected), bound=bound)
    if summed_anew:
        yield not_applicable(WEIGHTS, "the adapter is saved as a plain LoRA of twice the rank on the source's weights")
    else:
        trained = trained_weights(module)
        held = {name: p.detach().cpu() for name, p in saved.model.named_parameters() if name in trained}
        yield same_bits(WEIGHTS, *differing(held, trained))
    yield from _check_merge(trainer, module, saved.model, batch)


def _check_merge(trainer: TaskTrainer, module: nn.Module, saved: nn.Module, batch: _Batch) -> Iterator[Row]:
    if trainer.config.peft_kwargs is None:
        yield not_applicable(MERGE, "every weight is trained, so there is no adapter to merge")
        return
    quantization = trainer.config.bitsandbytes_kwargs
    as_trained = batch.logits(saved)
    expected = batch.logits(_enlarged(saved))
    own = f"noise of {NOISE} was added to the adapter, which moves them by {distance(expected, as_trained):.1e}"
    if quantization is None:
        yield within(MERGE, distance(_merged(saved, batch), expected), bound=MERGE_BOUND, why=own)
        return
    wide = _enlarged(_load(trainer, module, frozen="dequantized").model)
    of_int8 = "int8 rounds what goes into a layer too, which no merged weight does"
    yield within(
        f"{MERGE}, on the dequantized base",
        distance(_merged(wide, batch), expected),
        bound=MERGE_BOUND,
        unpromised=of_int8 if quantization.get("load_in_8bit") else "",
        why=own,
    )
    yield within(
        f"{MERGE}, quantized again",
        distance(_merged(saved, batch), expected),
        bound=MERGE_BOUND,
        unpromised=f"the merged weights are rounded anew; {own}",
    )


def _load(trainer: TaskTrainer, module: nn.Module, **how: Any) -> TrainedModel:
    device = next(module.parameters()).device
    return load_trained(trainer.run.model, model_kwargs=trainer.config.model_kwargs, device=device, **how)


def _merged(adapted: Any, batch: _Batch) -> list[Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT says that rounding may show: it is what is measured
        return batch.logits(adapted.merge_and_unload())


def _enlarged(adapted: nn.Module) -> nn.Module:
    """The same model with noise in its adapter, in place; the same noise at every call."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if ".lora_" in name:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(noise.to(parameter), alpha=NOISE)
    return adapted


def _otherwise(trainer: TaskTrainer, saved: TrainedModel, module: nn.Module) -> str:
    """What beside the weights isn't as it was: the labels' names, what is made of a text, or of a picture."""
    before, after = module.config.id2label, saved.model.config.id2label
    if before != after:
        return f"the labels were {before}, and are {after}"
    rows = trainer.dataset.load()["train"]
    trained, read = (trainer.dataset.encode(rows, reader) for reader in (trainer.reader, saved.reader))
    if trained["input_ids"] != read["input_ids"]:
        return "the saved tokenizer makes other tokens of the training rows"
    batches = [_first_rows(trainer, reader) for reader in (trainer.reader, saved.reader)]
    other = [name for name, tensor in batches[0].items() if not torch.equal(tensor, batches[1][name])]
    return f"the saved processor makes other {', '.join(other)} of the training rows" if other else ""


def _first_rows(trainer: TaskTrainer, reader: Any) -> dict[str, Tensor]:
    """A batch of training rows as a model gets it, but for labels, which may be numbers that aren't."""
    rows = trainer.dataset.model_rows("train", reader)
    batch = rows.collate([rows[number] for number in range(ROWS)], pad_token_id=trainer.tokenizer.pad_token_id)
    return {name: tensor for name, tensor in batch.items() if name != "labels"}
