"""Answers to prompts, batch by batch: one token after the other, with the keys and values of the former ones kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from supertrainer.core.errors import ConfigError
from supertrainer.data.vision.encoder_decoder import answer_start
from supertrainer.inference.choosing import TokenChooser, choose_tokens, seed_of
from supertrainer.inference.encoder_decoder import decode_beside_encoder, is_encoder_decoder
from supertrainer.inference.ends import StopTexts, end_token_ids, unwrapped
from supertrainer.inference.first_pass import BatchOf, first_positions, left_padded, on_device, right_padded
from supertrainer.inference.schema import GenerationConfig
from supertrainer.models.architecture import max_positions

Finish = Literal["stop", "length"]

# What a model's forward calls the keys and values of earlier tokens, in what it takes and in what it gives.
_CACHE_NAMES = ("cache", "past_key_values")


@dataclass(frozen=True)
class Answer:
    """What was generated for a prompt.

    Attributes:
        text: without special tokens, and without the stop text and what follows it.
        tokens: all that were generated, the end token included.
        finish: stop: an end token or a stop text came; length: it was cut off.
        prompt_tokens: tokens of the prompt.
        ended: whether an end token of the model came.
    """

    text: str
    tokens: tuple[int, ...]
    finish: Finish
    prompt_tokens: int
    ended: bool


def position_limit(model: nn.Module) -> int | None:
    """The tokens of a prompt and its answer that the model takes; None where there is no limit."""
    base = unwrapped(model)
    if (text := base.config.get_text_config()) is not base.config:  # the other tower counts places of pictures
        return text.to_dict().get("max_position_embeddings")
    limit = max_positions(base)
    if limit is None:
        config = base.config.get_text_config()
        own_name = config.attribute_map.get("max_position_embeddings")
        limit = None if own_name is None else config.to_dict().get(own_name)
    return limit


def too_long(prompts: Sequence[Sequence[int]], *, limit: int | None) -> list[int]:
    """The numbers of prompts that leave no room for an answer."""
    return [] if limit is None else [number for number, prompt in enumerate(prompts) if len(prompt) >= limit]


def generate(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    *,
    config: GenerationConfig,
    batch_size: int,
    first_row: int = 0,
    batch_of: BatchOf | None = None,
) -> Iterator[tuple[int, tuple[Answer, ...]]]:
    """The answers to every prompt, the longest prompts first.

    A prompt's answers don't depend on the batch: rows are padded on the left behind a mask and counted from their own
    first token, and what is drawn depends on the seed and the row's number. In fp32 greedy tokens are those of the
    prompt alone. Nothing of the global random state is used.

    Args:
        model: put into eval mode, and back as it was at the end; its first parameter says the device.
        tokenizer: of the model.
        prompts: token ids.
        config: how tokens are chosen and where answers end.
        batch_size: answers that are generated at once.
        first_row: number of the first prompt, for the seeds.
        batch_of: where prompts have more than their tokens: what the model reads of a batch.

    Yields:
        The number of a prompt and its `config.num_samples` answers.

    Raises:
        ConfigError: a prompt is empty or leaves no room for an answer, or the model keeps no keys and values; nothing
            has been generated then.
    """
    limit = position_limit(model)
    require_room(model, prompts, limit=limit)
    ends, stops = end_token_ids(model, tokenizer), StopTexts(tokenizer, config.stop)
    units = [(number, sample) for number in _by_length(prompts) for sample in range(config.num_samples)]
    waiting: dict[int, list[Answer]] = {}
    with evaluating(model):
        padded = is_encoder_decoder(model) or "position_ids" in forward_arguments(model)
        for batch in _batches(units, prompts, batch_size=batch_size, padded=padded):
            rows = [prompts[number] for number, _ in batch]
            seeds = [seed_of(config.seed, row=first_row + number, sample=sample) for number, sample in batch]
            first = None if batch_of is None else batch_of([number for number, _ in batch])
            start = answer_start(tokenizer) if is_encoder_decoder(model) else None
            how: dict[str, Any] = {"ends": ends, "stops": stops, "limit": limit, "first": first, "start": start}
            answers = _answers(model, rows, config=config, seeds=seeds, **how)
            for (number, _), answer in zip(batch, answers, strict=True):
                waiting.setdefault(number, []).append(answer)
                if len(waiting[number]) == config.num_samples:
                    yield number, tuple(waiting.pop(number))


def decode(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    *,
    choose: Callable[[Tensor, Sequence[int]], list[int]],
    is_done: Callable[[int, int], bool],
    first: Mapping[str, Tensor] | None = None,
) -> Iterator[None]:
    """One step of decoding an item: rows that are done leave the batch once half of it is.

    Args:
        model: in eval mode.
        prompts: token ids of each row.
        choose: the next tokens, from logits (B, V) and the rows that they are of.
        is_done: takes the row and its new token; whether the row has come to its end.
        first: what the model reads of the prompts, padded on the left; None: their tokens alone.
    """
    inputs, device, cache_name = forward_arguments(model), next(model.parameters()).device, _cache_name(model)
    assert cache_name is not None, "asked before"
    seen = left_padded(prompts) if first is None else dict(first)
    tokens, mask = seen.pop("input_ids"), seen.pop("attention_mask")
    positions = first_positions(model, tokens, mask=mask, seen=seen)  # (B, T), or (axes, B, T)
    seen = {name: on_device(values, model) for name, values in seen.items()}
    extra: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in inputs else {}
    alive = list(range(len(prompts)))  # of the rows in the batch, which go on
    held = list(range(len(prompts)))  # the rows in the batch
    cache: Any = None
    while True:
        given = {"position_ids": positions.to(device)} if "position_ids" in inputs else {}
        # Entered anew for every step: a generator that is left inside would switch gradients off for its caller.
        with torch.no_grad():
            output = model(
                input_ids=tokens.to(device),
                attention_mask=mask.to(device),
                use_cache=True,
                **{cache_name: cache},
                **given,
                **extra,
                **seen,
            )
        seen = {}  # its states are kept
        cache = output[cache_name]
        chosen, alive = choose_tokens(output.logits[:, -1], held=held, alive=alive, choose=choose, is_done=is_done)
        yield
        if not alive:
            return
        last = positions[..., -1:] + 1
        if 2 * len(alive) <= len(held):
            kept = torch.tensor([held.index(row) for row in alive])
            cache.batch_select_indices(kept.to(device))
            mask, last, held = mask[kept], last[..., kept, :], list(alive)
        tokens = torch.tensor([[chosen.get(row, 0)] for row in held])
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        positions = last


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode for a while; afterwards every module is in the mode that it was in, also where they differed."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _answers(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    *,
    config: GenerationConfig,
    seeds: Sequence[int],
    ends: frozenset[int],
    stops: StopTexts,
    limit: int | None,
    first: Mapping[str, Tensor] | None,
    start: Sequence[int] | None,
) -> list[Answer]:
    """
    Args:
        start: what a decoder beside an encoder begins with; None: the model goes on behind the prompts.
    """
    new: list[list[int]] = [[] for _ in prompts]
    before = prompts if start is None else [start] * len(prompts)  # what stands before an answer in its own sequence
    room = [answer_room(prompt, config=config, limit=limit) for prompt in before]

    def is_done(row: int, token: int) -> bool:
        new[row].append(token)
        return token in ends or len(new[row]) >= room[row] or stops.in_tail(new[row])

    choose = TokenChooser(config, prompts=before, seeds=seeds)
    if start is None:
        steps = decode(model, prompts, choose=choose, is_done=is_done, first=first)
    else:
        cache_name, read = _cache_name(model), first or right_padded(prompts)
        assert cache_name is not None, "asked before"
        how: dict[str, Any] = {"choose": choose, "is_done": is_done, "first": read, "cache_name": cache_name}
        steps = decode_beside_encoder(model, len(prompts), start=start, **how)
    for _ in steps:
        pass
    return [
        finished_answer(tokens, prompt=prompt, ends=ends, stops=stops)
        for tokens, prompt in zip(new, prompts, strict=True)
    ]


def answer_room(prompt: Sequence[int], *, config: GenerationConfig, limit: int | None) -> int:
    """How many tokens an answer may have: as configured, and as positions are left."""
    return config.max_new_tokens if limit is None else min(config.max_new_tokens, limit - len(prompt))


def finished_answer(tokens: Sequence[int], *, prompt: Sequence[int], ends: frozenset[int], stops: StopTexts) -> Answer:
    """What became of a row."""
    ended = bool(tokens) and tokens[-1] in ends
    body = tokens[:-1] if ended else tokens
    finish: Finish = "stop" if ended or stops.in_tail(tokens) else "length"
    return Answer(stops.text_of(body), tuple(tokens), finish, len(prompt), ended)


def _by_length(prompts: Sequence[Sequence[int]]) -> list[int]:
    return sorted(range(len(prompts)), key=lambda number: -len(prompts[number]))


def _batches(
    units: Sequence[tuple[int, int]], prompts: Sequence[Sequence[int]], *, batch_size: int, padded: bool
) -> Iterator[list[tuple[int, int]]]:
    """Batches of prompts of like length; of equal length for models that can't be told a row's positions."""
    groups = [list(units)]
    if not padded:
        groups = [list(group) for _, group in groupby(units, key=lambda unit: len(prompts[unit[0]]))]
    for group in groups:
        for start in range(0, len(group), batch_size):
            yield group[start : start + batch_size]


def forward_arguments(model: nn.Module) -> frozenset[str]:
    """The arguments that the model's forward names."""
    return frozenset(inspect.signature(type(unwrapped(model)).forward).parameters)


def _cache_name(model: nn.Module) -> str | None:
    return next((name for name in _CACHE_NAMES if name in forward_arguments(model)), None)


def require_room(model: nn.Module, prompts: Sequence[Sequence[int]], *, limit: int | None) -> None:
    """Refuses what can't be answered.

    Raises:
        ConfigError: a prompt is empty or leaves no room for an answer, or the model keeps no keys and values.
    """
    if _cache_name(model) is None:
        raise ConfigError(
            f"{type(unwrapped(model)).__name__} can't generate here.",
            why="it keeps no keys and values of earlier tokens.",
            fix="take a decoder such as Llama, Qwen, Gemma, Mistral or GPT-2.",
        )
    long = too_long(prompts, limit=limit)
    if long:
        raise ConfigError(
            f"prompt {long[0]} has {len(prompts[long[0]]):,} tokens, and the model has {limit:,} positions.",
            why="no position is left for an answer.",
            fix="shorten it.",
        )
    empty = [number for number, prompt in enumerate(prompts) if not prompt]
    if empty:
        raise ConfigError(f"prompt {empty[0]} is empty.", fix="give it at least one token.")
