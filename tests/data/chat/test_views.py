"""What the check shows of a conversation: its text, with what is learnt."""

from __future__ import annotations

from typing import Any

from chat_rows import talk
from supertrainer.data.preview import Piece, TextView
from supertrainer.operations.check_text import view_lines


def test_a_row_as_text_with_what_is_learnt(dataset: Any, make_tokenizer: Any) -> None:
    rows = [{"messages": talk("a" * 200, "b")}, {"messages": talk("Hi", "Hello")}]
    data = dataset(rows, max_length=60, on_too_long="drop")
    [view] = data.views("train", 3, make_tokenizer())
    assert view == TextView(
        "train.jsonl:2",
        (
            Piece("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", False),
            Piece("Hello<|im_end|>", True),
            Piece("\n", False),
        ),
        tokens=28,
        learnt=6,
    )


def test_the_learnt_part_is_marked_without_colours() -> None:
    view = TextView("t:1", (Piece("a\nb ", False), Piece("c\nd\x1b", True), Piece("\n", False)), tokens=6, learnt=3)
    assert list(view_lines(view, colour=False)) == [
        "  t:1: 6 tokens, 3 are learnt (50%)",
        "    a",
        "    b ⟦c⟧",
        "    ⟦d ⟧",
        "    ",
    ]


def test_the_learnt_part_is_coloured() -> None:
    view = TextView("t:1", (Piece("a", False), Piece("b", True)), tokens=2, learnt=1)
    assert list(view_lines(view, colour=True))[1] == "    a\x1b[1;30;42mb\x1b[0m"


def test_a_long_text_is_cut() -> None:
    view = TextView("t:1", (Piece("a" * 3000, False), Piece("b", True)), tokens=3001, learnt=1)
    assert list(view_lines(view, colour=False))[1] == f"    {'a' * 1000} …"
