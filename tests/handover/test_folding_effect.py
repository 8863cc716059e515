"""The effect of folding on probabilities is measured on real images; a figure of noise is called one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from viaduct.handover.classifier import Classifier, open_run
from viaduct.handover.engine import Engine, build_engine
from viaduct.handover.folding_effect import ComparedRun, FoldingEffect, draw_sample, measure_effect


@pytest.fixture
def engine(classifier: Classifier) -> Engine:
    return build_engine(classifier, "cpu", "fp32")


def shift_outputs(engine: Engine, amount: float) -> Engine:
    """Return an engine that adds to the first output: what folding may do, without the luck of rounding."""

    def network(inputs: Tensor) -> Tensor:
        logits = engine.network(inputs)
        return torch.cat([logits[:, :1] + amount, logits[:, 1:]], 1)

    return replace(engine, network=network)


def test_an_effect_measured_on_noise_is_never_said_to_be_of_images(shapes_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(shapes_run, copy)
    classifier = replace(open_run(copy), run=None)
    effect = measure_effect(build_engine(classifier, "cpu", "fp32"), draw_sample(classifier, "cpu", "fp32"))
    assert "on 16 images of noise probabilities differ" in str(effect)
    assert "real images may differ much more" in str(effect)


def test_validation_images_of_the_run_are_measured(classifier: Classifier, engine: Engine) -> None:
    sample = draw_sample(classifier, "cpu", "fp32")
    exact, shifted = measure_effect(engine, sample), measure_effect(shift_outputs(engine, 50.0), sample)
    assert exact.origin == "16 of the run's validation images"
    assert exact.largest < 1e-5
    assert exact.equal == exact.images == 16
    expected = float((1 - sample.expected[:, 0]).max())
    assert shifted.largest == pytest.approx(expected, abs=1e-5)
    assert shifted.equal == int((sample.expected.argmax(1) == 0).sum())


def test_the_first_batch_and_no_other_is_compared(classifier: Classifier, engine: Engine) -> None:
    effects: list[FoldingEffect] = []
    reference = build_engine(classifier, "cpu", "fp32", fold=False)
    run = ComparedRun(shift_outputs(engine, 0.5), reference, effects.append)
    inputs = draw_sample(classifier, "cpu", "fp32").inputs
    for count in (1, 5):
        assert torch.equal(run(inputs[:count]), shift_outputs(engine, 0.5).run(inputs[:count]))
    (effect,) = effects
    assert (effect.origin, effect.images) == ("the first image", 1)
    expected = (engine.run(inputs[:1]) + torch.tensor([0.5] + [0.0] * 9)).softmax(1) - engine.run(inputs[:1]).softmax(1)
    assert effect.largest == pytest.approx(float(expected.abs().max()), abs=1e-5)


def test_outputs_that_are_not_finite_are_no_difference(classifier: Classifier, engine: Engine) -> None:
    effect = measure_effect(shift_outputs(engine, float("nan")), draw_sample(classifier, "cpu", "fp32"))
    assert effect.as_dict()["largest_difference_of_a_probability"] is None
