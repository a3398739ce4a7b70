"""Documents in tables and in files of token ids: Parquet, Arrow, memory-mapped tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from supertrainer.core.errors import DataError
from supertrainer.data.streams.memmap import MemmapTokens
from supertrainer.data.streams.units import Odd, OpenUnit, Unit, runs

if TYPE_CHECKING:
    import pyarrow as pa


class ParquetFile:
    """A Parquet file: its units are its row groups, of which only the column with the text is read."""

    def __init__(self, path: Path, *, name: str, column: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path, self.name, self.column = path, name, column
        try:
            with pq.ParquetFile(path) as file:
                self._metadata, schema = file.metadata, file.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(name, "Parquet", error) from None
        _require_text(schema, column=column, name=name)
        groups = [self._metadata.row_group(index) for index in range(self._metadata.num_row_groups)]
        self._rows = np.cumsum([0, *(group.num_rows for group in groups)])

    def units(self, *, block_bytes: int, exact: bool) -> list[Unit]:
        return [
            Unit((index, int(self._rows[index])), group.num_rows, self._size(group))
            for index in range(self._metadata.num_row_groups)
            if (group := self._metadata.row_group(index)).num_rows
        ]

    def numbers(self, unit: Unit) -> np.ndarray:
        return np.arange(unit.part[1], unit.part[1] + (unit.documents or 0))

    def open(self, unit: Unit) -> OpenUnit:
        import pyarrow as pa
        import pyarrow.parquet as pq

        group, first = unit.part
        try:
            with pq.ParquetFile(self.path, metadata=self._metadata, page_checksum_verification=True) as file:
                column = file.read_row_group(group, columns=[self.column], use_threads=False).column(self.column)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(f"{self.name} row group {group}", "Parquet", error) from None
        return _OpenColumn(column, first=first, name=self.name)

    def _size(self, group: Any) -> int:
        columns = (group.column(index) for index in range(group.num_columns))
        return sum(c.total_uncompressed_size for c in columns if c.path_in_schema.split(".")[0] == self.column)


class ArrowFile:
    """An Arrow file or stream (as `datasets` writes): its units are its record batches, read in place."""

    def __init__(self, path: Path, *, name: str, column: str) -> None:
        import pyarrow as pa

        self.path, self.name, self.column = path, name, column
        try:
            source = pa.memory_map(str(path))
            try:
                table = pa.ipc.open_stream(source).read_all()
            except pa.ArrowInvalid:
                table = pa.ipc.open_file(source).read_all()
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(name, "Arrow", error) from None
        _require_text(table.schema, column=column, name=name)
        self._column = table.column(column)

    def units(self, *, block_bytes: int, exact: bool) -> list[Unit]:
        found, first = [], 0
        for index, chunk in enumerate(self._column.chunks):
            if len(chunk):
                found.append(Unit((index, first), len(chunk), chunk.nbytes))
            first += len(chunk)
        return found

    def numbers(self, unit: Unit) -> np.ndarray:
        return np.arange(unit.part[1], unit.part[1] + (unit.documents or 0))

    def open(self, unit: Unit) -> OpenUnit:
        import pyarrow as pa

        index, first = unit.part
        return _OpenColumn(pa.chunked_array([self._column.chunk(index)]), first=first, name=self.name)


class _OpenColumn:
    def __init__(self, column: pa.ChunkedArray, *, first: int, name: str) -> None:
        import pyarrow as pa

        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        # As bytes: Arrow trusts that its strings are UTF-8, and raises in the middle of a document that isn't.
        column = column.cast(pa.large_binary())
        self._texts = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        self._first, self._name = first, name
        self.numbers = np.arange(first, first + len(self._texts))

    def __len__(self) -> int:
        return len(self._texts)

    def read(self, index: int) -> bytes | Odd:
        content = self._texts[index].as_py()
        return Odd("null", "the text is null") if content is None else content

    def place(self, index: int) -> str:
        return f"{self._name} row {self._first + index + 1}"


class TokenFile:
    """NAME.bin with its NAME.offsets and NAME.json: the documents are token ids already."""

    def __init__(self, path: Path, *, name: str, tokenizer: str | None) -> None:
        """Opens the files.

        Args:
            tokenizer: what tells the tokenizer in use; None where no token is looked at.

        Raises:
            DataError: another tokenizer made them.
        """
        self.name = name
        self.tokens = MemmapTokens(path, name=name)
        made_by = self.tokens.facts["tokenizer"]
        if tokenizer is not None and made_by != tokenizer:
            raise DataError(
                f"{name}: its token ids were made by another tokenizer.",
                why=f"{path.with_suffix('.json').name} tells of {made_by[:12]}, dataset.tokenizer is {tokenizer[:12]}.",
                fix="the tokenizer that made them, or make them anew with scripts/tokenize_corpus.py.",
            )

    def units(self, *, block_bytes: int, exact: bool) -> list[Unit]:
        sizes = np.diff(self.tokens.offsets.astype(np.int64)) * self.tokens.tokens.itemsize
        return [
            Unit((begin, end), end - begin, int(sizes[begin:end].sum()))
            for begin, end in runs(sizes, block_bytes=block_bytes)
        ]

    def numbers(self, unit: Unit) -> np.ndarray:
        return np.arange(*unit.part)

    def open(self, unit: Unit) -> OpenUnit:
        return _OpenTokens(self, *unit.part)


class _OpenTokens:
    def __init__(self, file: TokenFile, begin: int, end: int) -> None:
        self._file, self._begin = file, begin
        self.numbers = np.arange(begin, end)

    def __len__(self) -> int:
        return len(self.numbers)

    def read(self, index: int) -> np.ndarray:
        return self._file.tokens.document(self._begin + index)

    def place(self, index: int) -> str:
        return f"{self._file.name} document {self._begin + index + 1}"


def _require_text(schema: pa.Schema, *, column: str, name: str) -> None:
    import pyarrow as pa

    if column not in schema.names:
        raise DataError(
            f"{name} has no column {column!r}.",
            why=f"it has {', '.join(schema.names) or 'none'}.",
            fix="text_column of the source: the column that holds the text.",
        )
    kind = schema.field(column).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if not any(is_kind(kind) for is_kind in (*texts, pa.types.is_binary, pa.types.is_large_binary)):
        raise DataError(
            f"{name}: the column {column!r} holds {kind}, no text.",
            fix="text_column of the source: the column that holds the text.",
        )


def _unreadable(name: str, kind: str, error: Exception) -> DataError:
    return DataError(
        f"{name} can't be read as {kind}: {error}.",
        why="it is cut off, or its bytes have changed.",
        fix="give a complete file; a run that has begun goes on with the file as it was when it started.",
    )
