"""Generated answers: a batch is its rows one by one, an answer ends where it should, and draws are each row's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GenerationConfig as Reference
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from supertrainer.core.errors import ConfigError
from supertrainer.inference.choosing import TokenChooser, draw, left_over
from supertrainer.inference.ends import StopTexts, end_of_turn, end_token_ids
from supertrainer.inference.generation import Answer, generate, position_limit
from supertrainer.inference.schema import GenerationConfig
from tiny_chats import ARCHITECTURES, POSITIONS, tiny_chat_model, tiny_chat_tokenizer, tiny_prompts

TOKENIZER = tiny_chat_tokenizer()


def answers(model: Any, prompts: list[list[int]], *, batch_size: int = 8, **keys: Any) -> list[tuple[Answer, ...]]:
    config = GenerationConfig(**{"max_new_tokens": 12, **keys})
    found = dict(generate(model, TOKENIZER, prompts, config=config, batch_size=batch_size))
    return [found[number] for number in range(len(prompts))]


def tokens(model: Any, prompts: list[list[int]], **keys: Any) -> list[list[tuple[int, ...]]]:
    return [[answer.tokens for answer in row] for row in answers(model, prompts, **keys)]


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_a_batch_gives_the_greedy_tokens_of_its_rows_one_by_one_and_of_the_library(model_type: str) -> None:
    model, prompts = tiny_chat_model(model_type), tiny_prompts(9)
    together = tokens(model, prompts)
    assert together == tokens(model, prompts, batch_size=1)
    assert len({row[0] for row in together}) == 9, "rows that don't differ show nothing"
    for prompt, [row] in zip(prompts, together, strict=True):
        plain = Reference(max_new_tokens=12, do_sample=False, eos_token_id=[3, 7], pad_token_id=0)
        reference = model.generate(torch.tensor([prompt]), generation_config=plain)
        assert reference[0, len(prompt) :].tolist() == list(row)


@pytest.mark.parametrize("model_type", ["llama", "gemma2"])
def test_rows_that_end_early_leave_the_batch_and_the_others_go_on_as_alone(model_type: str) -> None:
    model, prompts = tiny_chat_model(model_type), tiny_prompts(9)
    free = tokens(model, prompts, max_new_tokens=30)
    model.generation_config.eos_token_id = sorted({row[min(at, len(row) - 1)] for at, [row] in enumerate(free)})
    together = tokens(model, prompts, max_new_tokens=30)
    assert together == tokens(model, prompts, max_new_tokens=30, batch_size=1)
    lengths = {len(row) for [row] in together}
    assert len(lengths) > 3, "rows that end together show nothing"


def test_drawn_tokens_depend_on_the_row_and_the_seed_and_not_on_the_batch() -> None:
    model, prompts = tiny_chat_model(), tiny_prompts(7)
    how: dict[str, Any] = {"temperature": 1.5, "top_p": 0.95, "num_samples": 3}
    together = tokens(model, prompts, **how)
    assert together == tokens(model, prompts, batch_size=2, **how)
    assert len({row for rows in together for row in rows}) == 21
    assert together != tokens(model, prompts, seed=1, **how)


def test_the_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    tokens(tiny_chat_model(), tiny_prompts(2), temperature=1.0)
    torch.manual_seed(0)
    tiny = tiny_chat_model()
    before = torch.get_rng_state()
    tokens(tiny, tiny_prompts(2), temperature=1.0)
    assert torch.equal(before, torch.get_rng_state())


def test_every_module_is_afterwards_in_the_mode_it_was_in() -> None:
    model = tiny_chat_model().train()
    model.lm_head.eval()
    tokens(model, tiny_prompts(2))
    assert model.training
    assert model.model.layers[0].training
    assert not model.lm_head.training


def test_what_is_left_to_draw_from_is_what_the_library_leaves() -> None:
    logits = torch.randn(5, 200, generator=torch.Generator().manual_seed(0)) * 3
    config = GenerationConfig(temperature=0.7, top_k=50, top_p=0.9, min_p=0.02)
    chain = [TemperatureLogitsWarper(0.7), TopKLogitsWarper(50), TopPLogitsWarper(0.9), MinPLogitsWarper(0.02)]
    reference = LogitsProcessorList(chain)(torch.zeros(5, 1, dtype=torch.long), logits.double()).softmax(dim=-1)
    probabilities, order = left_over(logits, config)
    ours = torch.zeros(5, 200, dtype=torch.float64).scatter(
        1, order, probabilities / probabilities.sum(1, keepdim=True)
    )
    assert 1 < int((ours > 0).sum()) < 250
    torch.testing.assert_close(ours, reference, rtol=0, atol=1e-12)


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    logits = torch.tensor([0.5, 0.25, 0.15, 0.1]).log()
    draws = torch.arange(1000, dtype=torch.float64) / 1000
    drawn = draw(logits.expand(1000, 4), GenerationConfig(temperature=1.0), draws=draws)
    assert torch.bincount(drawn, minlength=4).tolist() == pytest.approx([500, 250, 150, 100], abs=1)


def test_a_repetition_penalty_is_the_librarys_and_counts_no_padding() -> None:
    prompts = [[9, 11, 9], [10]]
    logits = torch.randn(2, 30, generator=torch.Generator().manual_seed(1))
    chooser = TokenChooser(GenerationConfig(repetition_penalty=1.8), prompts=prompts, seeds=[0, 0])
    for row, prompt in enumerate(prompts):
        reference = RepetitionPenaltyLogitsProcessor(1.8)(torch.tensor([prompt]), logits[row : row + 1].clone())
        torch.testing.assert_close(chooser._penalised(logits, [0, 1])[row], reference[0])


def test_an_answer_ends_at_each_of_several_end_tokens() -> None:
    model, prompts = tiny_chat_model(), tiny_prompts(1)
    [[free]] = tokens(model, prompts)
    for place in (2, 5):
        model.generation_config.eos_token_id = [3, free[place]]
        [[answer]] = answers(model, prompts)
        at = free.index(free[place])
        assert (answer.tokens, answer.finish, answer.ended) == (free[: at + 1], "stop", True)
        assert TOKENIZER.decode([free[place]]) not in answer.text.split()[at:]


def test_the_end_of_a_turn_is_read_from_the_chat_template() -> None:
    assert end_of_turn(TOKENIZER) == TOKENIZER.convert_tokens_to_ids("<|end|>")
    assert end_token_ids(tiny_chat_model(), TOKENIZER) == {3, 7}
    assert end_of_turn(tiny_chat_tokenizer(chat_template=None)) is None
    assert end_of_turn(tiny_chat_tokenizer(chat_template="{{ raise_exception('no') }}")) is None


def test_an_answer_that_is_cut_off_says_so() -> None:
    [[answer]] = answers(tiny_chat_model(), tiny_prompts(1), max_new_tokens=4)
    assert (answer.finish, len(answer.tokens), answer.ended) == ("length", 4, False)


def test_a_stop_text_ends_an_answer_and_is_cut_off() -> None:
    model, prompts = tiny_chat_model(), tiny_prompts(3)
    free = answers(model, prompts)
    words = free[1][0].text.split()
    stop = f"{words[3]} {words[4]}"
    stopped = answers(model, prompts, stop=(stop,))
    assert stopped[1][0].text == free[1][0].text.partition(stop)[0]
    assert (stopped[1][0].finish, stopped[1][0].ended, len(stopped[1][0].tokens)) == ("stop", False, 5)
    assert stopped[0] == free[0], "no other row is touched"


def test_a_stop_text_may_be_a_special_token() -> None:
    stops = StopTexts(TOKENIZER, [" <|user|>"])
    ids = TOKENIZER("w1 w2 <|user|>", add_special_tokens=False)["input_ids"]
    assert stops.in_tail(ids)
    assert not stops.in_tail(ids[:2])
    assert stops.text_of(ids) == "w1 w2"


def test_a_prompt_without_room_is_refused_before_any_work() -> None:
    model = tiny_chat_model()
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model was run"))
    with pytest.raises(ConfigError, match=rf"prompt 1 has {POSITIONS} tokens, and the model has {POSITIONS} positions"):
        tokens(model, [[2, 9], [9] * POSITIONS])


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_an_answer_ends_with_the_positions(model_type: str) -> None:
    model = tiny_chat_model(model_type)
    assert position_limit(model) == POSITIONS
    [[answer]] = answers(model, [[9] * (POSITIONS - 3)])
    assert (len(answer.tokens), answer.finish) == (3, "length")
