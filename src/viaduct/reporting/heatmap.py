"""Confusion matrix: rows are the true classes, columns the predicted ones, colour is the share of a row.

Up to twenty classes it is a table with the counts in its cells. Beyond that it is an image with one pixel for each cell
(a table of 1000 classes would have a million cells), a read-out under the pointer and a list of the largest confusions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from viaduct.data.png import Bytes as Pixels
from viaduct.data.png import encode_png
from viaduct.reporting.axis import Floats
from viaduct.reporting.figures import format_count, format_share
from viaduct.reporting.links import data_uri

MAX_TABLE_CLASSES = 20
MAX_LISTED_CONFUSIONS = 10
DEEP = 0.7  # lowest tint at which the number in a cell is white
BLUE = (52, 124, 200)  # colour of the image, visible on white and on near-black; its opacity is the value


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
        sums = counts.sum(axis=1, keepdims=True)
        shares = np.divide(counts, sums, out=np.zeros_like(counts), where=sums > 0)
        if len(self.labels) <= MAX_TABLE_CLASSES:
            return HeatmapDrawing(rows=draw_rows(self.labels, counts, shares))
        return HeatmapDrawing(
            image=data_uri(encode_png(draw_image(shares))),
            confusions=list_confusions(self.labels, counts, shares),
            data=make_readout_data(self.labels, counts),
        )


@dataclass(frozen=True)
class HeatCell:
    """One cell of the table; `tint` is the opacity of its colour, `sentence` its tooltip."""

    count: str
    tint: float
    sentence: str
    diagonal: bool

    @property
    def css_classes(self) -> str:
        return " ".join(["diagonal"] * self.diagonal + ["deep"] * (self.tint >= DEEP))


@dataclass(frozen=True)
class HeatmapDrawing:
    """Heatmap as the template needs it: `rows` of the table, or an image with its data for many classes."""

    rows: Sequence[Sequence[HeatCell]] = ()
    image: str = ""
    confusions: Sequence[str] = ()
    data: dict[str, object] | None = None


def draw_rows(labels: Sequence[str], counts: Floats, shares: Floats) -> list[list[HeatCell]]:
    """Return the cells of the table, row by row."""
    tints = compute_tints(shares)
    return [
        [
            HeatCell(
                count=format_count(counts[true, predicted]),
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
    outcome = "recognised" if true == predicted else f"taken for {labels[predicted]}"
    count, total = format_count(counts[true, predicted]), format_count(counts[true].sum())
    return f"{labels[true]} {outcome}: {count} of {total} ({format_share(shares[true, predicted])})"


def compute_tints(shares: Floats) -> Floats:
    """Return the opacity of each cell: the square root of its share, which makes rare confusions visible."""
    return np.sqrt(shares)


def draw_image(shares: Floats) -> Pixels:
    """Return an RGBA image with one blue pixel for each cell."""
    pixels = np.empty((*shares.shape, 4), np.uint8)
    pixels[..., :3] = BLUE
    pixels[..., 3] = np.round(255 * compute_tints(shares))
    return pixels


def list_confusions(labels: Sequence[str], counts: Floats, shares: Floats) -> list[str]:
    confusions = counts * (1 - np.eye(len(labels)))
    order = np.argsort(-confusions, axis=None, kind="stable")[:MAX_LISTED_CONFUSIONS]
    cells = [(int(flat) // len(labels), int(flat) % len(labels)) for flat in order]
    return [describe_cell(labels, counts, shares, *cell) for cell in cells if confusions[cell] > 0]


def make_readout_data(labels: Sequence[str], counts: Floats) -> dict[str, object]:
    """Return the data of page.js's read-out: row sums, and cells that are not zero by `row * classes + column`."""
    cells = {int(flat): int(counts.flat[flat]) for flat in np.flatnonzero(counts)}
    return {"labels": list(labels), "sums": counts.sum(axis=1).astype(int).tolist(), "cells": cells}
