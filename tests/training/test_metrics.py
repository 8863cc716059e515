"""Scores against figures worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from training.tiny_runs import CLASSES, RECIPE, VALIDATION, build_training, change_part, train_recipe
from viaduct.data.batches import Batches
from viaduct.errors import BadValue
from viaduct.recipes import Arrays, CrossEntropy, ImageSet, Recipe, Split
from viaduct.training.callbacks import MetricsFile
from viaduct.training.metrics import MAX_CONFUSION_CLASSES, ImageResults, Score, compute_score, evaluate
from viaduct.training.observing import TensorBoard
from viaduct.training.rundir import RunDir


def fail_if_called(path: object) -> ImageSet:
    raise AssertionError("the tests bring their own arrays")


def batches(labels: list[int], classes: int, batch: int) -> Batches:
    """Images that are black but for one pixel, which holds the image's number."""
    images = np.zeros((len(labels), 2, 2, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(len(labels))
    split = Split(images, np.array(labels, np.int64))
    data = Arrays(batch, 2, classes, mean=(0.0,) * 3, std=(1 / 255,) * 3, make=fail_if_called)
    return Batches(split, data, device=torch.device("cpu"), train=False, seed=1)


class Oracle:
    """Answers each image with the logits that stand in its row, and remembers which it was asked."""

    def __init__(self, logits: object) -> None:
        self.logits = torch.as_tensor(logits, dtype=torch.float32)
        self.asked: list[int] = []

    def __call__(self, images: Tensor) -> Tensor:
        numbers = images[:, 0, 0, 0].round().long()
        self.asked += numbers.tolist()
        return self.logits[numbers]


def answers(predictions: list[int], classes: int) -> Tensor:
    return 5.0 * F.one_hot(torch.tensor(predictions), classes)


TRUE = [0, 0, 0, 1, 1, 2, 2, 2, 2, 1]
PREDICTED = [0, 0, 1, 1, 2, 2, 2, 2, 0, 1]


def test_no_image_counts_twice_when_the_last_batch_is_partial() -> None:
    oracle = Oracle(answers(PREDICTED, 3))
    found = evaluate(oracle, batches(TRUE, 3, batch=4), 3, F.cross_entropy)
    assert found is not None
    assert len(oracle.asked) == 12  # two of them only fill the last batch
    assert found.count == len(found.predictions) == sum(map(sum, found.confusion)) == 10
    assert found.predictions == PREDICTED
    assert found.loss == pytest.approx(float(F.cross_entropy(oracle.logits, torch.tensor(TRUE))))


@pytest.mark.parametrize("batch", [1, 3, 10, 16])
def test_the_size_of_the_batches_changes_nothing(batch: int) -> None:
    rng = np.random.default_rng(5).normal(size=(10, 7))
    found = evaluate(Oracle(rng), batches(TRUE, 7, batch), 7, F.cross_entropy)
    result = evaluate(Oracle(rng), batches(TRUE, 7, 5), 7, F.cross_entropy)
    assert found is not None
    assert result is not None
    assert found.loss == pytest.approx(result.loss)
    assert (found.top1, found.top5, found.confusion) == (result.top1, result.top5, result.confusion)


def test_giving_up_leaves_no_score() -> None:
    reported: list[tuple[int, int]] = []

    def after_batch(done: int, total: int) -> bool:
        reported.append((done, total))
        return done < 2

    oracle = Oracle(answers(PREDICTED, 3))
    assert evaluate(oracle, batches(TRUE, 3, batch=4), 3, F.cross_entropy, after_batch) is None
    assert reported == [(1, 3), (2, 3)]
    assert len(oracle.asked) == 8


def test_evaluation_leaves_no_gradients_behind() -> None:
    weight = torch.ones(3, requires_grad=True)
    oracle = Oracle(answers(PREDICTED, 3))
    seen: list[bool] = []

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        seen.append(logits.requires_grad)
        return F.cross_entropy(logits, labels)

    evaluate(lambda images: oracle(images) * weight, batches(TRUE, 3, 4), 3, loss)
    assert seen == [False, False, False]


def test_precision_recall_and_f1_are_means_over_the_classes() -> None:
    found = evaluate(Oracle(answers(PREDICTED, 3)), batches(TRUE, 3, 5), 3, F.cross_entropy)
    assert found is not None
    assert found.confusion == [[2, 1, 0], [0, 2, 1], [1, 0, 3]]  # rows are the true classes
    assert found.top1 == 0.7
    assert found.precision == pytest.approx((2 / 3 + 2 / 3 + 3 / 4) / 3)
    assert found.recall == pytest.approx((2 / 3 + 2 / 3 + 3 / 4) / 3)
    assert found.f1 == pytest.approx((4 / 6 + 4 / 6 + 6 / 8) / 3)


def score_confusion(confusion: list[list[int]]) -> Score:
    """The score of as many images as the matrix counts."""
    pairs = [
        (true, predicted)
        for true, row in enumerate(confusion)
        for predicted, count in enumerate(row)
        for _ in range(count)
    ]
    true, predicted = np.array(pairs, np.int64).T
    found = compute_score(ImageResults(np.arange(len(pairs)), true, predicted, 0.0, 0), len(confusion))
    assert found.confusion == confusion
    return found


def test_very_many_classes_have_figures_but_no_matrix() -> None:
    true, predicted = np.array([0, 99_999, 7, 7]), np.array([0, 99_999, 7, 8])
    found = compute_score(ImageResults(np.arange(4), true, predicted, 2.0, 3), 100_000)
    assert found.confusion is None
    assert (found.count, found.loss, found.top1, found.top5) == (4, 0.5, 0.75, 0.75)
    assert found.recall == pytest.approx((1 + 1 + 1 / 2 + 0) / 4)
    assert found.precision == pytest.approx((1 + 1 + 1 + 0) / 4)
    assert (
        compute_score(ImageResults(np.arange(4), true % 9, predicted % 9, 2.0, 3), MAX_CONFUSION_CLASSES).confusion
        is not None
    )


def test_rows_are_true_classes_and_columns_are_predictions() -> None:
    found = score_confusion([[1, 3], [0, 4]])
    assert found.recall == pytest.approx((1 / 4 + 1) / 2)
    assert found.precision == pytest.approx((1 + 4 / 7) / 2)
    assert found.f1 == pytest.approx((2 / 5 + 8 / 11) / 2)


def test_a_class_never_predicted_counts_zero() -> None:
    found = score_confusion([[3, 0], [2, 0]])
    assert found.precision == pytest.approx((3 / 5 + 0) / 2)
    assert found.recall == pytest.approx((1 + 0) / 2)
    assert found.f1 == pytest.approx((6 / 8 + 0) / 2)


def test_a_class_neither_seen_nor_predicted_is_left_out_of_the_means() -> None:
    found = score_confusion([[4, 0, 0], [0, 4, 0], [0, 0, 0]])
    assert (found.precision, found.recall, found.f1) == (1, 1, 1)


def test_a_class_predicted_but_never_seen_counts_zero() -> None:
    found = score_confusion([[3, 1], [0, 0]])
    assert found.recall == pytest.approx((3 / 4 + 0) / 2)
    assert found.precision == pytest.approx((1 + 0) / 2)


def test_top_5_takes_the_five_highest() -> None:
    descending = [-float(position) for position in range(7)]  # class 0 first, class 6 last
    labels = [0, 1, 4, 5, 6]
    found = evaluate(Oracle([descending] * 5), batches(labels, 7, 2), 7, F.cross_entropy)
    assert found is not None
    assert (found.top1, found.top5) == (1 / 5, 3 / 5)


def test_top_5_of_fewer_than_five_classes_is_always_right() -> None:
    found = evaluate(Oracle(answers(PREDICTED, 3)), batches(TRUE, 3, 4), 3, F.cross_entropy)
    assert found is not None
    assert found.top5 == 1.0


def test_a_loss_that_is_not_a_number_is_reported_as_such() -> None:
    found = evaluate(Oracle(torch.full((10, 3), math.nan)), batches(TRUE, 3, 4), 3, F.cross_entropy)
    assert found is not None
    assert math.isnan(found.loss)
    assert found.count == 10


def test_the_headline_is_small_enough_for_a_line() -> None:
    found = score_confusion([[3, 1], [0, 4]])
    names = ["count", "loss", "top1", "top5", "precision", "recall", "f1", "seconds"]
    assert list(found.to_record()) == names
    assert found.to_record()["top1"] == 7 / 8


@pytest.fixture(autouse=True)
def grad_mode_is_as_before() -> Iterator[None]:
    yield
    assert torch.is_grad_enabled()


def kappa(logits: Tensor, labels: Tensor) -> float:
    """Cohen's, of the predicted classes."""
    predicted = logits.argmax(1)
    agreed = float((predicted == labels).double().mean())
    classes = logits.shape[1]
    shares = [torch.bincount(found, minlength=classes).double() / len(labels) for found in (predicted, labels)]
    rng = float((shares[0] * shares[1]).sum())
    return (agreed - rng) / (1 - rng)


def test_a_metric_sees_the_logits_and_labels_of_all_images_in_their_order(run: RunDir) -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def note(logits: Tensor, labels: Tensor) -> int:
        seen.append((logits, labels))
        return 3

    done = train_recipe(replace(RECIPE, metrics={"noted": note, "kappa": kappa}), run)
    assert done.score is not None
    logits, labels = seen[-1]
    assert labels.tolist() == done.images.validation.labels.tolist()
    assert len(logits) == VALIDATION
    assert logits.argmax(1).tolist() == done.score.predictions
    assert done.score.recipe_metrics == {"noted": 3.0, "kappa": pytest.approx(kappa(logits, labels))}
    assert done.score.to_record()["noted"] == 3.0


def test_it_is_written_down_beside_the_others(run: RunDir) -> None:
    train_recipe(replace(RECIPE, metrics={"kappa": kappa}), run, MetricsFile(), TensorBoard())
    assert all(-1 <= record["kappa"] <= 1 for record in run.read_records("evaluation"))
    events = b"".join(path.read_bytes() for path in run.path.glob("events.*"))
    assert b"validation/kappa" in events


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda logits, labels: logits, "metric 'mine' returned a Tensor"),
        (lambda logits, labels: "good", "metric 'mine' returned a str .'good'., not a number"),
        (lambda logits, labels: 1 / 0, "metric 'mine' fails: ZeroDivisionError"),
    ],
)
def test_a_metric_that_gives_no_number_is_named(run: RunDir, metric: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        train_recipe(replace(RECIPE, metrics={"mine": metric}), run)


@pytest.mark.parametrize("metrics", [{"top1": kappa}, {"two words": kappa}, {"kappa": 3}])
def test_names_that_are_taken_and_what_is_no_function_are_refused(metrics: Any) -> None:
    with pytest.raises(BadValue, match="metrics"):
        replace(RECIPE, metrics=metrics)


def score_of(recipe: Recipe, run: RunDir) -> float:
    done = train_recipe(recipe, run)
    assert done.score is not None
    return done.score.loss


def test_the_validation_loss_is_smoothed_only_where_the_recipe_says_so(run: RunDir) -> None:
    plain = replace(RECIPE, loss=CrossEntropy(0.1))
    smoothed = change_part(plain, "loss", smooth_evaluation=True)
    done, again = train_recipe(plain, run), build_training(plain, run).validation
    done.computation.train(False)
    sharp = evaluate(done.computation, again, CLASSES, F.cross_entropy)
    assert sharp is not None
    assert score_of(plain, run) == pytest.approx(sharp.loss)
    soft = evaluate(done.computation, again, CLASSES, lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1))
    assert soft is not None
    assert score_of(smoothed, run) == pytest.approx(soft.loss)
    assert soft.loss != pytest.approx(sharp.loss, rel=1e-3)
