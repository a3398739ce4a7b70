"""What of a vision-language model follows from its config alone, and the untrained ones that are shipped."""

from __future__ import annotations

import json
from typing import Any

import pytest
from omegaconf import OmegaConf

from supertrainer.config.groups import read_groups
from supertrainer.core.errors import ConfigError
from supertrainer.models.mllm import MllmModel
from supertrainer.models.mllm_schema import tower_problems
from supertrainer.models.schema import MllmModelConfig
from tiny_mllm import logits, mllm, picture


def test_towers_that_do_not_fit_the_method_are_told_before_anything_is_built() -> None:
    def said(*, adapter: bool = True, quantized: bool = False, **towers: str) -> list[str]:
        config = MllmModelConfig(_target_="x", source="a/b", towers=towers)  # type: ignore[arg-type]
        return [problem.what for problem in tower_problems(config, adapter=adapter, quantized=quantized)]

    assert said() == said(adapter=False) == said(quantized=True) == []
    assert said(vision="lora", adapter=False) == ["model.towers.vision=lora without trainer.peft_kwargs."]
    assert said(language="frozen", projector="full") == ["trainer.peft_kwargs with no tower that takes an adapter."]
    whole = said(language="full", vision="lora", quantized=True)
    assert whole == ["model.towers.language=full, and model.quantized_towers quantizes it."]


@pytest.mark.parametrize(("option", "pictures", "parameters"), [("small", 16, 558_528), ("scratch", 16, 288_320)])
def test_a_shipped_untrained_model_knows_its_words_and_its_picture(option: str, pictures: int, parameters: int) -> None:
    values = OmegaConf.to_container(OmegaConf.load(read_groups().files[f"model/mllm/{option}"]))
    model = MllmModel(MllmModelConfig.model_validate_json(json.dumps(values)))
    processor: Any = model.processor()
    question = "what color is the shape? yes" if option == "small" else "what color is the picture? yes"
    assert len(processor.tokenizer.tokenize(question)) == 7
    called = processor(text=["<image>"], images=[[picture(1, 40)]], return_tensors="pt")
    assert int((called["input_ids"] == processor.image_token_id).sum()) == pictures
    built: Any = model.build(seed=1).eval()
    assert sum(parameter.numel() for parameter in built.parameters()) == parameters
    assert logits(built, dict(called)).shape[-1] == len(processor.tokenizer)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "idefics4"}, "no processor of it is made here.*did you mean idefics3"),
        ({"vision_config": {"patch_size": 8}}, r"vision_config\.image_size is not given"),
        ({"text_config": {"hiden_size": 8}}, r"text_config\.hiden_size.*did you mean hidden_size"),
        ({"scale_facter": 2}, "'scale_facter'.*did you mean scale_factor"),
    ],
)
def test_a_config_of_its_own_is_checked_in_every_tower(change: dict[str, Any], words: str) -> None:
    config = {"model_type": "idefics3", "vision_config": {"image_size": 64, "patch_size": 8}, **change}
    with pytest.raises(ConfigError, match=f"(?is){words}"):
        mllm(None, config=config, words=("a",)).build(seed=1, device="meta")
