"""What the models of all tasks share: source, tokenizer, weights, adapter, limits."""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from supertrainer.config.tasks import Task
from supertrainer.core.errors import ConfigError, raise_all
from supertrainer.models.adapters import add_adapter, without_start
from supertrainer.models.architecture import (
    build_skeleton,
    check_padding_side,
    config_from_scratch,
    max_positions,
    override_config,
    read_config,
    require_positions,
    skeletons,
    with_labels,
)
from supertrainer.models.heads import ADAPTER_TASKS, AUTO_CLASSES
from supertrainer.models.initial import Start, put_start
from supertrainer.models.labels import head_modules, label_dimensions, label_names_of, require_labels
from supertrainer.models.loading import (
    Loaded,
    build_fresh,
    fit_vocabulary,
    load_pretrained,
    loading_options,
    merge_adapter,
)
from supertrainer.models.methods import INIT, begins_in_base, method_problems
from supertrainer.models.quantization import parameter_count, quantize
from supertrainer.models.saving import load_trained
from supertrainer.models.schema import ModelConfig, ModelKwargs
from supertrainer.models.sources import Source, find_source, require_safetensors
from supertrainer.models.tokenizers import find_source_of_tokenizer, read_tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ParameterCounts:
    """Numbers of parameters: all, and those that are trained."""

    total: int
    trainable: int


