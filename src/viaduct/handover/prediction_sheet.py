"""Contact sheet of predictions: each image with its most probable class and percent below.

    sheet = SheetOutput(Path("sheet.png"))
    sheet.write(results)                     adds the images of a batch
    sheet.finish(summary={})                 writes the PNG with the first images; a sheet does not show the summary

`SheetOutput` has the methods of other outputs (prediction_output.py).
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

from viaduct.data import jpeg
from viaduct.data.output_files import write_result
from viaduct.handover.decoding import decode_image, read_size
from viaduct.handover.predicting import Result, Thumbnail
from viaduct.handover.prediction_output import Output
from viaduct.terminal import escape_controls

MAX_IMAGES = 96
MAX_COLUMNS = 8
SIDE, GAP, MARGIN = 184, 20, 24  # pixels: side of a thumbnail, gap between two, margin of the sheet
BAR, CAPTION = 5, 46  # heights of the percent bar and of the text
STAMP = "viaduct predict"  # metadata by which `is_sheet` recognises a sheet
PAPER, FRAME, INK, FAINT = (255, 255, 255), (240, 241, 243), (24, 26, 31), (110, 116, 128)
BAR_COLOUR, BAR_GROUND = (38, 110, 206), (222, 226, 232)
ELLIPSIS = "…"
LABEL_SIZE, NAME_SIZE = 15, 12  # of fonts
FONTS = ("NotoSans-Regular.ttf", "DejaVuSans.ttf")
EAST_ASIAN_FONTS = (
    *("NotoSansCJK-Regular.ttc", "NotoSansSC-Regular.otf", "SourceHanSansSC-Regular.otf", "wqy-microhei.ttc"),
    *("wqy-zenhei.ttc", "DroidSansFallbackFull.ttf", "simhei.ttf", "msyh.ttc", "PingFang.ttc"),
)


class SheetOutput(Output):
    """Collects the first images of a prediction and writes them as one PNG."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.shown: list[Result] = []
        self.images = 0

    def write(self, results: Sequence[Result]) -> None:
        for result in results:
            self.images += bool(result.predictions)
            if result.predictions and result.thumbnail is not None and len(self.shown) < MAX_IMAGES:
                self.shown.append(result)

    def finish(self, summary: dict[str, Any]) -> None:
        if self.shown:
            information = PngImagePlugin.PngInfo()
            information.add_text("Software", STAMP)
            encoded = io.BytesIO()
            draw_sheet(self.shown).save(encoded, "PNG", pnginfo=information)
            write_result(self.file, encoded.getvalue())

    def describe(self) -> str:
        """Return a line about the written sheet."""
        if self.images > len(self.shown):
            return f"wrote {self.file}: the first {len(self.shown):,} of {self.images:,} images"
        return f"wrote {self.file}"


def is_sheet(file: Path) -> bool:
    """Return True if the first bytes of a file contain the stamp of a sheet."""
    with open(file, "rb") as stream:
        return STAMP.encode() in stream.read(200)


def draw_thumbnail(data: bytes) -> Thumbnail:
    """Decode an image and scale it to fit in a square of SIDE pixels; called by the threads that decode."""
    if jpeg.is_jpeg(data):
        times_smaller = max(1, min(read_size(data)) // SIDE)
        shrink = next(factor for factor in (8, 4, 2, 1) if factor <= times_smaller)
        pixels = jpeg.decode(data, shrink=shrink)  # type: ignore[arg-type]
    else:
        pixels = decode_image(data)
    image = Image.fromarray(pixels)
    scale = SIDE / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    method = Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.BICUBIC
    return np.asarray(image.resize((width, height), method, reducing_gap=3.0))


def draw_sheet(results: Sequence[Result]) -> Image.Image:
    """Draw the sheet: rows of images."""
    columns = min(MAX_COLUMNS, len(results), max(3, math.ceil(math.sqrt(1.4 * len(results)))))
    rows = math.ceil(len(results) / columns)
    step_across, step_down = SIDE + GAP, SIDE + BAR + CAPTION + GAP
    size = (2 * MARGIN + columns * step_across - GAP, 2 * MARGIN + rows * step_down - GAP)
    sheet = Image.new("RGB", size, PAPER)
    for number, result in enumerate(results):
        down, across = divmod(number, columns)
        draw_tile(sheet, result, MARGIN + across * step_across, MARGIN + down * step_down)
    return sheet


def draw_tile(sheet: Image.Image, result: Result, left: int, top: int) -> None:
    """Draw an image, a bar for the percent, the label with the percent, and the file's name."""
    draw = ImageDraw.Draw(sheet)
    assert result.thumbnail is not None
    draw.rectangle((left, top, left + SIDE - 1, top + SIDE - 1), fill=FRAME)
    height, width = result.thumbnail.shape[:2]
    sheet.paste(Image.fromarray(result.thumbnail), (left + (SIDE - width) // 2, top + (SIDE - height) // 2))
    best = result.predictions[0]
    bar = top + SIDE
    draw.rectangle((left, bar, left + SIDE - 1, bar + BAR - 1), fill=BAR_GROUND)
    if filled := round(SIDE * best.probability):
        draw.rectangle((left, bar, left + filled - 1, bar + BAR - 1), fill=BAR_COLOUR)
    label, label_font = choose_text(best.label, LABEL_SIZE, fallback=f"class {best.index}")
    percent, percent_font = choose_text(f"{100 * best.probability:.1f} %", LABEL_SIZE)
    right = draw.textlength(percent, font=percent_font)
    shown = shorten_text(label, SIDE - right - 10, label_font)
    draw.text((left, bar + BAR + 22), shown, INK, font=label_font, anchor="ls")
    draw.text((left + SIDE, bar + BAR + 22), percent, FAINT, font=percent_font, anchor="rs")
    base = escape_controls(os.path.basename(result.file))
    name, name_font = choose_text(base, NAME_SIZE, fallback=base.encode("ascii", "replace").decode())
    shown = shorten_text(name, SIDE, name_font, middle=True)
    draw.text((left, bar + BAR + 40), shown, FAINT, font=name_font, anchor="ls")


def choose_text(text: str, size: int, fallback: str = "") -> tuple[str, Any]:
    """Return a text and a font that can show it; if no such font is installed, the text `fallback` and its font."""
    font = find_font(text, size)
    return (text, font) if font is not None else (fallback, find_font(fallback, size))


def shorten_text(text: str, width: float, font: Any, *, middle: bool = False) -> str:
    """Shorten a text to a width in pixels, at its end or in its middle."""
    if font.getlength(text) <= width:
        return text
    for letters in range(len(text) - 1, 0, -1):
        tail = letters // 2 if middle else 0
        shorter = text[: letters - tail].rstrip() + ELLIPSIS + (text[-tail:] if tail else "")
        if font.getlength(shorter) <= width:
            return shorter
    return ELLIPSIS


def find_font(text: str, size: int) -> Any | None:
    """Return a font for a text; None for East Asian text if no such font is installed."""
    if any(0x2E80 <= ord(character) < 0xFB00 or ord(character) >= 0x20000 for character in text):
        return load_font(EAST_ASIAN_FONTS, size)
    return load_font(FONTS, size) or ImageFont.load_default(size)


@cache
def load_font(names: tuple[str, ...], size: int) -> Any | None:
    """Return the first of these fonts that is installed."""
    for name in names:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return None
