"""Pictures side by side with what was said of each, the mistaken ones framed and named as such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.png import Pixels, check_pixels, data_uri, encode_png

SMALL = 128
"""Below this many pixels a side, a picture is enlarged with its pixels left square."""


@dataclass(frozen=True, eq=False)
class Picture:
    """Pixels of shape (height, width, 3), uint8; a marked one gets a red frame and the grid's word."""

    pixels: Pixels
    caption: str = ""
    marked: bool = False

    def __post_init__(self) -> None:
        check_pixels(self.pixels, channels=(3, 4))


@dataclass(frozen=True)
class ImageGrid:
    """Pictures in reading order; `mark` is the word on the marked ones, for those who do not see red."""

    template: ClassVar[str] = "image_grid.html"

    pictures: Sequence[Picture]
    caption: str = ""
    mark: str = "wrong"

    def drawing(self) -> GridDrawing:
        return GridDrawing(self.caption, self.mark, [draw_picture(picture) for picture in self.pictures])


@dataclass(frozen=True)
class PictureDrawing:
    source: str
    caption: str
    marked: bool
    width: int
    height: int

    @property
    def small(self) -> bool:
        return max(self.width, self.height) < SMALL


@dataclass(frozen=True)
class GridDrawing:
    """Images as the template needs them."""

    caption: str
    mark: str
    pictures: Sequence[PictureDrawing]


def draw_picture(picture: Picture) -> PictureDrawing:
    height, width, _ = picture.pixels.shape
    return PictureDrawing(data_uri(encode_png(picture.pixels)), picture.caption, picture.marked, width, height)