class TaskModel(ABC):
    """A model as the config describes it. Nothing is read before it is asked for."""

    def __init__(self, config: ModelConfig) -> None:
        """
        Args:
            config: source or architecture, tokenizer, padding side.
        """
        self.config = config
        if config.trust_remote_code:
            log.warning("model.trust_remote_code=true: Python code that comes with the model is run")
        self.unquantized: Path | None = None  # of an adapter, a copy of the weights that are quantized in no source
        self._quantizes_a_rest = False  # whether what is quantized is what an adapter left of the source's weights

    @property
    @abstractmethod
    def task(self) -> Task:
        """What the head is for."""

    @property
    def adapter_task(self) -> str | None:
        """`peft.TaskType` of the head; None where PEFT has none."""
        return ADAPTER_TASKS[self.task]

    @property
    def auto_class(self) -> Any:
        """The transformers class that reads the task's models."""
        return AUTO_CLASSES[self.task]

    @functools.cached_property
    def source(self) -> Source | None:
        """Where the weights are; None for an untrained model.

        Raises:
            ConfigError: the source isn't there, or isn't a model.
        """
        if self.config.source is None:
            return None
        return find_source(self.config.source, revision=self.config.revision, with_code=self.config.trust_remote_code)

    def base_reference(self) -> dict[str, str | None] | None:
        """What a reader of an adapter needs to find the frozen weights; None where no source holds them as they are."""
        if self.source is None or self.source.is_adapter or self._quantizes_a_rest:
            return None
        return {"source": self.source.reference, "revision": self.config.revision, "commit": self.source.commit}

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """A fresh copy of the tokenizer: padding side as configured, limit of the model, no truncation of its own.

        Raises:
            ConfigError: there is none, it has no padding token, or it pads on a side that the model can't take.
        """
        tokenizer = self._read_tokenizer()
        config = self._own_config(tokenizer)
        check_padding_side(config, tokenizer)
        tokenizer.model_max_length = self._positions(config) or tokenizer.model_max_length
        return tokenizer

    def reader(self) -> PreTrainedTokenizerBase | ProcessorMixin:
        """A fresh copy of what its inputs go through: the tokenizer, or what reads pictures beside text."""
        return self.tokenizer()

    def _read_tokenizer(self) -> PreTrainedTokenizerBase:
        return read_tokenizer(
            find_source_of_tokenizer(self.config.tokenizer, model=self.source).directory,
            padding_side=self.config.padding_side,
            trust_remote_code=self.config.trust_remote_code,
        )

    def architecture(
        self, label_names: Sequence[str], *, tokenizer: PreTrainedTokenizerBase | None = None
    ) -> PreTrainedConfig:
        """The architecture's config with these classes.

        Raises:
            ConfigError: unknown keys, each with the nearest name, values of a wrong type, or other classes than these.
        """
        require_labels(self.config, label_names)
        return with_labels(self._own_config(tokenizer), label_names, task=self.task)

    def label_parameters(self, label_names: Sequence[str]) -> frozenset[str]:
        """Names of the parameters that have a row for every class."""
        config = self.architecture(label_names, tokenizer=self.tokenizer())
        return frozenset(label_dimensions(*self._skeletons(config, attention="auto")))

    def max_length(self) -> int | None:
        """The longest input that the model takes, in tokens with the special ones; None where there is no limit."""
        return self._positions(self._own_config(None))

    def check_length(self, max_length: int) -> None:
        """Refuses inputs that are longer than the model's positions, with a `ConfigError`."""
        require_positions(self.max_length(), max_length)

    def build(
        self,
        *,
        label_names: Sequence[str],
        seed: int,
        model_kwargs: ModelKwargs | None = None,
        peft_kwargs: Mapping[str, Any] | None = None,
        bitsandbytes_kwargs: Mapping[str, Any] | None = None,
        device: torch.device | str = "cpu",
    ) -> nn.Module:
        """The model, ready to train.

        Args:
            label_names: class names in the order of their ids.
            seed: of everything newly initialised; the same seed gives the same weights whatever ran before.
            model_kwargs: dtype and attention.
            peft_kwargs: keys of `peft.LoraConfig`; None trains every parameter.
            bitsandbytes_kwargs: keys of `BitsAndBytesConfig`: how the frozen weights are quantized; None: they aren't.
            device: "meta" builds it without weights, to look at.

        Returns:
            A `PreTrainedModel`, or a `PeftModel` around one.

        Raises:
            ConfigError: anything that the source, the classes or the adapter can't be.
            MissingDependencyError: the attention needs a package that isn't installed.
        """
        device, model_kwargs = torch.device(device), model_kwargs or ModelKwargs()
        tokenizer = self.tokenizer()
        config = self.architecture(label_names, tokenizer=tokenizer)
        built = self._skeletons(config, attention=model_kwargs.attn_implementation)
        loaded = Loaded(built[0])
        if device.type != "meta":
            loaded = self._weights(config, built, model_kwargs=model_kwargs, device=device, seed=seed)
        grown = fit_vocabulary(loaded.model, tokenizer, new=self._unseen_tokens(tokenizer))
        model = loaded.model
        if peft_kwargs is None:
            return model.to(device)
        trained_whole = self._trained_whole(loaded, grown)
        peft_kwargs = {**peft_kwargs, **self._further_adapter_options(model, tokenizer, peft_kwargs)}
        raise_all(ConfigError, method_problems(peft_kwargs, bitsandbytes_kwargs=bitsandbytes_kwargs))
        how: Any = {"trained_whole": trained_whole, "task_type": self.adapter_task, "seed": seed + 1}
        if bitsandbytes_kwargs is None or device.type == "meta":
            return add_adapter(model, peft_kwargs, base=self._base_for_peft(), **how).to(device)
        start: Start | None = None
        if begins_in_base(peft_kwargs):
            self._quantizes_a_rest = True
            model, start = without_start(model, peft_kwargs, **how)
            peft_kwargs = {**peft_kwargs, INIT: True}
        model = self._quantized(
            model,
            bitsandbytes_kwargs=bitsandbytes_kwargs,
            unquantized=self._unquantized(model, trained_whole),
            device=device,
            options=self._loading_options(model_kwargs, config=config, device=device),
        )
        adapted = add_adapter(model, peft_kwargs, base=self._base_for_peft(), **how).to(device)
        if start is not None:
            put_start(adapted, start)
        return adapted

    def _base_for_peft(self) -> tuple[str, str | None] | None:
        """Where plain PEFT finds an adapter's frozen weights, and their commit; None: nowhere but beside it."""
        reference = self.base_reference()
        return None if reference is None or self.source is None else (self.source.name_for_peft, reference["commit"])

    def _quantized(self, model: PreTrainedModel, **how: Any) -> PreTrainedModel:
        """The model with quantized weights. Where no source has them, a copy lives as long as this object."""
        folder = Path(tempfile.mkdtemp(prefix="supertrainer-unquantized-"))
        model = quantize(model, self.auto_class, directory=folder, **how)
        if self.base_reference() is None:
            self.unquantized = folder
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        else:
            shutil.rmtree(folder)
        return model

    def _trained_whole(self, loaded: Loaded, grown: Sequence[str]) -> list[str]:
        """What is trained beside an adapter: the head, and what is new; `grown` is the embedding that has new rows."""
        return list(dict.fromkeys([*head_modules(loaded.model), *loaded.new_modules, *grown]))

    def _unseen_tokens(self, tokenizer: PreTrainedTokenizerBase) -> Sequence[int]:
        """Ids of the tokens that are new to the model, although it may have rows for them."""
        return ()

    def _further_adapter_options(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, peft_kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Keys of `peft.LoraConfig` that follow from the model, in the place of those that were given."""
        return {}

    def _unquantized(self, model: PreTrainedModel, trained_whole: Sequence[str]) -> list[str]:
        """Modules whose weights are never quantized: what is trained whole, and the head."""
        return [*trained_whole, *head_modules(model)]

    def _weights(
        self,
        config: PreTrainedConfig,
        built: tuple[PreTrainedModel, PreTrainedModel],
        *,
        model_kwargs: ModelKwargs,
        device: torch.device,
        seed: int,
    ) -> Loaded:
        options = self._loading_options(model_kwargs, config=config, device=device)
        if self.source is None:
            return Loaded(build_fresh(self.auto_class, config, options=options, seed=seed))
        with contextlib.ExitStack() as stack:
            directory = self.source.directory
            if self.source.is_adapter:
                trained = load_trained(self.source, model_kwargs=model_kwargs, device=device, frozen="dequantized")
                directory = Path(stack.enter_context(merge_adapter(trained.model)))
                log.info(
                    "the adapter in %s is folded into its base, and training goes on from there", self.source.directory
                )
            else:
                require_safetensors(self.source)
            return load_pretrained(
                self.auto_class,
                directory,
                config,
                held_labels=label_names_of(self._own_config(None)),
                skeletons=built,
                options=options,
                seed=seed,
            )

    def _loading_options(self, model_kwargs: ModelKwargs, **what: Any) -> dict[str, Any]:
        return {**loading_options(model_kwargs, **what), "trust_remote_code": self.config.trust_remote_code}

    def _positions(self, config: PreTrainedConfig) -> int | None:
        trust = self.config.trust_remote_code
        return max_positions(build_skeleton(self.auto_class, config, attention="auto", trust_remote_code=trust))

    def _own_config(self, tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedConfig:
        if self.source is None:
            return config_from_scratch(self.config.config or {}, tokenizer=tokenizer or self.tokenizer())
        config = read_config(self.source.directory, trust_remote_code=self.config.trust_remote_code)
        return override_config(config, self.config.config_overrides) if self.config.config_overrides else config

    def _skeletons(self, config: PreTrainedConfig, *, attention: str) -> tuple[PreTrainedModel, PreTrainedModel]:
        trust = self.config.trust_remote_code
        return skeletons(self.auto_class, config, task=self.task, attention=attention, trust_remote_code=trust)


def count_parameters(model: nn.Module) -> ParameterCounts:
    """How many parameters a model has, and how many are trained."""
    sizes = [(parameter_count(parameter), parameter.requires_grad) for parameter in model.parameters()]
    return ParameterCounts(sum(size for size, _ in sizes), sum(size for size, trained in sizes if trained))
