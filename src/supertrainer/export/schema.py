"""The config of each export. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from supertrainer.config.strict import TargetModel


class ExportConfig(TargetModel):
    """What every export has."""

    output: str | None = Field(
        default=None, min_length=1, description="The directory to write; null: one in the run directory."
    )


class MergeExportConfig(ExportConfig):
    """A plain model: an adapter folded into its base, or a fully fine-tuned one as it is."""

    base: Literal["original", "dequantized"] = Field(
        default="dequantized",
        description="Of an adapter over quantized weights, what it is folded into. dequantized: what those stand "
        "for, which it was trained on, so that the run's scores hold; original: the weights as their source has them.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="auto: as the base is stored."
    )
    rows: int = Field(default=8, ge=1, le=1024, description="Rows on which merged and trained model are compared.")
    max_length: int = Field(default=128, ge=1, description="Tokens of each of them, at most.")
