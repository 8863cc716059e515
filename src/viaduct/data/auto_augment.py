"""Augmentation policies, selected by the recipe's `data.auto_augment` or `--auto-augment`.

    imagenet             AutoAugment's policy for ImageNet (Cubuk et al. 2018, arXiv:1805.09501, table 9)
    cifar10              AutoAugment's policy for CIFAR-10 (table 7)
    randaugment          two operations drawn from fourteen, at magnitude 9 of 10 (Cubuk et al. 2019, arXiv:1909.13719)
    randaugment-N-M      N operations, 1 to 14, at magnitude M, 0 to 30

AutoAugment draws one of 25 pairs of operations. Each operation has a probability and a magnitude, from 0 to 10 in the
paper. Posterize keeps 8 to 4 bits, as in the paper (the authors' code differs); shifts are relative to the side.
A policy is applied to uint8 images, before changes of colour and normalisation: to images in files (records.py) after
cropping, mirroring and resizing, to images in arrays after cropping and mirroring. Its random draws do not change those
of crop and mirroring.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from viaduct.data.operations import CIFAR_SHIFT, OPERATIONS, Operation, Pixels, shift_x, shift_y
from viaduct.errors import BadValue, UnknownName

Policy = Callable[[Pixels, np.random.Generator], Pixels]
PolicyStep = tuple[str, float, float]  # name, probability and magnitude of an operation

FULL_MAGNITUDE = 10.0  # the magnitude at which an operation reaches the end of its published range
DEFAULT_OPERATIONS, DEFAULT_MAGNITUDE = 2, 9  # what `randaugment` without numbers stands for
MAX_OPERATIONS, MAX_MAGNITUDE = 14, 30  # the largest N and M of randaugment-N-M

IMAGENET: tuple[tuple[PolicyStep, PolicyStep], ...] = (
    (("posterize", 0.4, 8), ("rotate", 0.6, 9)),
    (("solarize", 0.6, 5), ("auto contrast", 0.6, 5)),
    (("equalize", 0.8, 8), ("equalize", 0.6, 3)),
    (("posterize", 0.6, 7), ("posterize", 0.6, 6)),
    (("equalize", 0.4, 7), ("solarize", 0.2, 4)),
    (("equalize", 0.4, 4), ("rotate", 0.8, 8)),
    (("solarize", 0.6, 3), ("equalize", 0.6, 7)),
    (("posterize", 0.8, 5), ("equalize", 1.0, 2)),
    (("rotate", 0.2, 3), ("solarize", 0.6, 8)),
    (("equalize", 0.6, 8), ("posterize", 0.4, 6)),
    (("rotate", 0.8, 8), ("colour", 0.4, 0)),
    (("rotate", 0.4, 9), ("equalize", 0.6, 2)),
    (("equalize", 0.0, 7), ("equalize", 0.8, 8)),
    (("invert", 0.6, 4), ("equalize", 1.0, 8)),
    (("colour", 0.6, 4), ("contrast", 1.0, 8)),
    (("rotate", 0.8, 8), ("colour", 1.0, 2)),
    (("colour", 0.8, 8), ("solarize", 0.8, 7)),
    (("sharpness", 0.4, 7), ("invert", 0.6, 8)),
    (("shear x", 0.6, 5), ("equalize", 1.0, 9)),
    (("colour", 0.4, 0), ("equalize", 0.6, 3)),
    (("equalize", 0.4, 7), ("solarize", 0.2, 4)),
    (("solarize", 0.6, 5), ("auto contrast", 0.6, 5)),
    (("invert", 0.6, 4), ("equalize", 1.0, 8)),
    (("colour", 0.6, 4), ("contrast", 1.0, 8)),
    (("equalize", 0.8, 8), ("equalize", 0.6, 3)),
)
CIFAR10: tuple[tuple[PolicyStep, PolicyStep], ...] = (
    (("invert", 0.1, 7), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("shift x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear y", 0.5, 8), ("shift y", 0.7, 9)),
    (("auto contrast", 0.5, 8), ("equalize", 0.9, 2)),
    (("shear y", 0.2, 7), ("posterize", 0.3, 7)),
    (("colour", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 5), ("equalize", 0.5, 1)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("colour", 0.7, 7), ("shift x", 0.5, 8)),
    (("equalize", 0.3, 7), ("auto contrast", 0.4, 8)),
    (("shift y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("colour", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 3)),
    (("equalize", 0.2, 0), ("auto contrast", 0.6, 0)),
    (("equalize", 0.2, 8), ("equalize", 0.6, 4)),
    (("colour", 0.9, 9), ("equalize", 0.6, 6)),
    (("auto contrast", 0.8, 4), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("colour", 0.7, 0)),
    (("solarize", 0.4, 5), ("auto contrast", 0.9, 3)),
    (("shift y", 0.9, 9), ("shift y", 0.7, 9)),
    (("auto contrast", 0.9, 2), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 8), ("invert", 0.1, 3)),
    (("shift y", 0.7, 9), ("auto contrast", 0.9, 1)),
)
# RandAugment's fourteen operations. It draws an index into them, so their order is part of its results.
RANDAUGMENT = tuple(name for name in OPERATIONS if name != "invert")
CIFAR_OPERATIONS: dict[str, Operation] = {
    **OPERATIONS,
    "shift x": partial(shift_x, most=CIFAR_SHIFT),
    "shift y": partial(shift_y, most=CIFAR_SHIFT),
}
NAMES = ("imagenet", "cifar10", "randaugment")


@cache
def find_policy(name: str) -> Policy | None:
    """Return the policy of this name; None for the empty name."""
    if not name:
        return None
    if name == "imagenet":
        return partial(apply_one_pair, IMAGENET, OPERATIONS)
    if name == "cifar10":
        return partial(apply_one_pair, CIFAR10, CIFAR_OPERATIONS)
    match = re.fullmatch(r"randaugment(?:-(\d{1,3})-(\d{1,3}))?", name)
    if match is None:
        raise UnknownName("auto-augment policy", name, NAMES, "RandAugment's numbers are written randaugment-2-9.")
    count, magnitude = int(match[1] or DEFAULT_OPERATIONS), int(match[2] or DEFAULT_MAGNITUDE)
    if not (1 <= count <= MAX_OPERATIONS and magnitude <= MAX_MAGNITUDE):
        raise BadValue(
            f"{name}: RandAugment takes 1 to {MAX_OPERATIONS} operations at a magnitude of 0 to {MAX_MAGNITUDE}.",
            "ResNet-50 was published with randaugment-2-9.",
        )
    return partial(apply_several, count, magnitude / FULL_MAGNITUDE)


def apply_one_pair(
    pairs: Sequence[tuple[PolicyStep, PolicyStep]],
    operations: dict[str, Operation],
    image: Pixels,
    generator: np.random.Generator,
) -> Pixels:
    """Apply AutoAugment: one randomly drawn pair of operations, each with its probability."""
    draws = generator.random(5)  # the pair; then for each operation: whether it is applied, and its sign
    pair = pairs[int(draws[0] * len(pairs))]
    for (name, probability, magnitude), draw, sign_draw in zip(pair, draws[1::2], draws[2::2], strict=True):
        if draw < probability:
            image = operations[name](image, magnitude / FULL_MAGNITUDE, choose_sign(sign_draw))
    return image


def apply_several(count: int, strength: float, image: Pixels, generator: np.random.Generator) -> Pixels:
    """Apply RandAugment: `count` operations drawn from the fourteen, all of equal strength."""
    for choice, sign_draw in generator.random((count, 2)):
        image = OPERATIONS[RANDAUGMENT[int(choice * len(RANDAUGMENT))]](image, strength, choose_sign(sign_draw))
    return image


def choose_sign(draw: float) -> float:
    return 1.0 if draw < 0.5 else -1.0
