"""Contact sheet of records or image files: each image beside its evaluation view and three training crops."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from viaduct.data import jpeg
from viaduct.data.auto_augment import Policy, find_policy
from viaduct.data.folder import open_split
from viaduct.data.geometry import resample, stretch_axis
from viaduct.data.notices import print_first_notices
from viaduct.data.order import draw_permutation, make_image_generator
from viaduct.data.output_files import check_output, write_result
from viaduct.data.png import SIGNATURE, encode_png
from viaduct.data.preprocess import prepare_image, round_to_uint8
from viaduct.data.records import Folder
from viaduct.data.source import Pixels
from viaduct.data.tfrecord import BadRecord
from viaduct.errors import BadData

SIDE, GAP = 160, 8  # pixels
CROPS = 3  # training crops in a row
BLANK: Pixels = np.full((SIDE, SIDE, 3), 224, np.uint8)


def write_contact_sheet(
    records: Path, out: Path, reference: str, count: int, split: str, seed: int, auto_augment: str = ""
) -> list[str]:
    """Write the sheet of `count` random images of a split to `out`; return a line of text for each image.

    `reference` names the preprocessing (references/). An image that cannot be prepared is reported on stderr and has a
    blank row; if all fail, the first error is raised.
    """
    check_output(out, ".png", SIGNATURE, "a PNG")
    policy = find_policy(auto_augment)
    folder = open_split(records, split)
    rows, lines, errors = list[list[Pixels]](), list[str](), list[BadData]()
    for number in draw_permutation(seed, 0, len(folder))[:count].tolist():
        try:
            row, line = build_row(folder, number, reference, seed, policy)
        except BadData as error:
            errors.append(error if isinstance(error, BadRecord) else folder.make_error(number, error.message))
            row, line = [BLANK] * (2 + CROPS), f"cannot be shown, {folder.describe_location(number)}"
        rows.append(row)
        lines.append(line)
    if len(errors) == len(rows):
        raise errors[0]
    print_first_notices([f"warning: {error.message}" for error in errors], "more cannot be shown either")
    write_result(out, encode_png(arrange_views(rows)))
    return lines


def build_row(
    folder: Folder, number: int, reference: str, seed: int, policy: Policy | None
) -> tuple[list[Pixels], str]:
    """Return an image and its views, for one row of the sheet, and a line of text about the image."""
    fields = folder.read_fields(number)
    image = jpeg.decode(fields.encoded)
    height, width = image.shape[:2]
    views = [prepare_image(reference, fields.encoded, size=SIDE)]
    for crop in range(CROPS):
        generator = make_image_generator(seed, crop, number)
        views.append(prepare_image(reference, fields.encoded, True, generator, fields.boxes, SIDE, policy=policy))
    label = f"{fields.label} {folder.names.get(fields.label, '')}".strip()
    line = f"label {label}, {width}x{height}, {folder.describe_location(number)}"
    return [fit_in_square(image), *map(round_to_uint8, views)], line


def fit_in_square(image: Pixels) -> Pixels:
    """Scale an image to fit in a white square."""
    height, width = image.shape[:2]
    scale = SIDE / max(height, width)
    inner = max(1, round(height * scale)), max(1, round(width * scale))
    small = round_to_uint8(resample(image, stretch_axis(0, height, inner[0]), stretch_axis(0, width, inner[1])))
    square = np.full((SIDE, SIDE, 3), 255, np.uint8)
    top, left = (SIDE - inner[0]) // 2, (SIDE - inner[1]) // 2
    square[top : top + inner[0], left : left + inner[1]] = small
    return square


def arrange_views(rows: list[list[Pixels]]) -> Pixels:
    """Return the sheet: a row of views for each image, on white."""
    step = SIDE + GAP
    sheet = np.full((len(rows) * step + GAP, len(rows[0]) * step + 2 * GAP, 3), 255, np.uint8)
    for down, row in enumerate(rows):
        for across, view in enumerate(row):
            top = GAP + down * step
            left = GAP + across * step + (GAP if across else 0)  # a wider gap after the original
            sheet[top : top + SIDE, left : left + SIDE] = view
    return sheet
