"""The confusion matrix: rows are the truth, columns what was predicted, colour the share of its row.

Up to twenty classes it is a table with its numbers in the cells. Beyond that it is an image with one pixel
a cell (a table of 1000 classes would be a million cells), a read-out under the pointer, and the largest
mistakes in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from viaduct.reporting.axis import Floats
from viaduct.reporting.figures import write_count, write_share
from viaduct.reporting.png import Pixels, data_uri, encode_png

MOST_IN_CELLS = 20
MOST_IN_WORDS = 10
DEEP = 0.7
INK = (52, 124, 200)
"""The image's blue, which shows on white and on near-black; its opacity carries the value."""


@dataclass(frozen=True)
class Heatmap:
    """Counts of true class (row) against predicted class (column), both in the order of the labels."""

    template: ClassVar[str] = "heatmap.html"

    title: str
    labels: Sequence[str]
    counts: Sequence[Sequence[int]] | npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        shape = np.shape(self.counts)
        if len(self.labels) and shape != (len(self.labels), len(self.labels)):
            raise ValueError(f"{len(self.labels)} labels need a square of counts of that side, not {shape}.")

    def drawing(self) -> HeatmapDrawing:
        counts = np.asarray(self.counts, dtype=np.float64).reshape(len(self.labels), len(self.labels))
        shares = row_shares(counts)
        small = len(self.labels) <= MOST_IN_CELLS
        return HeatmapDrawing(
            title=self.title,
            labels=self.labels,
            rows=draw_rows(self.labels, counts, shares) if small else [],
            image="" if small else data_uri(encode_png(paint(shares))),
            mistakes=[] if small else largest_mistakes(self.labels, counts, shares),
            data=None if small else interaction_data(self.labels, counts),
        )


@dataclass(frozen=True)
class HeatCell:
    """One drawn cell."""

    count: str
    tint: float
    sentence: str
    diagonal: bool

    @property
    def kind(self) -> str:
        """Classes of the style sheet; on deep ground the number is written white."""
        return " ".join(["diagonal"] * self.diagonal + ["deep"] * (self.tint >= DEEP))


@dataclass(frozen=True)
class HeatmapDrawing:
    """Heatmap as the template needs it."""

    title: str
    labels: Sequence[str]
    rows: Sequence[Sequence[HeatCell]]
    image: str
    mistakes: Sequence[str]
    data: dict[str, object] | None


def row_shares(counts: Floats) -> Floats:
    """Each row over its sum; a class that never occurred has a row of zeros."""
    sums = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, sums, out=np.zeros_like(counts), where=sums > 0)


def draw_rows(labels: Sequence[str], counts: Floats, shares: Floats) -> list[list[HeatCell]]:
    tints = tint(shares)
    return [
        [
            HeatCell(
                count=write_count(counts[true, predicted]),
                tint=round(float(tints[true, predicted]), 3),
                sentence=describe_cell(labels, counts, shares, true, predicted),
                diagonal=true == predicted,
            )
            for predicted in range(len(labels))
        ]
        for true in range(len(labels))
    ]


def describe_cell(labels: Sequence[str], counts: Floats, shares: Floats, true: int, predicted: int) -> str:
    """Return `cat taken for dog: 34 of 1,000 (3.4 %)`; page.js shows the same under the pointer."""
    what = "recognised" if true == predicted else f"taken for {labels[predicted]}"
    count, total = write_count(counts[true, predicted]), write_count(counts[true].sum())
    return f"{labels[true]} {what}: {count} of {total} ({write_share(shares[true, predicted])})"


def tint(shares: Floats) -> Floats:
    """How much ink a share gets: its root, which lifts rare mistakes out of the background."""
    return np.sqrt(shares)


def paint(shares: Floats) -> Pixels:
    """One pixel a cell, always the same blue and more or less of it."""
    pixels = np.empty((*shares.shape, 4), np.uint8)
    pixels[..., :3] = INK
    pixels[..., 3] = np.round(255 * tint(shares))
    return pixels


def largest_mistakes(labels: Sequence[str], counts: Floats, shares: Floats) -> list[str]:
    """Return the most frequent confusions."""
    mistakes = counts * (1 - np.eye(len(labels)))
    order = np.argsort(-mistakes, axis=None, kind="stable")[:MOST_IN_WORDS]
    pairs = [(int(flat) // len(labels), int(flat) % len(labels)) for flat in order]
    return [describe_cell(labels, counts, shares, *pair) for pair in pairs if mistakes[pair] > 0]


def interaction_data(labels: Sequence[str], counts: Floats) -> dict[str, object]:
    """Only the cells that are not zero, by `row * classes + column`: most of a large matrix is empty."""
    cells = {int(flat): int(counts.flat[flat]) for flat in np.flatnonzero(counts)}
    return {"labels": list(labels), "sums": counts.sum(axis=1).astype(int).tolist(), "cells": cells}
