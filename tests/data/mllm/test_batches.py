"""Batches of rows with one, several and no pictures: what a model is given, and that it says the same of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from supertrainer.core.errors import DataError
from supertrainer.data.batching import GHOST
from supertrainer.data.vision.rows import picture_batch
from tiny_mllm import CONFIGS, tiny_mllm
from tiny_vision import FAMILIES, picture, tiny_idefics3, tiny_llava, tiny_paligemma, tiny_qwen2_5_vl


def tiny_model(family: str) -> Any:
    """A model of two layers that the tiny processor of its family fits."""
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        LlavaConfig,
        LlavaForConditionalGeneration,
    )

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**sizes, "model_type": "llama", "num_key_value_heads": 2, "vocab_size": 300, "pad_token_id": 0}
    torch.manual_seed(0)
    if family == "idefics3":
        vision = {**sizes, "image_size": 16, "patch_size": 4}
        config = Idefics3Config(vision_config=vision, text_config=text, image_token_id=5, scale_factor=2)
        return Idefics3ForConditionalGeneration(config).eval()
    vision = {**sizes, "model_type": "clip_vision_model", "image_size": 16, "patch_size": 8, "projection_dim": 32}
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=5, vision_feature_layer=-1)
    return LlavaForConditionalGeneration(config).eval()


@pytest.mark.parametrize(("family", "make"), [("idefics3", tiny_idefics3), ("llava", tiny_llava)])
def test_a_mixed_batch_on_either_side_gives_the_logits_of_its_rows_one_by_one(
    family: str, make: Any, mixed: Any, dataset: Any
) -> None:
    model, rows = tiny_model(family), dataset(mixed).model_rows("train", make())
    features = [rows[number] for number in (2, 0, 3, 1)]  # none, one, one, two
    batches = {side: rows.collate(features, pad_token_id=0, padding_side=side) for side in ("left", "right")}
    with torch.no_grad():
        alone = [model(**_inputs(rows.collate([feature], pad_token_id=0))).logits[0] for feature in features]
        together = {side: model(**_inputs(batch)).logits for side, batch in batches.items()}
    for side, logits in together.items():
        for line, expected in enumerate(alone):
            real = batches[side]["attention_mask"][line].bool()
            torch.testing.assert_close(logits[line][real], expected, atol=2e-5, rtol=1e-4)


def _inputs(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What a model reads, with the positions of tokens that padding doesn't move."""
    positions = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return {name: values for name, values in batch.items() if name != "labels"} | {"position_ids": positions}


def test_a_batch_by_hand(dataset: Any) -> None:
    rows = [
        {"image": "small.png", "question": "a", "answer": "b"},
        {"question": "a", "answer": "bc"},
    ]
    made = dataset(rows).model_rows("train", tiny_paligemma())
    vocabulary = made._processor.tokenizer.get_vocab()
    a, b, c, line = (vocabulary[token] for token in ("a", "b", "c", "Ċ"))
    batch = made.collate([made[0], made[1]], pad_token_id=0)
    assert batch["input_ids"].tolist() == [[5, 5, 5, 5, 1, a, line, b, 2], [1, a, line, b, c, 2, 0, 0, 0]]
    assert batch["labels"].tolist() == [[-100] * 7 + [b, 2], [-100] * 3 + [b, c, 2] + [-100] * 3]
    assert batch["token_type_ids"].tolist() == [[0] * 7 + [1, 1], [0] * 3 + [1] * 3 + [0] * 3]
    assert batch["attention_mask"].tolist() == [[1] * 9, [1] * 6 + [0] * 3]
    assert batch["pixel_values"].shape == (1, 3, 16, 16)
    left = made.collate([made[0], made[1]], pad_token_id=0, padding_side="left")
    assert left["input_ids"][1].tolist() == [0, 0, 0, 1, a, line, b, c, 2]
    assert left["token_type_ids"][1].tolist() == [0] * 6 + [1] * 3


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_text_alone_have_of_pictures_what_a_model_asks_for(family: str, mixed: Any, dataset: Any) -> None:
    rows = dataset(mixed).model_rows("train", FAMILIES[family]())
    batch = rows.collate([rows[2]], pad_token_id=0)
    if family in ("instructblip", "blip2"):  # can't be called without
        assert batch.pop("pixel_values").shape == (1, 3, 16, 16)
        batch = {name: values for name, values in batch.items() if not name.startswith("qformer_")}
    of_tokens = {"input_ids", "attention_mask", "labels", "token_type_ids", "mm_token_type_ids"}
    of_tokens |= {"decoder_input_ids", "decoder_attention_mask"}
    assert set(batch) <= of_tokens
    types = rows._processor.types
    assert all(not batch[name].any() for name in types)
    full = rows.collate([rows[0]], pad_token_id=0)
    assert set(types) <= set(full)
    assert "pixel_values" in full


