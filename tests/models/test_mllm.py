"""Vision-language models: each family through its processor, a directory and back; towers frozen, adapted, trained."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from supertrainer.core.errors import ConfigError, MissingDependencyError
from supertrainer.models.adapters import adapter_table
from supertrainer.models.output import tap_output
from supertrainer.models.processors import read_processor, save_reader
from supertrainer.models.saving import load_trained, save_trained
from supertrainer.models.schema import MllmModelConfig, ModelKwargs
from supertrainer.models.towers import Towers
from tiny_mllm import CONFIGS, FAMILIES, logits, mllm, save_mllm, shaken, tiny_batch, tiny_mllm, tiny_processor

LORA = {"r": 2, "target_modules": "auto", "lora_dropout": 0.0}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
TRAINED = {"vision": "lora", "projector": "full", "language": "lora"}
VIDEO = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")  # their processor has a video part


def reloaded(model: Any, trained: Any, directory: Path) -> Any:
    how = {"base": model.base_reference(), "unquantized": model.unquantized}
    save_trained(trained, model.processor(), directory, **how)
    return load_trained(directory)


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning")  # PaliGemma's processor
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_trained_saved_and_read_back_exactly(tmp_path: Path, family: str) -> None:
    """Through its own processor: forward and backward, the tap's logits, both kinds of directory, and generation."""
    towers = {**TRAINED, "projector": "frozen" if family == "chameleon" else "full"}
    model = mllm(save_mllm(tmp_path / "source", family), towers=towers)
    processor = model.processor()
    batch = tiny_batch(processor, family)
    adapted = model.build(seed=1, peft_kwargs=LORA)
    trained = shaken(adapted)

    tap = tap_output(trained)
    assert tap is not None
    with tap.open():
        given = {name: values for name, values in batch.items() if name != "labels"}
        trained(**given)
        hidden = tap.take()
    assert hidden is not None
    assert torch.equal(tap.logits(hidden.flatten(0, 1)).view(*hidden.shape[:2], -1), logits(trained, batch))

    trained(**given).logits.logsumexp(-1).sum().backward()
    without = [name for name, p in trained.named_parameters() if p.requires_grad and p.grad is None]
    assert not [name for name in without if not is_last_of_vision(name)]

    again = reloaded(model, trained, tmp_path / "adapter")
    held = dict(trained.named_parameters())
    assert all(torch.equal(parameter, held[name]) for name, parameter in again.model.named_parameters())
    # Of matrices as small as these, the address of equal weights decides on some CPUs how they are multiplied.
    bound = 2e-6
    torch.testing.assert_close(logits(again.model, batch), logits(trained, batch), rtol=0, atol=bound)
    assert (again.task, type(again.processor).__name__) == ("image_text_to_text", type(processor).__name__)
    assert again.tokenizer.padding_side == "left"

    merged = again.model.merge_and_unload()
    save_trained(merged, again.processor, tmp_path / "full")
    plain = AutoModelForImageTextToText.from_pretrained(tmp_path / "full").eval()
    weights = merged.state_dict()
    assert all(torch.equal(values, weights[name]) for name, values in plain.state_dict().items())
    torch.testing.assert_close(logits(plain, batch), logits(merged, batch), rtol=0, atol=bound)
    torch.testing.assert_close(logits(plain, batch), logits(trained, batch), rtol=0, atol=1e-4)
    assert type(read_processor(tmp_path / "full")) is type(processor)
    new = plain.generate(**given, max_new_tokens=2, do_sample=False)
    assert new.shape[0] == 2


def is_last_of_vision(name: str) -> bool:
    """What a vision tower computes after the states that are taken from it: the last layer of CLIP in LLaVA."""
    return any(part in name for part in ("layers.1.", "post_layernorm", "vqmodel"))


