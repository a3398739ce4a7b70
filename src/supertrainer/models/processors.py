"""Processors of vision-language models: read, also where a part of theirs can't be, and saved whole."""

from __future__ import annotations

import copy
import functools
import importlib.util
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from transformers import (
    CONFIG_MAPPING,
    PROCESSOR_MAPPING,
    AutoConfig,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.utils import PushToHubMixin

from supertrainer.core.errors import ConfigError, MissingDependencyError
from supertrainer.core.files import read_json
from supertrainer.models.loading import quiet_transformers
from supertrainer.models.tokenizers import require_padding, reset_tokenizer, save_tokenizer

log = logging.getLogger(__name__)

_FILES = ("processor_config.json", "preprocessor_config.json")
_VIDEO_FILE = "video_preprocessor_config.json"
_VIDEO = "video_processor"
_IMAGE_AND_TEXT = frozenset({"image_processor", "tokenizer"})


class UnreadVideoSettings(PushToHubMixin):  # type: ignore[misc]
    """Stands for the video part of a processor, which needs torchvision: its settings, to be saved as they were."""

    _auto_class = None

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """
        Args:
            settings: as the source's files have them.
        """
        self._settings = settings

    def to_dict(self) -> dict[str, Any]:
        """The settings."""
        return copy.deepcopy(dict(self._settings))


def read_processor(
    directory: Path, *, trust_remote_code: bool = False, padding_side: Literal["left", "right"] | None = None
) -> ProcessorMixin:
    """The processor of a directory, with its tokenizer as `read_tokenizer` gives one.

    Raises:
        ConfigError: there is none, or what is there reads text alone.
        MissingDependencyError: it needs a package that isn't installed, for pictures too.
    """
    if not any((directory / name).is_file() for name in _FILES):
        raise ConfigError(
            f"{directory} has no processor.",
            why=f"none of {', '.join(_FILES)} is there, so nothing says how pictures are to be read.",
            fix="model.tokenizer=<a directory or Hub id that has one>, or a task without pictures.",
        )
    try:
        with quiet_transformers():
            processor = _read(directory, trust_remote_code=trust_remote_code)
    except ImportError as error:
        raise MissingDependencyError(
            f"the processor in {directory} needs a package that isn't installed.",
            why=" ".join(str(error).split())[:240],
            fix="pip install torchvision num2words pillow, torchvision in the build that belongs to your torch "
            "(https://pytorch.org/get-started/locally); a model of another family does without.",
        ) from error
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"no processor could be read from {directory}.",
            why=str(error).splitlines()[0],
            fix="model.tokenizer=<a directory or Hub id that has one>.",
        ) from error
    if not isinstance(processor, ProcessorMixin) or "image_processor" not in vars(processor):
        raise ConfigError(
            f"what {directory} holds reads no pictures: it is a {type(processor).__name__}.",
            fix="name a vision-language model, or model.tokenizer=<a directory that has its processor>.",
        )
    settle_tokenizer(processor, padding_side=padding_side)
    return processor


def settle_tokenizer(processor: ProcessorMixin, *, padding_side: Literal["left", "right"] | None) -> None:
    """Gives a processor's tokenizer a padding token and a side, and takes away what its last call left.

    Raises:
        ConfigError: it has neither padding nor an end of text to stand for it.
    """
    tokenizer = tokenizer_of(processor)
    reset_tokenizer(tokenizer)
    if padding_side is not None:
        tokenizer.padding_side = padding_side
    require_padding(tokenizer, what="the processor's tokenizer", borrows=True)


