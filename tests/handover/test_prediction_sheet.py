"""`viaduct predict --sheet`: images with their labels in one PNG, which is written over no photo."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from PIL import Image, ImageFont

from forked_viaduct import viaduct
from viaduct.data.png import encode_png
from viaduct.errors import BadData
from viaduct.handover import prediction_sheet
from viaduct.handover.image_files import ImageFile
from viaduct.handover.predicting import Prediction, Reader, Result
from viaduct.handover.prediction_sheet import (
    BAR_COLOUR,
    BAR_GROUND,
    MARGIN,
    MAX_IMAGES,
    SIDE,
    SheetOutput,
    choose_text,
    draw_sheet,
    draw_thumbnail,
    shorten_text,
)


def make_result(colour: int, probability: float = 0.5, name: str = "photo.jpg") -> Result:
    thumbnail = np.full((SIDE, SIDE, 3), colour, np.uint8)
    return Result(name, (Prediction("tabby cat", 281, probability),), thumbnail=thumbnail)


def test_the_sheet_holds_images_and_is_drawn_again_without_itself(shapes_run: Path, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(encode_png(np.full((20, 20, 3), 100 * number, np.uint8)))
    words = ("predict", shapes_run, ".", "--top", "1", "--sheet", "sheet.png", "--device", "cpu")
    first = viaduct(*words, cwd=tmp_path)
    assert (first.returncode, first.stderr) == (0, "wrote sheet.png\n")
    sheet = (tmp_path / "sheet.png").read_bytes()
    pixels = np.asarray(Image.open(io.BytesIO(sheet)))
    assert pixels[MARGIN + SIDE // 2, MARGIN + SIDE // 2].tolist() == [0, 0, 0]
    second = viaduct(*words, cwd=tmp_path)
    assert second.stdout == first.stdout
    assert (tmp_path / "sheet.png").read_bytes() == sheet


def test_a_photo_is_not_overwritten(shapes_run: Path, tmp_path: Path) -> None:
    photo = encode_png(np.zeros((20, 20, 3), np.uint8))
    (tmp_path / "photo.png").write_bytes(photo)
    done = viaduct("predict", shapes_run, "photo.png", "--sheet", "photo.png", cwd=tmp_path)
    assert done.returncode == 2
    assert "is not a contact sheet; it stays as it is" in done.stderr
    assert (tmp_path / "photo.png").read_bytes() == photo


def test_the_bar_is_as_long_as_the_probability() -> None:
    row = np.asarray(draw_sheet([make_result(0, 0.25)]))[MARGIN + SIDE + 1, MARGIN : MARGIN + SIDE]
    assert (row == BAR_COLOUR).all(axis=1).sum() == SIDE // 4
    assert (row == BAR_GROUND).all(axis=1).sum() == SIDE - SIDE // 4


def test_only_the_first_images_are_shown_and_the_rest_is_reported(tmp_path: Path) -> None:
    sheet = SheetOutput(tmp_path / "sheet.png")
    sheet.write([make_result(number % 256) for number in range(MAX_IMAGES + 5)])
    assert len(sheet.shown) == MAX_IMAGES
    assert sheet.describe().endswith(f"the first {MAX_IMAGES} of {MAX_IMAGES + 5} images")


@pytest.mark.parametrize("size", [(1, 1), (900, 30), (30, 900), (700, 500)])
def test_a_thumbnail_keeps_proportions_within_the_square(size: tuple[int, int]) -> None:
    pixels = np.zeros((*size, 3), np.uint8)
    for data in (encode_png(pixels), simplejpeg.encode_jpeg(pixels, colorspace="RGB")):
        height, width = draw_thumbnail(data).shape[:2]
        assert max(height, width) == SIDE
        assert abs(height * size[1] - width * size[0]) <= max(size)


def test_an_image_without_a_thumbnail_is_predicted(tmp_path: Path) -> None:
    def draw(data: bytes) -> np.ndarray:
        raise BadData("damaged below the crop.")

    (tmp_path / "a.png").write_bytes(encode_png(np.zeros((4, 4, 3), np.uint8)))
    reader = Reader(lambda data: np.zeros((4, 4, 3), np.float32), draw, 5)
    prepared = reader(ImageFile(str(tmp_path / "a.png"), is_named=True))
    assert prepared.inputs is not None
    assert (prepared.thumbnail, prepared.error) == (None, "")


def test_a_label_that_no_font_can_show_is_the_number_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_sheet, "EAST_ASIAN_FONTS", ())
    assert choose_text("tabby cat", 15, fallback="class 281")[0] == "tabby cat"
    assert choose_text("虎斑猫", 15, fallback="class 281")[0] == "class 281"
    chinese, plain = (replace(make_result(0).predictions[0], label=label) for label in ("虎斑猫", "class 281"))
    sheets = [draw_sheet([replace(make_result(0), predictions=(best,))]) for best in (chinese, plain)]
    assert sheets[0].tobytes() == sheets[1].tobytes()


def test_long_texts_are_cut_to_the_width() -> None:
    font = ImageFont.load_default(12)
    assert shorten_text("cat", 100, font) == "cat"
    for middle in (False, True):
        cut = shorten_text("holiday-2026-image-000123.jpg" * 3, 100, font, middle=middle)
        assert font.getlength(cut) <= 100
        assert "…" in cut
        assert cut.endswith(".jpg") is middle
