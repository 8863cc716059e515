"""The contact sheet: which pixels are where, and images that cannot be shown."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.record_files import message
from viaduct.data.example import encode_example
from viaduct.data.sheet import BLANK, CROPS, GAP, SIDE, arrange_views, fit_in_square, write_contact_sheet
from viaduct.data.tfrecord import RecordWriter
from viaduct.errors import BadData

BROKEN = encode_example({"image/encoded": b"no image", "image/class/label": 1, "image/class/text": "c1"})


def write_records(folder: Path, *messages: bytes) -> Path:
    with RecordWriter(folder / "train-00000-of-00001") as writer:
        for record in messages:
            writer.write(record)
    return folder


def draw(folder: Path, count: int) -> tuple[list[str], np.ndarray]:
    lines = write_contact_sheet(folder, folder / "sheet.png", "official", count, "train", seed=0)
    return lines, np.asarray(Image.open(io.BytesIO((folder / "sheet.png").read_bytes())))


def test_an_image_that_cannot_be_decoded_leaves_its_row_blank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, pixels = draw(write_records(tmp_path, message(0, 1), BROKEN, message(2, 1)), count=3)
    blank = [number for number, line in enumerate(lines) if line.startswith("cannot be shown")]
    assert len(blank) == 1
    for number in range(3):
        top = GAP + number * (SIDE + GAP)
        assert np.array_equal(pixels[top : top + SIDE, GAP : GAP + SIDE], BLANK) == (number in blank)
    assert "warning: " in capsys.readouterr().err


def test_without_one_image_that_can_be_decoded_there_is_no_sheet(tmp_path: Path) -> None:
    write_records(tmp_path, BROKEN, BROKEN)
    with pytest.raises(BadData, match="record"):
        draw(tmp_path, count=2)
    assert not (tmp_path / "sheet.png").exists()


def test_a_row_is_the_original_and_the_views_of_evaluation_and_training(tmp_path: Path) -> None:
    lines, pixels = draw(write_records(tmp_path, message(200, 1)), count=5)
    assert [line.split(",")[:2] for line in lines] == [["label 1", " 4x4"]]
    assert pixels.shape == (SIDE + 2 * GAP, (2 + CROPS) * (SIDE + GAP) + 2 * GAP, 3)
    assert (pixels[GAP : GAP + SIDE, GAP : GAP + SIDE] == [200, 0, 0]).all()


def test_an_image_keeps_its_proportions_within_the_square() -> None:
    square = fit_in_square(np.zeros((10, 40, 3), np.uint8))
    rows, columns = np.flatnonzero((square == 0).all((1, 2))), np.flatnonzero((square == 0).any((0, 2)))
    assert (len(rows), len(columns)) == (SIDE // 4, SIDE)
    assert rows[0] == SIDE - 1 - rows[-1]


def test_views_are_placed_in_reading_order_on_white() -> None:
    views = [[np.full((SIDE, SIDE, 3), 10 * row + column, np.uint8) for column in range(2)] for row in range(2)]
    sheet = arrange_views(views)
    centres = [GAP + SIDE // 2, 3 * GAP + SIDE + SIDE // 2], [GAP + SIDE // 2, 2 * GAP + SIDE + SIDE // 2]
    assert [[sheet[down, across, 0] for across in centres[0]] for down in centres[1]] == [[0, 1], [10, 11]]
    assert (sheet[:, GAP + SIDE : 3 * GAP + SIDE] == 255).all()
