"""From what a config names to a local directory with weights: packages, paths, run directories, the Hub."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supertrainer.config.nearest import did_you_mean
from supertrainer.core.errors import ConfigError
from supertrainer.core.sources import local_path

log = logging.getLogger(__name__)

CONFIG_FILE = "config.json"
ADAPTER_CONFIG_FILE = "adapter_config.json"
MODEL_FOLDER = "model"  # of a run directory
GGUF_ENDING = ".gguf"

# Code comes along only for those who asked for it; weights only as safetensors, since other files can run code.
_HUB_PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.tiktoken")
_HUB_IGNORED = ("onnx/*", "openvino/*", "coreml/*", "checkpoint-*/*", "runs/*")


@dataclass(frozen=True)
class Source:
    """A directory that holds a model.

    Attributes:
        reference: as the config wrote it.
        directory: where its files are.
        commit: of a Hub id, the commit that was taken.
    """

    reference: str
    directory: Path
    commit: str | None = None

    @property
    def is_adapter(self) -> bool:
        """Whether the directory holds an adapter, whose base lies elsewhere."""
        return (self.directory / ADAPTER_CONFIG_FILE).is_file()

    @property
    def name_for_peft(self) -> str:
        """What PEFT finds it by: the Hub id that a commit belongs to, else the directory."""
        return str(self.reference if self.commit else self.directory)


def find_source(
    reference: str, *, revision: str | None = None, with_code: bool = False, gguf_file: str | None = None
) -> Source:
    """The directory that a reference names; a Hub id is taken from the cache or downloaded.

    Args:
        reference: as a config writes it.
        revision: of a Hub id.
        with_code: whether Python files come along.
        gguf_file: the file in the directory or of the Hub id that holds the model; what it was converted to is found.

    Raises:
        ConfigError: there is no such source, it can't be reached, or it isn't a model.
    """
    path = local_path(reference)
    if path is None:
        return _from_hub(reference, revision=revision, with_code=with_code, gguf_file=gguf_file)
    if revision is not None:
        raise ConfigError(
            f"model.revision={revision!r} with model.source={reference}, which is a local path.",
            why="revisions are branches, tags and commits of a Hub id.",
            fix="model.revision=null.",
        )
    file = path if gguf_file is None else path / gguf_file
    if gguf_file is not None and not file.is_file():
        others = sorted(child.name for child in path.glob(f"*{GGUF_ENDING}"))
        raise ConfigError(f"model.source={reference} has no file {gguf_file!r}.", fix=did_you_mean(gguf_file, others))
    if file.is_file() and file.suffix.lower() == GGUF_ENDING:
        return Source(reference, _converted(file))
    return Source(reference, _model_directory(path, reference))


def _converted(file: Path) -> Path:
    from supertrainer.models.gguf import converted

    return converted(file)


def _model_directory(path: Path, reference: str) -> Path:
    if path.is_file():
        raise ConfigError(
            f"model.source={reference} is a file.",
            why="a model is a directory with config.json, weights and a tokenizer.",
            fix=f"model.source={path.parent}.",
        )
    if (path / MODEL_FOLDER / CONFIG_FILE).is_file():
        return path / MODEL_FOLDER
    if (path / "config.yaml").is_file() and any((path / name).exists() for name in ("checkpoints", "attempts.jsonl")):
        raise ConfigError(
            f"model.source={reference} is a run directory without a trained model.",
            why=f"{path / MODEL_FOLDER} is written when training ends.",
            fix="let the run finish, or name one of its checkpoints/step-… directories.",
        )
    if not (path / CONFIG_FILE).is_file() and not (path / ADAPTER_CONFIG_FILE).is_file():
        ggufs = sorted(child.name for child in path.glob(f"*{GGUF_ENDING}"))
        if ggufs:
            raise ConfigError(
                f"model.source={reference} holds {', '.join(ggufs[:8])}, and no {CONFIG_FILE}.",
                why="a directory may hold several of them.",
                fix=f"model.source={reference.rstrip('/')}/{ggufs[0]}.",
            )
        found = ", ".join(sorted(child.name for child in path.iterdir())[:8]) or "nothing"
        raise ConfigError(
            f"model.source={reference} is not a model directory.",
            why=f"it has neither {CONFIG_FILE} nor {ADAPTER_CONFIG_FILE}; it holds {found}.",
            fix="name the directory that holds them.",
        )
    return path


def require_safetensors(source: Source) -> None:
    """Refuses weights in formats that can run code when they are read.

    Raises:
        ConfigError: no `.safetensors` file; the message names what is there instead.
    """
    if any(source.directory.glob("*.safetensors")):
        return
    other = sorted(
        file.name for pattern in ("*.bin", "*.pt", "*.pth", "*.h5") for file in source.directory.glob(pattern)
    )
    held = f"it holds {', '.join(other)}" if other else "no *.safetensors file is there"
    raise ConfigError(
        f"model.source={source.reference} has no safetensors weights.",
        why=f"{held}; other formats can run code when they are read, so only safetensors is loaded.",
        fix="take a revision with safetensors (many Hub models have one under revision=refs/pr/N), or convert it once "
        "where you trust it: AutoModel.from_pretrained(PATH).save_pretrained(OTHER_PATH).",
    )


def _from_hub(reference: str, *, revision: str | None, with_code: bool, gguf_file: str | None) -> Source:
    from huggingface_hub import errors, snapshot_download

    patterns = [*_HUB_PATTERNS, *(("*.py",) if with_code else ())] if gguf_file is None else [gguf_file]
    arguments: Mapping[str, Any] = {"allow_patterns": patterns, "ignore_patterns": list(_HUB_IGNORED)}
    try:
        directory = Path(snapshot_download(reference, revision=revision, **arguments))
    except errors.GatedRepoError as error:
        raise ConfigError(
            f"model.source={reference} asks for an agreement, and this account has none.",
            fix=f"accept it at https://huggingface.co/{reference}, and put a token into the environment as HF_TOKEN.",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ConfigError(
            f"model.source={reference}: no such local path, and no such model on the Hub.",
            fix="check the spelling; a private model needs a token in the environment as HF_TOKEN.",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ConfigError(
            f"model.source={reference} has no revision {revision!r}.", fix="name a branch, tag or commit of it."
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, OSError) as error:
        raise ConfigError(
            f"model.source={reference}{f' at {revision}' if revision else ''} is no local path and not in the Hugging "
            "Face cache, and the Hub can't be reached.",
            why=str(error).splitlines()[0],
            fix="connect and unset HF_HUB_OFFLINE; or run `operation=check` once where there is a connection, which "
            "fills the cache; or name a local directory or package://MODULE/PATH.",
        ) from error
    except errors.HFValidationError as error:
        raise ConfigError(
            f"model.source={reference!r} is neither a local path nor a Hub id.",
            why=str(error).splitlines()[0],
            fix="a Hub id looks like `org/name`.",
        ) from error
    if gguf_file is not None:
        if not (directory / gguf_file).is_file():
            raise ConfigError(
                f"model.source={reference} on the Hub has no file {gguf_file!r}.",
                fix="see the list of its files there.",
            )
        return Source(reference, _converted(directory / gguf_file), commit=directory.name)
    if not (directory / CONFIG_FILE).is_file() and not (directory / ADAPTER_CONFIG_FILE).is_file():
        raise ConfigError(
            f"model.source={reference} on the Hub has no {CONFIG_FILE}.", fix="name a transformers model."
        )
    log.info("model %s: commit %s from %s", reference, directory.name, directory)
    return Source(reference, directory, commit=directory.name)
