"""The files of a source: where they are, what they hold, and what tells that they changed."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supertrainer.core.errors import DataError
from supertrainer.core.sources import local_path
from supertrainer.data.streams.patterns import matching, split_pattern
from supertrainer.data.streams.schema import Format, StreamSource

log = logging.getLogger(__name__)

ENDINGS: Mapping[str, Format] = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".bin": "memmap",
}
COMPRESSED = (".gz", ".zst")
_WHOLE_BYTES = 16 << 20  # files up to this size are hashed whole
_SAMPLES, _SAMPLE_BYTES = 64, 64 << 10


@dataclass(frozen=True)
class DocumentFile:
    """One file of documents.

    Attributes:
        path: where it is.
        name: relative to its source, as messages, fingerprints and the choice of held-out documents use it.
        format: what it holds.
    """

    path: Path
    name: str
    format: Format

    @property
    def is_compressed(self) -> bool:
        """Whether it has to be unpacked before it can be read at any place."""
        return self.path.suffix.lower() in COMPRESSED and self.format in ("text", "jsonl")


def find_files(source: StreamSource, *, name: str) -> tuple[list[DocumentFile], str | None]:
    """The files of a source in the order of their names, and the commit of a Hub id.

    Raises:
        ConfigError: the source isn't there.
        DataError: it holds no files of documents, or of several formats.
    """
    key = f"dataset.sources.{name}"
    base, pattern = split_pattern(source.path)
    commit = None
    if pattern is not None:
        paths = matching(base, pattern)
        root = _root_of(base)
    else:
        found = local_path(source.path)
        if found is None:
            found, commit = _from_hub(source, key=key)
        root = found if found.is_dir() else found.parent
        inside = found.rglob("*") if source.files is None else found.glob(source.files)
        paths = sorted(path for path in inside if _is_visible(path, root)) if found.is_dir() else [found]
    formats = {path: _format_of(path, declared=source.format) for path in paths}
    files = [DocumentFile(path, path.relative_to(root).as_posix(), of) for path, of in formats.items() if of]
    _require_one_format(files, paths=paths, source=source, key=key)
    return files, commit


def fingerprint(file: DocumentFile) -> dict[str, Any]:
    """{size, sha256} of a file; beyond 16 MiB the hash is over 64 KiB from each of 64 places, which `sampled` says."""
    size = file.path.stat().st_size
    digest = hashlib.sha256()
    with file.path.open("rb") as stream:
        if size <= _WHOLE_BYTES:
            digest.update(stream.read())
            return {"size": size, "sha256": digest.hexdigest()}
        for number in range(_SAMPLES):
            stream.seek(max(0, size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
            digest.update(stream.read(_SAMPLE_BYTES))
    return {"size": size, "sha256": digest.hexdigest(), "sampled": True}


def _root_of(base: str) -> Path:
    root = local_path(base)
    assert root is not None, "a pattern has matched below it"
    return root


def _is_visible(path: Path, root: Path) -> bool:
    return path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(root).parts)


def _format_of(path: Path, *, declared: Format) -> Format | None:
    ending = path.suffix.lower()
    if ending in COMPRESSED:
        ending = path.with_suffix("").suffix.lower()
    known = ENDINGS.get(ending)
    if known == "memmap" and not path.with_suffix(".json").is_file():
        known = None
    if declared == "auto":
        return known
    if declared == "memmap":
        return "memmap" if known == "memmap" else None
    return declared if known in (declared, None) else None


def _require_one_format(
    files: Sequence[DocumentFile], *, paths: Sequence[Path], source: StreamSource, key: str
) -> None:
    if not files:
        held = ", ".join(path.name for path in paths[:5]) or "nothing"
        raise DataError(
            f"{key}.path={source.path} has no files of documents.",
            why=f"it holds {held}; known endings: {' '.join(ENDINGS)}, text ones also with {' and '.join(COMPRESSED)}; "
            "NAME.bin needs its NAME.json.",
            fix=f"another path, or {key}.format=text where the ending doesn't tell.",
        )
    formats = sorted({file.format for file in files})
    if len(formats) > 1:
        raise DataError(
            f"{key}.path={source.path} holds files of several formats: {', '.join(formats)}.",
            why="a stray file would be trained on.",
            fix=f"{key}.format={formats[0]}, or one source for each.",
        )


def _from_hub(source: StreamSource, *, key: str) -> tuple[Path, str]:
    from huggingface_hub import errors, snapshot_download

    endings = [f"*{ending}{packed}" for ending in ENDINGS for packed in ("", *COMPRESSED)]
    patterns = [source.files] if source.files is not None else endings
    try:
        directory = snapshot_download(
            source.path, repo_type="dataset", revision=source.revision, allow_patterns=patterns
        )
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError, ValueError) as error:
        raise DataError(
            f"{key}.path={source.path} is no local path and can't be taken from the Hub.",
            why=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
            fix="check the id, `files` and `revision`, the network and HF_TOKEN; or give a local path.",
        ) from None
    log.info("%s: commit %s", source.path, Path(directory).name)
    return Path(directory), Path(directory).name
