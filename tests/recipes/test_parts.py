"""A recipe that cannot be trained is refused when it is written down, with the value and what it must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace

import pytest

from viaduct.errors import BadValue
from viaduct.recipes import (
    AdamW,
    AmoebanetDecay,
    Checkpoint,
    CrossEntropy,
    Evaluation,
    LarsPolynomial,
    Log,
    MindsporePolynomial,
    Precision,
    Recipe,
    ResnextDecay,
    Sgd,
    Shapes,
    Steps,
    ThorDecay,
    V15Decay,
)

BASE = Recipe(model="resnet20_cifar", data=Shapes(global_batch=8, size=16))

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a negative rate": (lambda: Sgd(lr=-0.1), r"optimizer.lr is -0.1; it must be 0 or more"),
    "a rate that is no number": (lambda: Sgd(lr=float("nan")), r"optimizer.lr is nan"),
    "a momentum of one": (lambda: Sgd(momentum=1.0), r"optimizer.momentum is 1.0; .*below 1"),
    "a negative decay": (lambda: Sgd(weight_decay=-1e-4), r"optimizer.weight_decay is -0.0001"),
    "a beta of one": (lambda: AdamW(betas=(0.9, 1.0)), r"optimizer.betas is \(0.9, 1.0\)"),
    "a negative epsilon": (lambda: AdamW(epsilon=-1.0), r"optimizer.epsilon is -1.0"),
    "a negative rate of AdamW": (lambda: AdamW(lr=-1.0), r"optimizer.lr is -1.0"),
    "too few factors": (lambda: Steps((1, 2), (1.0, 0.1)), r"factors is 2; it must be one more than the 2 boundaries"),
    "falling boundaries": (lambda: Steps((2, 1), (1.0, 0.1, 0.01)), r"schedule.boundaries is \(2, 1\).*rising"),
    "too few factors of v1.5": (lambda: V15Decay(factors=(1.0,)), r"factors is 1; it must be one more than the 4"),
    "falling boundaries of resnext": (
        lambda: ResnextDecay(boundaries=(2, 1)),
        r"schedule.boundaries is \(2, 1\).*rising",
    ),
    "an end below zero": (lambda: ResnextDecay(end=-1.0), r"schedule.end is -1.0; it must be 0 or more"),
    "warming up backwards": (lambda: AmoebanetDecay(warmup_epochs=-1), r"schedule.warmup_epochs is -1"),
    "a rate that decays upwards": (lambda: AmoebanetDecay(decay=1.1), r"schedule.decay is 1.1; .*at most 1"),
    "a peak of zero": (lambda: LarsPolynomial(peak=0.0), r"schedule.peak is 0.0; it must be above 0, or none"),
    "a start above the peak": (lambda: MindsporePolynomial(start=2.0), r"schedule.start is 2.0; .*from 0 to 1"),
    "no end": (lambda: ThorDecay(end_epoch=0), r"schedule.end_epoch is 0; it must be above 0"),
    "halving backwards": (lambda: ThorDecay(halve_at=(40, 39)), r"schedule.halve_at is \(40, 39\); it must be rising"),
    "a negative mixture": (lambda: replace(BASE, mixup=-0.2), r"mixup is -0.2; it must be 0 or more"),
    "a negative second head": (lambda: replace(BASE, aux_weight=-1.0), r"aux_weight is -1.0; it must be 0 or more"),
    "an fp16 scale of zero": (lambda: Precision(fp16_scale=0.0), r"precision.fp16_scale is 0.0; .*above 0, or dynamic"),
    "all of the label": (lambda: CrossEntropy(1.0), r"loss.label_smoothing is 1.0"),
    "a scale of zero": (lambda: Precision(loss_scale=0.0), r"precision.loss_scale is 0.0; it must be above 0"),
    "a start at zero": (lambda: Precision(scale_start=0.0), r"precision.scale_start is 0.0"),
    "growth at once": (lambda: Precision(scale_grow_every=0), r"precision.scale_grow_every is 0"),
    "shrinking at once": (lambda: Precision(scale_shrink_after=0), r"precision.scale_shrink_after is 0"),
    "a negative cadence": (lambda: Evaluation(every_epochs=-1), r"evaluation.every_epochs is -1"),
    "a threshold in percent": (lambda: Evaluation(stop_threshold=93.0), r"stop_threshold is 93.0; .* from 0 to 1"),
    "keeping nothing": (lambda: Checkpoint(keep=0), r"checkpoint.keep is 0; it must be 1 or more"),
    "negative steps between": (lambda: Checkpoint(every_steps=-1), r"checkpoint.every_steps is -1"),
    "negative minutes": (lambda: Checkpoint(every_minutes=-1), r"checkpoint.every_minutes is -1"),
    "no log": (lambda: Log(every_steps=0), r"log.every_steps is 0"),
    "no epochs": (lambda: replace(BASE, epochs=0), r"epochs is 0; it must be above 0"),
    "negative steps": (lambda: replace(BASE, steps=-1), r"steps is -1"),
    "no part": (lambda: replace(BASE, accumulate=0), r"accumulate is 0"),
    "parts that do not divide": (lambda: replace(BASE, accumulate=3), r"divisor of data.global_batch \(8\)"),
    "a negative norm": (lambda: replace(BASE, clip_norm=-1.0), r"clip_norm is -1.0"),
    "a negative seed": (lambda: replace(BASE, seed=-1), r"seed is -1"),
    "a seed too large": (lambda: replace(BASE, seed=2**63), r"seed is 9223372036854775808"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_trained_is_refused(what: str) -> None:
    make, message = REFUSED[what]
    with pytest.raises(BadValue, match=message):
        make()


def test_the_ends_of_the_ranges_are_allowed() -> None:
    assert Sgd(lr=0.0, momentum=0.0).lr == 0
    assert Evaluation(every_epochs=0, stop_threshold=1.0).stop_threshold == 1
    assert Checkpoint(every_steps=0, every_minutes=0, keep=1).keep == 1
    assert replace(BASE, accumulate=8, seed=0).accumulate == 8
    assert Steps((), (0.5,)).factors == (0.5,)


def test_every_part_is_frozen() -> None:
    parts = [BASE, *(getattr(BASE, field.name) for field in fields(BASE))]
    frozen = [part for part in parts if is_dataclass(part)]
    assert len(frozen) >= 8
    for part in frozen:
        for field in fields(part):
            with pytest.raises(FrozenInstanceError):
                setattr(part, field.name, None)
