"""Weights into a model: which were there, which are new, and nothing silently random."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from supertrainer.core.errors import CheckpointError, ConfigError
from supertrainer.models.labels import align_head, label_dimensions, label_names_of, owners
from supertrainer.models.schema import ModelKwargs

log = logging.getLogger(__name__)

REMOTE_CODE = "transformers_modules."  # where transformers puts code that came with a model


@dataclass(frozen=True)
class Loaded:
    """A model with weights.

    Attributes:
        model: in eval mode, on the CPU.
        new_modules: the modules of the body that hold a newly initialised parameter, by full name.
        new_in_head: those outside of the body.
    """

    model: PreTrainedModel
    new_modules: tuple[str, ...] = ()
    new_in_head: tuple[str, ...] = ()


def resolve_dtype(model_kwargs: ModelKwargs, *, config: PreTrainedConfig, device: torch.device) -> torch.dtype:
    """The dtype that weights are held in; see `ModelKwargs.dtype`."""
    if model_kwargs.dtype != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[model_kwargs.dtype]
    held = config.dtype
    if device.type == "cpu" or held is None or held == torch.float16:
        if held not in (None, torch.float32):
            log.info("the checkpoint's %s weights are held as float32", str(held).removeprefix("torch."))
        return torch.float32
    return held


def loading_options(model_kwargs: ModelKwargs, *, config: Any, device: torch.device) -> dict[str, Any]:
    """The arguments of `from_pretrained` and `from_config` that `ModelKwargs` stands for."""
    attention = model_kwargs.attn_implementation
    return {
        "dtype": resolve_dtype(model_kwargs, config=config, device=device),
        **({} if attention == "auto" else {"attn_implementation": attention}),
    }


@contextlib.contextmanager
def reading_weights(directory: Path) -> Iterator[None]:
    """Turns what a damaged file makes the libraries raise into one error.

    Raises:
        CheckpointError: the weights are cut off, damaged, or don't fit their config.
    """
    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise CheckpointError(
            f"the weights in {directory} can't be read: {str(error).splitlines()[0]}.",
            why="a file is cut off or damaged, or doesn't fit the config.json beside it.",
            fix="copy the model again from where it came, or train it again.",
        ) from error


def load_pretrained(
    auto_class: Any,
    directory: Path,
    config: PreTrainedConfig,
    *,
    held_labels: Sequence[str],
    skeletons: tuple[PreTrainedModel, PreTrainedModel],
    options: dict[str, Any],
    seed: int,
) -> Loaded:
    """The model of a directory, its head aligned with the config's classes.

    Args:
        auto_class: such as `AutoModelForSequenceClassification`.
        directory: with safetensors weights.
        config: of the model that is wanted, its classes in the order of the data's ids.
        held_labels: the class names of the checkpoint's own config.
        skeletons: the wanted model, and the same with one class more, on the meta device.
        options: further arguments of `from_pretrained`: dtype, attn_implementation, trust_remote_code.
        seed: of what has to be newly initialised.

    Raises:
        ConfigError: the weights aren't those of this architecture.
        CheckpointError: they can't be read.
    """
    with quiet_transformers(), torch.random.fork_rng(devices=[]), reading_weights(directory):
        torch.manual_seed(seed)
        model, info = auto_class.from_pretrained(
            directory,
            config=config,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **options,
        )
    dimensions = label_dimensions(*skeletons)
    mismatched = {entry[0] if isinstance(entry, tuple) else entry for entry in info["mismatched_keys"]}
    missing = set(info["missing_keys"])
    _check_body(model, directory, missing=missing, mismatched=mismatched - dimensions.keys())
    if dimensions and not (missing & dimensions.keys()):
        _settle_head(
            model,
            auto_class,
            held=held_labels,
            dimensions=dimensions,
            resized=bool(mismatched),
            options=options,
            seed=seed,
        )
    new = sorted(missing | mismatched)
    if new:
        log.info("newly initialised: %s", ", ".join(new))
    prefix = f"{model.base_model_prefix}."
    of_body = [name for name in new if name.startswith(prefix)]
    return Loaded(model, tuple(owners(of_body)), tuple(owners(name for name in new if name not in of_body)))


def _settle_head(
    model: PreTrainedModel,
    auto_class: Any,
    *,
    held: Sequence[str],
    dimensions: dict[str, int],
    resized: bool,
    options: dict[str, Any],
    seed: int,
) -> None:
    wanted = label_names_of(model.config)
    if resized:
        log.warning(
            "the checkpoint's head knows %d classes; the data has %d: a new head is trained", len(held), len(wanted)
        )
        return
    fresh: dict[str, torch.Tensor] = {}
    if set(held) != set(wanted):
        fresh = dict(build_fresh(auto_class, model.config, options=options, seed=seed).named_parameters())
    align_head(model, held=held, wanted=wanted, dimensions=dimensions, fresh=fresh)


def build_fresh(auto_class: Any, config: PreTrainedConfig, *, options: dict[str, Any], seed: int) -> PreTrainedModel:
    """An untrained model whose weights are a function of the seed."""
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return auto_class.from_config(config, **options).eval()


def fit_vocabulary(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, new: Sequence[int] = ()
) -> tuple[str, ...]:
    """Adds embedding rows for tokens that the model doesn't know yet, each the mean of the others.

    Args:
        model: its output embedding gets such rows too, where it has one.
        tokenizer: with all tokens.
        new: ids of tokens that no training has seen, although the embedding may have spare rows for them.

    Returns:
        The full name of the embedding where rows were added, as a module that has to be trained; else nothing.
    """
    embedding = model.get_input_embeddings()
    held = embedding.num_embeddings
    fresh = sorted({*new, *range(held, len(tokenizer))})
    if not fresh:
        return ()
    known = min(held, fresh[0])
    means = [module.weight.detach()[:known].mean(dim=0) for module in _embeddings(model)]
    if len(tokenizer) > held:
        with quiet_transformers():
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        for module, mean in zip(_embeddings(model), means, strict=True):
            module.weight[fresh] = mean
    if len(tokenizer) <= held:
        return ()
    resized = model.get_input_embeddings()
    log.info(
        "the tokenizer knows %d tokens and the model %d: %d rows added", len(tokenizer), held, len(tokenizer) - held
    )
    return tuple(name for name, module in model.named_modules() if module is resized)


def _embeddings(model: PreTrainedModel) -> list[nn.Module]:
    """The input embedding, and the output one where it has weights of its own."""
    given, output = model.get_input_embeddings(), model.get_output_embeddings()
    return [given] if output is None or output.weight is given.weight else [given, output]


def merge_adapter(trained: nn.Module) -> tempfile.TemporaryDirectory[str]:
    """A temporary directory with the adapter folded into its base, for `load_pretrained`."""
    folder = tempfile.TemporaryDirectory(prefix="supertrainer-merged-")
    with quiet_transformers():
        write_weights(trained.merge_and_unload(), Path(folder.name))
    return folder


def write_weights(model: PreTrainedModel, directory: Path) -> None:
    """Writes config and weights into a directory, on every process: `save_pretrained` writes on the first one only."""
    from safetensors.torch import save_file

    settle_ties(model)
    model.config.save_pretrained(directory)
    carry_code(model, directory)
    # Copies, since a file can't hold a tensor that two names share.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def carry_code(model: PreTrainedModel, directory: Path) -> None:
    """Puts the code that came with a model beside its config, which names it."""
    from transformers.dynamic_module_utils import custom_object_save

    if type(model).__module__.startswith(REMOTE_CODE):
        custom_object_save(model, directory)
        if type(model.config).__module__.startswith(REMOTE_CODE):
            custom_object_save(model.config, directory)


def settle_ties(model: PreTrainedModel) -> None:
    """Makes the config say whether output and input embedding are one, where training may have parted them."""
    given, output = model.get_input_embeddings(), model.get_output_embeddings()
    if output is None or not model.config.to_dict().get("tie_word_embeddings"):
        return
    if torch.equal(output.weight, given.weight):
        model.tie_weights()
    else:
        model.config.tie_word_embeddings = False


def _check_body(model: PreTrainedModel, directory: Path, *, missing: set[str], mismatched: set[str]) -> None:
    """Refuses weights that belong to another architecture: training would start from noise without a word."""
    prefix = f"{model.base_model_prefix}."
    body = [name for name, _ in model.named_parameters() if name.startswith(prefix)]
    absent = [name for name in body if name in missing]
    if len(absent) * 2 > len(body):
        raise ConfigError(
            f"{directory} has no weights for {len(absent)} of the {len(body)} parameters of a "
            f"{model.config.model_type} model.",
            why=f"missing among others: {', '.join(absent[:3])}.",
            fix="name a directory whose weights match its config.json.",
        )
    if mismatched:
        raise ConfigError(
            f"{directory}: {len(mismatched)} weights aren't of the shape in the config, such as {min(mismatched)}.",
            why="weights of another shape can't be used, and random ones would take their place.",
            fix="leave sizes out of model.config_overrides, or build an untrained model with model.config.",
        )


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keeps the library's own load report and weight bars out of the log: what matters in them is said by us."""
    # Said of PEFT's code, not ours: it reads the name that transformers 5.24 has renamed (PEFT 0.21).
    converts = "Using Rank-Stabilized LoRA with rank_pattern"  # of a conversion by PEFT, which isn't the one used here
    renamed = "`is_gradient_checkpointing` is deprecated"
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=renamed, category=FutureWarning)
            warnings.filterwarnings("ignore", message=converts, category=UserWarning)
            yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
