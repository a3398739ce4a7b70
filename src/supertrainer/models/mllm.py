"""Vision-language models: pictures and text in, text out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from supertrainer.config.strict import thaw
from supertrainer.config.tasks import Task
from supertrainer.core.errors import ConfigError
from supertrainer.models.architecture import OWN_KEY, build_skeleton, check_padding_side, require_unquantized
from supertrainer.models.base import TaskModel
from supertrainer.models.generation import begin_answers, make_writable
from supertrainer.models.heads import auto_class_of, task_note
from supertrainer.models.labels import module_name
from supertrainer.models.loading import Loaded
from supertrainer.models.made_processors import make_processor
from supertrainer.models.mllm_config import config_of_pictures, require_answer_start, require_forward, require_trainable
from supertrainer.models.mllm_schema import TOWERS, MllmModelConfig
from supertrainer.models.processors import read_processor, settle_tokenizer, tokenizer_of
from supertrainer.models.tokenizers import find_source_of_tokenizer
from supertrainer.models.tower_targets import lora_targets
from supertrainer.models.towers import Towers

log = logging.getLogger(__name__)


class MllmModel(TaskModel):
    """SmolVLM, Qwen-VL, LLaVA, PaliGemma, Gemma 3, …: any model of transformers that reads pictures and writes text.

    Which of its towers are trained, and how, is `model.towers`; what an adapter sits on is spelled out in full names,
    so that a name that two towers share hits only the chosen one.
    """

    config: MllmModelConfig

    @property
    def task(self) -> Task:
        return self.config.task

    @property
    def adapter_task(self) -> str | None:
        """`peft.TaskType`: it decides which class of PEFT's reads an adapter back."""
        return "SEQ_2_SEQ_LM" if self._own_config(None).is_encoder_decoder else super().adapter_task

    @property
    def auto_class(self) -> Any:
        """The transformers class that reads it: code that comes with a model may know itself by another one."""
        return auto_class_of(self.task, None if self.source is None else self._own_config(None))

    def processor(self) -> ProcessorMixin:
        """A fresh copy of what reads pictures and text; texts are padded at their end, as training does.

        Raises:
            ConfigError: there is none.
            MissingDependencyError: it needs a package that isn't installed.
        """
        processor = self._read_processor()
        tokenizer = tokenizer_of(processor)
        config = self._own_config(tokenizer)
        check_padding_side(config.get_text_config(), tokenizer)
        require_answer_start(config, tokenizer)
        tokenizer.model_max_length = self._positions(config) or tokenizer.model_max_length
        return processor

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The processor's tokenizer."""
        return tokenizer_of(self.processor())

    def reader(self) -> ProcessorMixin:
        """The processor."""
        return self.processor()

    def build(self, **how: Any) -> nn.Module:
        """See `TaskModel.build`. What is frozen has no gradients; of a tower in full training every weight has some."""
        module = super().build(**{"label_names": (), **how})
        if how.get("peft_kwargs") is None:
            self._freeze(module)
        module.config.update({OWN_KEY: task_note(self.task)})  # type: ignore[operator, union-attr]
        make_writable(module)
        begin_answers(module)
        return module

    def towers(self, model: PreTrainedModel) -> Towers:
        """The towers of a built model, without an adapter around it."""
        return Towers(model, patterns=thaw(self.config.tower_modules))

    def _read_processor(self) -> ProcessorMixin:
        side = self.config.padding_side or "right"
        if self.config.words is not None:
            processor = make_processor(self.config.config or {}, words=self.config.words)
            settle_tokenizer(processor, padding_side=side)
            return processor
        source = find_source_of_tokenizer(self.config.tokenizer, model=self.source)
        return read_processor(source.directory, trust_remote_code=self.config.trust_remote_code, padding_side=side)

    def _read_tokenizer(self) -> PreTrainedTokenizerBase:
        return tokenizer_of(self._read_processor())

    def _own_config(self, tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedConfig:
        if self.source is None:
            config = config_of_pictures(self.config.config or {}, processor=self._read_processor())
        else:
            config = super()._own_config(tokenizer)
            require_unquantized(config, source=self.config.source)
        require_trainable(config)
        return config

    def _positions(self, config: PreTrainedConfig) -> int | None:
        limit = config.get_text_config().to_dict().get("max_position_embeddings")
        return int(limit) if limit else None

    def _skeletons(self, config: PreTrainedConfig, *, attention: str) -> tuple[PreTrainedModel, PreTrainedModel]:
        """The model, twice the same one: nothing of it depends on classes."""
        trust = self.config.trust_remote_code
        skeleton = build_skeleton(self.auto_class, config, attention=attention, trust_remote_code=trust)
        require_forward(skeleton)
        return skeleton, skeleton

    def _freeze(self, module: Any) -> None:
        """Full fine-tuning: only the towers that are `full` are trained."""
        choices = self.config.choices(adapter=False)
        if wrong := [tower for tower in TOWERS if choices[tower] == "lora"]:
            raise ConfigError(
                f"model.towers.{wrong[0]}=lora without trainer.peft_kwargs.",
                why="there is no adapter that could sit on it.",
                fix=f"model.towers.{wrong[0]}=full, or trainer/common/peft_kwargs@trainer.peft_kwargs=lora.",
            )
        towers = self.towers(module)
        for name, parameter in module.named_parameters():
            tower = towers.of(name)
            assert tower is not None, "the towers were checked"
            parameter.requires_grad_(choices[tower] == "full")
        for tower, count in towers.counts().items():
            log.info("%s: %d parameters, %s", tower, count, choices[tower])

    def _trained_whole(self, loaded: Loaded, grown: Sequence[str]) -> list[str]:
        """The towers that are trained in full beside an adapter."""
        choices = self.config.choices(adapter=True)
        towers = self.towers(loaded.model)
        whole: list[str] = []
        for tower in (tower for tower in TOWERS if choices[tower] == "full"):
            modules, single = towers.modules(tower)
            whole += modules
            if single:
                log.warning("%s stays as it is: an adapter's files hold modules only", ", ".join(single))
        new = [*loaded.new_modules, *loaded.new_in_head, *grown]
        if lost := [name for name in new if not any(name == held or name.startswith(f"{held}.") for held in whole)]:
            raise ConfigError(
                f"model.source={self.config.source} has no weights for {', '.join(lost[:4])}.",
                why="a part that is new has to be trained whole.",
                fix="model.towers.<its tower>=full, or trainer/common/peft_kwargs@trainer.peft_kwargs=none.",
            )
        return whole

    def _further_adapter_options(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, peft_kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        choices = self.config.choices(adapter=True)
        adapted = [tower for tower in TOWERS if choices[tower] == "lora"]
        return {"target_modules": lora_targets(model, self.towers(model), adapted, peft_kwargs.get("target_modules"))}

    def _unquantized(self, model: PreTrainedModel, trained_whole: Sequence[str]) -> list[str]:
        """The towers that aren't named for it, what is trained whole, and the output layer."""
        towers = self.towers(model)
        kept = [
            name for tower in TOWERS if tower not in self.config.quantized_towers for name in towers.modules(tower)[0]
        ]
        output = model.get_output_embeddings()
        return [*kept, *trained_whole, *([] if output is None else [module_name(model, output)])]