def tokenizer_of(reader: ProcessorMixin | PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer of a processor's texts; a tokenizer is its own."""
    tokenizer: PreTrainedTokenizerBase = vars(reader)["tokenizer"] if isinstance(reader, ProcessorMixin) else reader
    return tokenizer


def save_reader(reader: PreTrainedTokenizerBase | ProcessorMixin, directory: Path) -> None:
    """Writes a tokenizer, or a processor with its tokenizer, without what the last call left in it."""
    if not isinstance(reader, ProcessorMixin):
        save_tokenizer(reader, directory)
        return
    tokenizer = tokenizer_of(reader)
    if reader.chat_template is None and tokenizer.chat_template is not None:
        reader.chat_template = tokenizer.chat_template  # whatever reads the directory next looks here first
    reader.save_pretrained(directory)
    save_tokenizer(tokenizer, directory)


@functools.cache
def pictures_only(known: type[ProcessorMixin]) -> type[ProcessorMixin]:
    """A processor class that asks for no video part, and is the given one otherwise, by its name too."""
    attributes = [name for name in known.get_attributes() if name != _VIDEO]
    changed = {
        "get_attributes": classmethod(lambda cls: list(attributes)),
        "__reduce__": lambda self: (_restored, (known, dict(vars(self)))),  # workers are sent it by its parts
        "__doc__": known.__doc__,
    }
    return type(known.__name__, (known,), changed)


def _restored(known: type[ProcessorMixin], state: dict[str, Any]) -> ProcessorMixin:
    made: Any = pictures_only(known)  # type: ignore[arg-type]
    processor: ProcessorMixin = made.__new__(made)
    vars(processor).update(state)
    return processor


def _read(directory: Path, *, trust_remote_code: bool) -> Any:
    try:
        return AutoProcessor.from_pretrained(directory, trust_remote_code=trust_remote_code)
    except (ImportError, ValueError) as error:
        if "torchvision" not in str(error).lower():
            raise
        made = _without_torchvision(directory, trust_remote_code=trust_remote_code)
        if made is None:
            raise ImportError(str(error)) from error
        return made


def _without_torchvision(directory: Path, *, trust_remote_code: bool) -> ProcessorMixin | None:
    """A processor by its parts that do without it: pictures and text; None where it needs another one, too."""
    known = _class_in(directory, trust_remote_code=trust_remote_code)
    if known is None or set(known.get_attributes()) - {_VIDEO} != _IMAGE_AND_TEXT:
        return None
    values, _ = known.get_processor_dict(directory)
    image_processor = _image_processor(directory, values)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    has_video = _VIDEO in known.get_attributes()
    try:
        made = (pictures_only(known) if has_video else known).from_args_and_dict([image_processor, tokenizer], values)
    except TypeError:  # SmolVLM's asks for its video part, whatever is read
        return None
    processor: ProcessorMixin = made
    if has_video:
        vars(processor)[_VIDEO] = UnreadVideoSettings(_video_settings(directory, values, image_processor))
        log.info("the processor's video part needs torchvision, and is left alone: pictures are read without it")
    if processor.chat_template is None:
        processor.chat_template = tokenizer.chat_template
    return processor


def _class_in(directory: Path, *, trust_remote_code: bool) -> Any:
    """The class of a directory's processor: by its model, or, where no model is there, by its own name."""
    if (directory / "config.json").is_file():
        config = AutoConfig.from_pretrained(directory, trust_remote_code=trust_remote_code)
        return PROCESSOR_MAPPING.get(type(config), None)
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    named = {read_json(directory / name).get("processor_class") for name in _FILES if (directory / name).is_file()}
    model_type = next((key for key, name in PROCESSOR_MAPPING_NAMES.items() if name in named), None)
    return None if model_type is None else PROCESSOR_MAPPING.get(CONFIG_MAPPING[model_type], None)


def _video_settings(directory: Path, values: Mapping[str, Any], image_processor: Any) -> dict[str, Any]:
    """What the source's files say of the video part; of older models one file said it of both."""
    if _VIDEO in values:
        return dict(values[_VIDEO])
    if (directory / _VIDEO_FILE).is_file():
        found: dict[str, Any] = read_json(directory / _VIDEO_FILE)
        return found
    return {key: value for key, value in image_processor.to_dict().items() if not key.startswith("image_processor")}


def _image_processor(directory: Path, values: Mapping[str, Any]) -> Any:
    """What reads pictures. transformers 5.17 takes some of those that do without torchvision for ones that need it."""
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES, AutoImageProcessor

    try:
        return AutoImageProcessor.from_pretrained(directory)
    except (ImportError, ValueError):
        own = directory / "preprocessor_config.json"
        settings = dict(values.get("image_processor") or (read_json(own) if own.is_file() else {}))
        name = str(settings.get("image_processor_type")).removesuffix("Fast") + "Pil"
        for family, classes in IMAGE_PROCESSOR_MAPPING_NAMES.items():
            if classes.get("pil") == name:
                module = family.replace("-", "_")
                place = f"transformers.models.{module}.image_processing_pil_{module}"
                if importlib.util.find_spec(place) is not None:
                    return vars(importlib.import_module(place))[name].from_dict(settings)
        raise
