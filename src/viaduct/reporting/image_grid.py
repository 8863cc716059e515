"""Images side by side with what was said of each, the mistaken ones framed and named as such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.png import Pixels, check_pixels, data_uri, encode_png

SMALL = 128
"""Below this many pixels a side, an image is enlarged with its pixels left square."""


@dataclass(frozen=True, eq=False)
class GridImage:
    """Pixels of shape (height, width, 3), uint8; a marked one gets a red frame and the grid's word."""

    pixels: Pixels
    caption: str = ""
    marked: bool = False

    def __post_init__(self) -> None:
        check_pixels(self.pixels, channels=(3, 4))


@dataclass(frozen=True)
class ImageGrid:
    """Images in reading order; `mark` is the word on the marked ones, for those who do not see red."""

    template: ClassVar[str] = "image_grid.html"

    images: Sequence[GridImage]
    caption: str = ""
    mark: str = "wrong"

    def drawing(self) -> GridDrawing:
        return GridDrawing(self.caption, self.mark, [draw_image(image) for image in self.images])


@dataclass(frozen=True)
class ImageDrawing:
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
    images: Sequence[ImageDrawing]


def draw_image(image: GridImage) -> ImageDrawing:
    height, width, _ = image.pixels.shape
    return ImageDrawing(data_uri(encode_png(image.pixels)), image.caption, image.marked, width, height)