@pytest.mark.parametrize("family", FAMILIES)
def test_towers_hold_every_parameter_once_and_name_the_right_modules(family: str) -> None:
    expected = {
        "idefics3": ("vision_model", "connector", "text_model"),
        "chameleon": ("vqmodel", None, "layers"),
        "qwen2_5_vl": ("visual.blocks", "visual.merger", "language_model"),
        "qwen3_vl": ("visual.blocks", "visual.deepstack_merger_list", "language_model"),
        "instructblip": ("vision_model", "qformer", "language_model"),
    }.get(family, ("vision_tower", "multi_modal_projector", "language_model"))
    model = tiny_mllm(family)
    towers = Towers(model)
    assert sum(towers.counts().values()) == sum(parameter.numel() for parameter in model.parameters())
    for tower, part in zip(("vision", "projector", "language"), expected, strict=True):
        modules, _ = towers.modules(tower)  # type: ignore[arg-type]
        assert any(part in name for name in modules) if part else not modules
    assert towers.of("lm_head") == "language"


def test_short_names_hit_the_chosen_tower_only_and_the_table_counts_by_tower(tmp_path: Path) -> None:
    source = save_mllm(tmp_path, "llava")
    options = {**LORA, "target_modules": ["q_proj", "v_proj"]}
    rows = adapter_table(mllm(source).build(seed=1, peft_kwargs=options))
    assert [(row.tower, row.name, row.count) for row in rows] == [("language", "q_proj", 2), ("language", "v_proj", 2)]
    both = mllm(source, towers={"vision": "lora"}).build(seed=1, peft_kwargs=options)
    assert {(row.tower, row.count) for row in adapter_table(both)} == {("vision", 2), ("language", 2)}


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (["q_proj", "fc1"], "'fc1' matches nothing in language.*of the vision tower.*model.towers.vision=lora"),
        (["q_proj", "v_porj"], "'v_porj' matches nothing.*v_proj"),
    ],
)
def test_every_pattern_must_match_in_a_chosen_tower(tmp_path: Path, targets: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        mllm(save_mllm(tmp_path, "llava")).build(seed=1, peft_kwargs={**LORA, "target_modules": targets})


def test_what_is_frozen_has_no_gradient_and_the_rest_has(tmp_path: Path) -> None:
    source = save_mllm(tmp_path)
    choices = {"vision": "frozen", "projector": "full", "language": "full"}
    for model in (mllm(source), mllm(source, towers=choices)):
        built: Any = model.build(seed=1)
        towers = model.towers(built)
        by_tower = {
            (towers.of(name), parameter.requires_grad) for name, parameter in built.named_parameters()
        }  # the default of full fine-tuning, too
        assert by_tower == {("vision", False), ("projector", True), ("language", True)}


def test_an_untrained_model_is_trained_whole_and_knows_its_processor(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    vision = {**sizes, "image_size": 28, "patch_size": 7}
    config = {"model_type": "idefics3", "vision_config": vision, "text_config": {**sizes, "model_type": "llama"}}
    model = mllm(None, config=config, words=("what", "is", "red", "?"))
    built: Any = model.build(seed=1)
    assert all(parameter.requires_grad for parameter in built.parameters())
    processor = model.processor()
    assert built.config.text_config.vocab_size == len(processor.tokenizer)
    assert built.config.image_token_id == processor.image_token_id
    said = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what is red? Wörter"}]}]
    text = processor.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    assert text == "<|user|><image>what is red? Wörter<|end|><|assistant|>"
    tokens = processor.tokenizer.tokenize("what is red?")
    assert tokens == ["Ġwhat", "Ġis", "Ġred", "?"]
    ids = processor.tokenizer("Wörter what")["input_ids"]
    assert processor.tokenizer.decode(ids) == " Wörter what"  # any text is written, in bytes where no word is known
    again = reloaded(model, built, tmp_path)
    assert again.processor.tokenizer.get_vocab() == processor.tokenizer.get_vocab()
    assert again.processor.chat_template == processor.chat_template


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")  # the newer name isn't in 5.17
def test_checkpointing_gives_gradients_to_the_lower_layers_over_a_frozen_tower(tmp_path: Path) -> None:
    model = mllm(save_mllm(tmp_path))
    adapted: Any = model.build(seed=1, peft_kwargs=LORA).train()
    adapted.gradient_checkpointing_enable()
    batch = tiny_batch(model.processor())
    labels = batch.pop("labels")
    made = adapted(**batch).logits
    torch.nn.functional.cross_entropy(made[:, :-1].flatten(0, 1), labels[:, 1:].flatten()).backward()
    moved = {name: float(p.grad.abs().sum()) for name, p in adapted.named_parameters() if "lora_B" in name}
    assert len(moved) == 14
    assert min(moved.values()) > 0


@pytest.mark.parametrize(("towers", "count"), [(("language",), 14), (("language", "vision"), 26)])
def test_only_the_named_towers_are_quantized_and_it_is_read_back_exactly(
    tmp_path: Path, towers: tuple[str, ...], count: int
) -> None:
    model = mllm(save_mllm(tmp_path / "source"), quantized_towers=towers, towers={"projector": "full"})
    trained = shaken(model.build(seed=1, peft_kwargs=LORA, bitsandbytes_kwargs=NF4))
    quantized = [name for name, module in trained.named_modules() if type(module).__module__.startswith("bitsandbytes")]
    assert len(quantized) == count
    assert not any("connector" in name or "lm_head" in name for name in quantized)
    assert any("vision" in name for name in quantized) == ("vision" in towers)
    batch = tiny_batch(model.processor())
    again = reloaded(model, trained, tmp_path / "model")
    assert torch.equal(logits(again.model, batch), logits(trained, batch))


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")  # of PEFT's code
def test_plain_peft_reads_a_trained_projector_beside_an_adapter(tmp_path: Path) -> None:
    from peft import PeftModel

    model = mllm(save_mllm(tmp_path / "source", "llava"), towers={"projector": "full"})
    trained = shaken(model.build(seed=1, peft_kwargs=LORA))
    reloaded(model, trained, tmp_path / "model")
    base = AutoModelForImageTextToText.from_pretrained(tmp_path / "source")
    batch = tiny_batch(model.processor(), "llava")
    plain = PeftModel.from_pretrained(base, str(tmp_path / "model")).eval()
    assert torch.equal(logits(plain, batch), logits(trained, batch))


def test_training_goes_on_from_an_adapter(tmp_path: Path) -> None:
    model = mllm(save_mllm(tmp_path / "source"), towers={"projector": "full"})
    trained = shaken(model.build(seed=1, peft_kwargs=LORA))
    reloaded(model, trained, tmp_path / "runs" / "first" / "model")
    again = mllm(tmp_path / "runs" / "first").build(seed=2).eval()
    batch = tiny_batch(model.processor())
    torch.testing.assert_close(logits(again, batch), logits(trained, batch), rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", VIDEO)
def test_a_processor_keeps_the_settings_of_the_video_part_that_it_cannot_read(tmp_path: Path, family: str) -> None:
    source = save_mllm(tmp_path / "source", family)
    processor = read_processor(source)
    save_reader(pickle.loads(pickle.dumps(processor)), tmp_path / "again")
    held, kept = ((folder / "processor_config.json").read_text() for folder in (source, tmp_path / "again"))
    assert kept == held
    assert json.loads(kept)["video_processor"]["min_pixels"] == 7


@pytest.mark.parametrize("family", FAMILIES)
def test_a_processor_without_its_model_is_read_from_a_directory_of_its_own(tmp_path: Path, family: str) -> None:
    save_reader(tiny_processor(family), tmp_path)
    assert type(read_processor(tmp_path)).__name__ == type(tiny_processor(family)).__name__


def test_a_processor_that_needs_more_packages_says_which(tmp_path: Path) -> None:
    """SmolVLM's asks for its video part, and for num2words."""
    AutoConfig.for_model("smolvlm").save_pretrained(tmp_path)
    save_reader(tiny_processor("idefics3"), tmp_path)
    file = tmp_path / "processor_config.json"
    said = json.loads(file.read_text()) | {"processor_class": "SmolVLMProcessor"}
    said["image_processor"]["image_processor_type"] = "SmolVLMImageProcessor"
    file.write_text(json.dumps({**said, "video_processor": {"video_processor_type": "SmolVLMVideoProcessor"}}))
    with pytest.raises(MissingDependencyError, match=r"(?s)isn.t installed.*pip install torchvision num2words"):
        mllm(tmp_path).processor()


def test_attention_is_that_of_every_tower(tmp_path: Path) -> None:
    built: Any = mllm(save_mllm(tmp_path)).build(seed=1, model_kwargs=ModelKwargs(attn_implementation="eager"))
    configs = (built.config, built.config.vision_config, built.config.text_config)
    assert {config._attn_implementation for config in configs} == {"eager"}
    with pytest.raises(MissingDependencyError, match=r"(?s)flash-attn.*sdpa"):
        mllm(tmp_path).build(seed=1, model_kwargs=ModelKwargs(attn_implementation="flash_attention_2"))


def test_an_unknown_architecture_is_told_by_its_modules_and_named_by_patterns() -> None:
    model = tiny_mllm("llava")
    model.model.strange = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=r"(?s)model\.strange\.weight and 1 further.*vision_tower.*tower_modules"):
        Towers(model)
    assert Towers(model, patterns={"vision": [r"model\.strange"]}).of("model.strange.bias") == "vision"
    with pytest.raises(ConfigError, match="strangr' matches no parameter"):
        Towers(model, patterns={"vision": [r"model\.strange", r"model\.strangr"]})


@pytest.mark.parametrize(
    ("family", "keys", "words"),
    [
        ("instructblip", {"text_config": {"model_type": "t5"}}, "instructblip model over t5.*only Florence-2.*Vicuna"),
        ("mllama", {}, "mllama model looks at pictures by cross-attention.*between those of the text"),
    ],
)
def test_what_is_not_one_sequence_is_refused(tmp_path: Path, family: str, keys: dict[str, Any], words: str) -> None:
    AutoConfig.for_model(family, **keys).save_pretrained(tmp_path)
    save_reader(tiny_processor("llava"), tmp_path)
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        mllm(tmp_path).build(seed=1)


def test_a_decoder_begins_with_the_tokens_that_its_answers_are_written_behind(tmp_path: Path) -> None:
    text = {**CONFIGS["florence2"]["text_config"], "decoder_start_token_id": 2}
    source = save_mllm(tmp_path / "source", "florence2", text_config=text)
    with pytest.raises(ConfigError, match=r"(?s)begins with token 2.*ends a text with 3.*model\.tokenizer"):
        mllm(source).processor()
    right = mllm(save_mllm(tmp_path / "right", "florence2")).build(seed=1)
    noted = right.generation_config
    assert (noted.decoder_start_token_id, noted.forced_bos_token_id) == (3, 2)  # type: ignore[union-attr]


def test_a_text_model_has_no_processor(tmp_path: Path) -> None:
    from tiny_decoders import save_decoder

    with pytest.raises(ConfigError, match=r"has no processor"):
        mllm(save_decoder(tmp_path)).processor()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"source": "a/b", "words": ("x",)}, "a source brings its own"),
        ({"source": "a/b", "tower_modules": {"visoin": ["x"]}}, "tower_modules names 'visoin'"),
        (
            {"source": "a/b", "towers": {"vision": "frozen", "projector": "frozen", "language": "frozen"}},
            "nothing would be trained",
        ),
        ({"config": {"model_type": "llava"}}, "brings no tokenizer"),
    ],
)
def test_what_contradicts_itself_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MllmModelConfig(_target_="x", **keys)
