"""Tables with types of their own (Arrow, Parquet, saved `datasets` directories) -> plain columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supertrainer.core.errors import DataError
from supertrainer.data.locate import SourceFile

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa


class ArrowColumn(Sequence[Any]):
    """A column that stays in Arrow: a value becomes a Python object when it is asked for."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, index: Any) -> Any:
        return self.column[index].as_py()


@dataclass
class RawRows:
    """Columns as a file holds them: name -> values (str, int, float, bool, None, …), and where each row stands.

    `class_names` has the names behind a column of class ids (`datasets.ClassLabel`); `available` all column names, also
    of columns that weren't asked for. `from_arrow`: nested objects have all rows' fields, null where they have none.
    `folder`: where the file stands; None for a Hub set.
    """

    columns: Mapping[str, Sequence[Any]]
    places: list[str]
    available: tuple[str, ...]
    class_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    from_arrow: bool = False
    folder: Path | None = None


def from_arrow(table: pa.Table, *, name: str, wanted: Sequence[str] | None = None) -> RawRows:
    """The rows of an Arrow table; names of classes from the `datasets` features in its metadata, where there are."""
    import datasets

    described = b"huggingface" in (table.schema.metadata or {})
    features = datasets.Features.from_arrow_schema(table.schema) if described else {}
    columns = [column for column in table.column_names if wanted is None or column in wanted]
    return RawRows(
        {column: _values(table.column(column)) for column in columns},
        [f"{name} row {number}" for number in range(1, table.num_rows + 1)],
        tuple(table.column_names),
        {c: names for c in columns if (names := _class_names(features.get(c))) is not None},
        from_arrow=True,
    )


def _values(column: pa.ChunkedArray) -> Sequence[Any]:
    """The values of a column; bytes, such as those of pictures, stay where they are."""
    return ArrowColumn(column) if _holds_bytes(column.type) else column.to_pylist()


def _holds_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return True
    return any(_holds_bytes(kind.field(number).type) for number in range(kind.num_fields))


def _class_names(feature: Any) -> tuple[str, ...] | None:
    """The names behind class ids, or behind lists of them."""
    import datasets

    inner = feature.feature if isinstance(feature, datasets.List | datasets.LargeList) else feature
    return tuple(inner.names) if isinstance(inner, datasets.ClassLabel) else None


def from_dataset(dataset: datasets.Dataset, *, name: str, wanted: Sequence[str] | None = None) -> RawRows:
    """The rows of a `datasets.Dataset`."""
    kept = [column for column in dataset.column_names if wanted is None or column in wanted]
    rows = from_arrow(dataset.select_columns(kept).with_format("arrow")[:], name=name)
    rows.available = tuple(dataset.column_names)
    return rows


def read_table(file: SourceFile) -> pa.Table:
    """A Parquet or Arrow file.

    Raises:
        DataError: it is none, or cut short.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if file.format == "parquet":
            return pq.read_table(file.path)
        try:
            return pa.ipc.open_stream(pa.memory_map(str(file.path))).read_all()  # as `datasets` writes
        except pa.ArrowInvalid:
            return pa.ipc.open_file(pa.memory_map(str(file.path))).read_all()  # Feather
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{file.name} can't be read as {file.format}: {error}.",
            fix="give a complete file; dataset.format says what it is where the name doesn't.",
        ) from None


def load_saved(file: SourceFile) -> datasets.Dataset:
    """One split as `Dataset.save_to_disk` wrote it.

    Raises:
        DataError: the directory is broken, or holds several splits.
    """
    import datasets
    import pyarrow as pa

    try:
        loaded = datasets.load_from_disk(str(file.path))
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise DataError(f"{file.name} can't be read as a saved `datasets` directory: {error}.") from None
    if isinstance(loaded, datasets.DatasetDict):
        raise DataError(
            f"{file.name} holds several splits: {', '.join(loaded)}.",
            fix=f"name one: {file.name}/{next(iter(loaded))}.",
        )
    return loaded
