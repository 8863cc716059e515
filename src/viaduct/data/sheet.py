"""A contact sheet of records: each picture beside what the network will see of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from viaduct.data import jpeg
from viaduct.data.atomic import replacing
from viaduct.data.auto_augment import policy_named
from viaduct.data.geometry import resample, stretched
from viaduct.data.index import RecordFolder
from viaduct.data.order import permutation, sample_generator
from viaduct.data.png_encoder import encode_png
from viaduct.data.preprocess import as_bytes, picture, see
from viaduct.errors import BadData

Pixels = npt.NDArray[np.uint8]
SIDE, GAP, CROPS = 160, 8, 3


def contact_sheet(
    records: Path, out: Path, name: str, count: int, split: str, seed: int, auto_augment: str = ""
) -> list[str]:
    """Write the sheet; returns a line for each of its rows: the original, evaluation's view, three of training's."""
    policy = policy_named(auto_augment)
    folder = RecordFolder(records, split)
    chosen = permutation(seed, 0, len(folder))[:count].tolist()
    rows, lines = [], []
    for number in chosen:
        fields = folder.fields(number)
        try:
            whole = jpeg.decode(fields.encoded)
        except BadData as error:
            raise folder.blame(number, error.what) from None
        height, width = whole.shape[:2]
        views = [picture(name, fields.encoded, size=SIDE)]
        for crop in range(CROPS):
            chance = sample_generator(seed, crop, number)
            views.append(see(name, fields.encoded, True, chance, fields.boxes, SIDE, policy=policy))
        rows.append([fitted(whole), *map(as_bytes, views)])
        place = folder.place(number)
        label = f"{fields.label} {folder.names.get(fields.label, '')}".strip()
        lines.append(f"label {label}, {width}x{height}, {place.path.name} record {place.record}")
    try:
        with replacing(out) as file:
            file.write(encode_png(arranged(rows)))
    except OSError as error:
        raise BadData(f"{out} cannot be written: {error.strerror}.") from None
    return lines


def fitted(whole: Pixels) -> Pixels:
    """The whole picture within a square, its sides in proportion."""
    height, width = whole.shape[:2]
    scale = SIDE / max(height, width)
    inner = max(1, round(height * scale)), max(1, round(width * scale))
    small = as_bytes(resample(whole, stretched(0, height, inner[0]), stretched(0, width, inner[1])))
    square = np.full((SIDE, SIDE, 3), 255, np.uint8)
    top, left = (SIDE - inner[0]) // 2, (SIDE - inner[1]) // 2
    square[top : top + inner[0], left : left + inner[1]] = small
    return square


def arranged(rows: list[list[Pixels]]) -> Pixels:
    step = SIDE + GAP
    sheet = np.full((len(rows) * step + GAP, len(rows[0]) * step + 2 * GAP, 3), 255, np.uint8)
    for down, row in enumerate(rows):
        for across, view in enumerate(row):
            top = GAP + down * step
            left = GAP + across * step + (GAP if across else 0)  # a wider gap after the original
            sheet[top : top + SIDE, left : left + SIDE] = view
    return sheet