def test_a_model_that_asks_for_a_picture_reads_a_text_alone_as_its_text_model_does(mixed: Any, dataset: Any) -> None:
    rows = dataset(mixed).model_rows("train", FAMILIES["instructblip"]())
    known = CONFIGS["instructblip"]
    parts = {
        "vision_config": {**known["vision_config"], "image_size": 16},
        "qformer_config": {**known["qformer_config"], "vocab_size": 300},
        "text_config": {**known["text_config"], "vocab_size": 300},
    }
    model = tiny_mllm("instructblip", **parts, image_token_id=5).eval()
    batch = rows.collate([rows[2]], pad_token_id=0)
    del batch["labels"]
    with torch.no_grad():
        expected = model.language_model(batch["input_ids"]).logits
        torch.testing.assert_close(model(**batch).logits, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mixed_batch_has_the_tokens_that_its_processor_writes(family: str, mixed: Any, dataset: Any) -> None:
    data, processor = dataset(mixed), FAMILIES[family]()
    rows = data.model_rows("train", processor)
    batch = rows.collate([rows[number] for number in range(4)], pad_token_id=0)
    held = (batch["input_ids"] == data.processor(processor).picture_token).sum(1)
    alone = [rows.collate([rows[number]], pad_token_id=0)["input_ids"] for number in range(4)]
    assert held.tolist() == [int((ids == data.processor(processor).picture_token).sum()) for ids in alone]
    assert held[2] == 0
    assert all(held[[0, 1, 3]] > 0)


@pytest.mark.parametrize("make", [tiny_idefics3, tiny_qwen2_5_vl])
def test_pictures_of_a_batch_stand_in_the_order_of_its_rows(make: Any, mixed: Any, dataset: Any) -> None:
    rows = dataset(mixed).model_rows("train", make())
    together = rows.collate([rows[number] for number in range(4)], pad_token_id=0)
    alone = [rows.collate([rows[number]], pad_token_id=0) for number in (0, 1, 3)]
    if make is tiny_qwen2_5_vl:
        for name in ("pixel_values", "image_grid_thw"):
            assert (together[name] == torch.cat([batch[name] for batch in alone])).all()
        return
    for line, batch in enumerate(alone):
        tiles = batch["pixel_values"].shape[1]
        assert (together["pixel_values"][line, :tiles] == batch["pixel_values"][0]).all()
        assert not together["pixel_values"][line, tiles:].any()


def test_a_picture_that_changed_its_size_is_told_with_its_row(mixed: Any, dataset: Any, pictures: Path) -> None:
    rows = dataset(mixed).model_rows("train", tiny_qwen2_5_vl())
    picture(64, 64).save(pictures / "wide.png")
    with pytest.raises(
        DataError, match=r"train\.jsonl:2 has 24 tokens for its 2 pictures, and the processor writes 26"
    ):
        rows.collate([rows[0], rows[1]], pad_token_id=0)


def test_a_picture_that_broke_is_told_with_its_row(mixed: Any, dataset: Any, pictures: Path) -> None:
    rows = dataset(mixed).model_rows("train", tiny_llava())
    (pictures / "square.png").unlink()
    with pytest.raises(DataError, match=r"train\.jsonl:4: the picture .*square\.png is not there"):
        rows.collate([rows[3]], pad_token_id=0)


def test_a_ghost_row_has_no_labels(mixed: Any, dataset: Any) -> None:
    rows = dataset(mixed).model_rows("train", tiny_llava())
    assert (rows[GHOST]["labels"] == -100).all()
    assert rows.collate([rows[GHOST]], pad_token_id=0)["labels"].max() == -100


def test_prompts_are_batched_on_the_left(mixed: Any, dataset: Any) -> None:
    data, processor = dataset(mixed), tiny_llava()
    prompts = [data.prompt("train", number, processor) for number in (0, 2)]
    made = picture_batch(
        prompts, store=data.store, processor=data.processor(processor), pad_token_id=0, padding_side="left"
    )
    assert made["input_ids"][0].tolist() == prompts[0]["input_ids"].tolist()
    assert made["attention_mask"][1].sum() == len(prompts[1]["input_ids"])
    assert made["input_ids"][1, 0] == 0
    assert "labels" not in made


def test_workers_decode_the_same_batches(mixed: Any, dataset: Any) -> None:
    import functools

    from torch.utils.data import DataLoader

    rows = dataset(mixed).model_rows("train", tiny_llava())
    collate = functools.partial(rows.collate, pad_token_id=0)
    own = DataLoader(rows, batch_size=2, collate_fn=collate)
    theirs = DataLoader(rows, batch_size=2, collate_fn=collate, num_workers=1)
    for one, other in zip(own, theirs, strict=True):
        assert one.keys() == other.keys()
        assert all((one[name] == other[name]).all() for name in one)
