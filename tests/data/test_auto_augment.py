"""Policies: their names, how often they apply each operation, and that they depend on the position only."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from viaduct.data import auto_augment, references
from viaduct.data.auto_augment import CIFAR10, IMAGENET, RANDAUGMENT, find_policy
from viaduct.data.operations import OPERATIONS
from viaduct.data.preprocess import prepare_image
from viaduct.data.records import Records
from viaduct.errors import BadValue, UnknownName

from .photographs import encode_photograph, photograph

IMAGE = np.ascontiguousarray(photograph("chelsea")[:64, 100:164])


def test_without_a_name_there_is_no_policy() -> None:
    assert find_policy("") is None


@pytest.mark.parametrize("name", ["imagenet2", "Imagenet", "randaugment-2", "randaugment-x-y", "randaugment2-9"])
def test_an_unknown_policy_is_answered_with_the_closest(name: str) -> None:
    with pytest.raises(UnknownName, match=f"no auto-augment policy called '{name}'"):
        Records(global_batch=1, size=8, auto_augment=name)


@pytest.mark.parametrize("name", ["randaugment-0-9", "randaugment-15-9", "randaugment-2-31"])
def test_numbers_out_of_range_are_named(name: str) -> None:
    with pytest.raises(BadValue, match=f"{name}: RandAugment takes 1 to 14 operations"):
        find_policy(name)


@pytest.mark.parametrize("pairs", [IMAGENET, CIFAR10], ids=["imagenet", "cifar10"])
def test_the_policy_tables_are_complete(pairs: Any) -> None:
    assert len(pairs) == 25
    for name, probability, magnitude in (step for pair in pairs for step in pair):
        assert name in OPERATIONS
        assert 0 <= probability <= 1
        assert 0 <= magnitude <= 9


@pytest.mark.parametrize("name", ["imagenet", "cifar10", "randaugment", "randaugment-3-15"])
def test_the_same_generator_gives_the_same_image_and_images_vary(name: str) -> None:
    policy = find_policy(name)
    assert policy is not None
    first, second = ([policy(IMAGE, np.random.default_rng(seed)) for seed in range(40)] for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert len({made.tobytes() for made in first}) > 15


def count_operations(monkeypatch: pytest.MonkeyPatch, operations: dict[str, Any]) -> Counter[str]:
    """Each call of an operation, with its strength."""
    calls: Counter[str] = Counter()

    def counting(name: str) -> Any:
        def count(image: Any, strength: float, sign: float) -> Any:
            calls[name] += 1
            calls[f"{name} at {strength:g}, {sign:+g}"] += 1
            return image

        return count

    for name in list(operations):
        monkeypatch.setitem(operations, name, counting(name))
    return calls


def test_operations_come_as_often_as_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_operations(monkeypatch, auto_augment.OPERATIONS)
    policy, rng = find_policy("imagenet"), np.random.default_rng(0)
    assert policy is not None
    trials = 20_000
    for _ in range(trials):
        policy(IMAGE, rng)
    for name in OPERATIONS:
        expected = sum(step[1] for pair in IMAGENET for step in pair if step[0] == name) / 25
        assert abs(calls[name] / trials - expected) < 0.015, name
    assert abs(calls["rotate at 0.9, +1"] / calls["rotate at 0.9, -1"] - 1) < 0.15


def test_randaugment_draws_each_of_fourteen_equally_often(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_operations(monkeypatch, auto_augment.OPERATIONS)
    policy, rng = find_policy("randaugment-3-5"), np.random.default_rng(0)
    assert policy is not None
    for _ in range(5000):
        policy(IMAGE, rng)
    assert len(RANDAUGMENT) == 14
    assert sum(calls[name] for name in RANDAUGMENT) == 15_000
    assert all(abs(calls[name] / 15_000 - 1 / 14) < 0.01 for name in RANDAUGMENT)
    assert all("at 0.5" in key for key in calls if " at " in key)


@pytest.mark.parametrize("name", references.names())
def test_the_crop_is_the_same_with_and_without_a_policy(name: str) -> None:
    def nothing(image: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return image

    plain = prepare_image(name, encode_photograph("chelsea"), True, np.random.default_rng(4))
    through = prepare_image(name, encode_photograph("chelsea"), True, np.random.default_rng(4), policy=nothing)
    assert abs(plain - through).mean() < 1  # it was rounded to bytes on the way; contrast may stretch that
    inverted = prepare_image(
        name, encode_photograph("chelsea"), True, np.random.default_rng(4), policy=lambda p, g: 255 - p
    )
    assert abs(plain - inverted).mean() > 10


def test_evaluation_is_not_changed() -> None:
    policy = find_policy("randaugment-5-20")
    assert np.array_equal(
        prepare_image("official", encode_photograph("chelsea"), False, np.random.default_rng(1), policy=policy),
        prepare_image("official", encode_photograph("chelsea")),
    )
