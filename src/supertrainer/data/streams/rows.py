"""The rows of a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NOT_LEARNT = -100
"""What a target is that counts nothing, as in torch's cross entropy."""


@dataclass(frozen=True)
class Rows:
    """Rows of one more token than the model reads: each but the first is the target of the one before.

    Attributes:
        tokens: int64, (rows, sequence_length + 1). A row begins with the last token of its stream's row before, so
            that every token is a target once; at a boundary between isolated documents with the next one's first.
        documents: int32, of the same shape: which document a token belongs to, numbered from 0 in each row.
        slots: int64, (rows,): places in the global batch.
        isolated: whether documents don't see each other.
    """

    tokens: np.ndarray  # (R, T + 1)
    documents: np.ndarray  # (R, T + 1)
    slots: np.ndarray  # (R,)
    isolated: bool

    @property
    def inputs(self) -> np.ndarray:
        """What the model reads: int64, (rows, sequence_length)."""
        return self.tokens[:, :-1]

    @property
    def targets(self) -> np.ndarray:
        """What it learns: int64, (rows, sequence_length); -100 where the next token is another document's."""
        following = self.tokens[:, 1:]
        if not self.isolated:
            return following
        return np.where(self.documents[:, 1:] == self.documents[:, :-1], following, NOT_LEARNT)

    @property
    def input_documents(self) -> np.ndarray | None:
        """The documents of `inputs`: int32, (rows, sequence_length); None where documents see each other."""
        return self.documents[:, :-1] if self.isolated else None
