"""Stateless random draws: the order of the images and every draw are pure functions of (seed, epoch, position).

They do not depend on the batch size, the number of ranks or the step at which a run was resumed. Plans (the draws of
an epoch for all its images) use Philox's raw 64-bit words, which NumPy keeps stable. The methods of
`np.random.Generator`, used for single records (`make_image_generator`), may change between NumPy releases.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISeedSequence

from viaduct.errors import BadValue

WORD_MASK = (1 << 64) - 1  # `x & WORD_MASK` makes an unsigned 64-bit word of a negative seed or epoch


class Purpose(IntEnum):
    """Purpose of a random stream. All measured results depend on these numbers: add numbers, never change them."""

    ORDER = 1
    AUGMENTATION = 2
    TRAIN_SCENES = 3  # scenes and noise: the data source `shapes`
    TRAIN_NOISE = 4
    VALIDATION_SCENES = 5
    VALIDATION_NOISE = 6
    SAMPLE = 7  # all draws for a single image (`make_image_generator`)
    MIXUP = 8
    BALANCE = 9  # which images an epoch uses with balanced classes
    CUTMIX = 10


def make_stream(seed: int, epoch: int, purpose: Purpose) -> np.random.Philox:
    """Return the stream of random 64-bit words for one purpose of one epoch; streams never overlap."""
    return np.random.Philox(
        key=np.array([seed & WORD_MASK, epoch & WORD_MASK], dtype=np.uint64),
        counter=np.array([0, 0, 0, purpose], dtype=np.uint64),
    )


def draw_words(seed: int, epoch: int, purpose: Purpose, count: int) -> npt.NDArray[np.uint64]:
    """Return the first `count` 64-bit words of a stream."""
    return np.asarray(make_stream(seed, epoch, purpose).random_raw(count), dtype=np.uint64)


def draw_permutation(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """Return the order in which an epoch visits `count` images."""
    return np.argsort(draw_words(seed, epoch, Purpose.ORDER, count), kind="stable").astype(np.int64)


def draw_uniforms(
    seed: int, epoch: int, count: int, draws: int, purpose: Purpose = Purpose.AUGMENTATION
) -> npt.NDArray[np.float32]:
    """Return `count` x `draws` numbers in [0, 1): a row for each position of the epoch, a column for each draw.

    They have 24 bits, as many as float32 has, so that none is rounded to 1 and `floor(u * n)` is always below n.
    """
    bits = draw_words(seed, epoch, purpose, count * draws) >> np.uint64(40)
    return (bits.astype(np.float32) * np.float32(2.0**-24)).reshape(count, draws)


def make_image_generator(seed: int, epoch: int, position: int) -> np.random.Generator:
    """Return a generator for the random draws, any number, of the image at one position of an epoch."""
    counter = np.array([0, position & WORD_MASK, 0, Purpose.SAMPLE], dtype=np.uint64)
    key = PhiloxKey(np.array([seed & WORD_MASK, epoch & WORD_MASK], dtype=np.uint64))
    return np.random.Generator(np.random.Philox(key, counter=counter))  # type: ignore[arg-type]  # takes any ISeedSequence


def list_rank_positions(
    global_batch: int, rank: int, ranks: int, parts: int = 1, keeps_mixup_pairs: bool = False
) -> npt.NDArray[np.int64]:
    """Return the sorted positions of a global batch that a rank processes: an equal share of each part.

    `parts` is the number of gradient accumulation steps, which divides the batch (recipes check it). If a part does not
    divide evenly among the ranks, the first ranks get one image more. With `keeps_mixup_pairs`, a rank that has
    position i of a part also has position i counted from the part's end, because mixup mixes these two images. Each
    part must then be divisible by twice the number of ranks.
    """
    check_ranks(global_batch, rank, ranks, parts, keeps_mixup_pairs)
    size = global_batch // parts
    if keeps_mixup_pairs:
        front = np.arange(rank * size // (2 * ranks), (rank + 1) * size // (2 * ranks))
        within = np.concatenate([front, size - 1 - front[::-1]])  # positions within a part
    else:
        share, remainder = divmod(size, ranks)
        first = rank * share + min(rank, remainder)
        within = np.arange(first, first + share + (rank < remainder))
    positions: npt.NDArray[np.int64] = (np.arange(parts)[:, None] * size + within).reshape(-1)
    return positions


def check_ranks(global_batch: int, rank: int, ranks: int, parts: int, keeps_mixup_pairs: bool) -> None:
    """Raise `BadValue` if the rank is out of range or the batch cannot be divided among the ranks."""
    if ranks < 1 or not 0 <= rank < ranks:
        raise BadValue(f"rank must be from 0 to ranks - 1, got rank {rank} of {ranks}.")
    size = global_batch // parts
    in_parts = f" in {parts} parts" if parts > 1 else ""
    if size < ranks:
        raise BadValue(
            f"a global batch of {global_batch}{in_parts} leaves some of {ranks} ranks without an image.",
            f"Make it at least {ranks * parts}, or use fewer ranks.",
        )
    if keeps_mixup_pairs and size % (2 * ranks):
        step = 2 * ranks * parts
        raise BadValue(
            f"with mixup a global batch of {global_batch}{in_parts} cannot be divided among {ranks} ranks: images "
            "are mixed in pairs.",
            f"The next possible size is {global_batch + -global_batch % step}.",
        )


class PhiloxKey(ISeedSequence):
    """Key of a Philox stream, used unchanged; faster than `Philox(key=...)`, which also reads the system's entropy."""

    def __init__(self, key: npt.NDArray[np.uint64]) -> None:
        self.key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return self.key
