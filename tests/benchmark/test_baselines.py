"""The majority class and the bag of words: right numbers, and sane where there is little to learn from."""

from __future__ import annotations

import math

import pytest

from supertrainer.benchmark.baselines import score_baselines
from supertrainer.benchmark.results import Baseline
from supertrainer.benchmark.rows import LabelledTexts
from supertrainer.core.errors import DataError
from supertrainer.metrics.scores import CLASSIFICATION_DEFINITIONS

NAMES = ("bad", "good")
TRAIN = LabelledTexts(["dull plot", "dull acting", "dull and slow", "great plot", "great acting"], [0, 0, 0, 1, 1])
TEST = LabelledTexts(["a great film", "a dull film", "great great", "slow"], [1, 0, 1, 0])


def scored(train: LabelledTexts, test: LabelledTexts, *, names: tuple[str, ...] = NAMES) -> tuple[Baseline, Baseline]:
    majority, words = score_baselines(train, test=test, label_names=names)
    return majority, words


def test_majority_class_by_hand() -> None:
    majority, _ = scored(TRAIN, TEST)
    assert majority.name == "majority class"
    assert majority.method == "always 'bad', the commonest class of the training rows"
    assert majority.fitted_rows == 5
    # shares (3+1)/7 and (2+1)/7; of four test rows two are each class, all are called bad
    assert majority.metrics["loss"] == pytest.approx(-(math.log(4 / 7) + math.log(3 / 7)) / 2, abs=1e-12)
    assert majority.metrics["accuracy"] == 0.5
    assert majority.metrics["macro_f1"] == pytest.approx((2 / 3 + 0) / 2, abs=1e-12)


def test_bag_of_words_learns_words() -> None:
    _, words = scored(TRAIN, TEST)
    assert words.metrics["accuracy"] == 1.0
    assert words.metrics["loss"] < math.log(2)
    assert words.method == "logistic regression on TF-IDF of word 1-2-grams, at most 50,000"


def test_both_have_every_scalar_of_the_metric() -> None:
    for baseline in scored(TRAIN, TEST):
        assert list(baseline.metrics) == list(CLASSIFICATION_DEFINITIONS)


def test_absent_class_of_the_label_set_counts_in_macro() -> None:
    _, words = scored(TRAIN, TEST, names=("bad", "good", "never"))
    assert words.metrics["macro_f1"] == pytest.approx(2 / 3, abs=1e-12)
    unseen = LabelledTexts(["a great film", "a dull film"], [2, 2])
    assert math.isfinite(scored(TRAIN, unseen, names=("bad", "good", "never"))[1].metrics["loss"])


def test_a_class_that_training_lacks_does_not_shift_the_others() -> None:
    shifted = LabelledTexts(TRAIN.texts, [label + 1 for label in TRAIN.labels])
    _, words = scored(shifted, LabelledTexts(TEST.texts, [2, 1, 2, 1]), names=("never", "bad", "good"))
    assert words.metrics["accuracy"] == 1.0


def test_one_class_in_training_falls_back_to_it() -> None:
    majority, words = scored(LabelledTexts(["a b", "c d"], [1, 1]), TEST)
    assert words.method == "the majority class: the training rows have one class only"
    assert words.metrics == majority.metrics
    assert majority.metrics["accuracy"] == 0.5


@pytest.mark.parametrize(
    ("texts", "asked"),
    [
        (["这部电影很好看", "我喜欢这个故事", "这部电影很难看", "我讨厌这个故事"], ["很喜欢很好", "很讨厌很难"]),
        (["!!!", "!!", "???", "??"], ["!!!!", "????"]),
        (["a", "a a", "b", "b b"], ["a", "b"]),
        (["ดีมากเลยนะ", "ดีจริงๆนะ", "แย่มากเลยนะ", "แย่จริงๆนะ"], ["ดีดี", "แย่แย่"]),
    ],
    ids=["chinese", "punctuation", "single letters", "thai"],
)
def test_characters_where_words_cannot_be_told_apart(texts: list[str], asked: list[str]) -> None:
    _, words = scored(LabelledTexts(texts, [1, 1, 0, 0]), LabelledTexts(asked, [1, 0]))
    assert words.method == "logistic regression on TF-IDF of character 1-3-grams, at most 50,000"
    assert words.metrics["accuracy"] == 1.0


def test_only_stop_words_are_words_like_others() -> None:
    _, words = scored(
        LabelledTexts(["the of", "the the", "and to", "and and"], [0, 0, 1, 1]), LabelledTexts(["the", "and"], [0, 1])
    )
    assert words.metrics["accuracy"] == 1.0


def test_texts_of_nothing_but_spaces_fall_back() -> None:
    majority, words = scored(LabelledTexts(["", " \n", ""], [0, 0, 1]), TEST)
    assert words.method == "the majority class: the training texts have no characters"
    assert words.metrics == majority.metrics


def test_second_text_of_a_pair_counts() -> None:
    train = LabelledTexts([("the film", "great"), ("the film", "dull"), ("it", "great"), ("it", "dull")], [1, 0, 1, 0])
    _, words = scored(train, LabelledTexts([("the film", "dull"), ("what", "great")], [0, 1]))
    assert words.metrics["accuracy"] == 1.0


def test_rows_are_capped_by_the_seed() -> None:
    train = LabelledTexts([f"word{i % 7} other{i % 3}" for i in range(200)], [i % 2 for i in range(200)])

    def losses(seed: int) -> list[float]:
        capped = score_baselines(train, test=TEST, label_names=NAMES, seed=seed, max_rows=20)
        assert [baseline.fitted_rows for baseline in capped] == [200, 20]
        return [baseline.metrics["loss"] for baseline in capped]

    assert losses(1) == losses(1)
    assert losses(1)[0] == losses(2)[0]
    assert losses(1)[1] != losses(2)[1]


def test_unlabelled_rows_do_not_count() -> None:
    with_unlabelled = LabelledTexts([*TRAIN.texts, "great great great"], [*TRAIN.labels, -100])
    same = [baseline.model_dump(exclude={"seconds"}) for baseline in scored(TRAIN, TEST)]
    assert [baseline.model_dump(exclude={"seconds"}) for baseline in scored(with_unlabelled, TEST)] == same


def test_no_label_at_all_is_an_error() -> None:
    with pytest.raises(DataError, match="none of 2 training rows has a label"):
        scored(LabelledTexts(["a", "b"], [-100, -100]), TEST)


def test_many_test_rows_are_scored_in_blocks() -> None:
    test = LabelledTexts(["great film"] * 4_001, [1] * 4_001)
    assert scored(TRAIN, test)[1].metrics["accuracy"] == 1.0


def test_texts_and_labels_go_together() -> None:
    with pytest.raises(ValueError, match="2 texts and 1 labels"):
        LabelledTexts(["a", "b"], [0])
