"""Grid of images with captions; marked images (wrong predictions) have a red frame and a label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.data.png import Bytes as Pixels
from viaduct.data.png import check_pixels, encode_png
from viaduct.reporting.links import data_uri

SMALL_SIDE = 128  # pixels; an image with both sides below this is enlarged without smoothing


@dataclass(frozen=True, eq=False)
class GridImage:
    """Pixels of shape (height, width, 3 or 4), uint8; a marked image gets a red frame and the grid's `mark`."""

    pixels: Pixels
    caption: str = ""
    marked: bool = False

    def __post_init__(self) -> None:
        check_pixels(self.pixels, channels=(3, 4))

    @property
    def height(self) -> int:
        return int(self.pixels.shape[0])

    @property
    def width(self) -> int:
        return int(self.pixels.shape[1])

    @property
    def is_small(self) -> bool:
        return max(self.height, self.width) < SMALL_SIDE

    @property
    def address(self) -> str:
        """Data URI of the image."""
        return data_uri(encode_png(self.pixels))


@dataclass(frozen=True)
class ImageGrid:
    """Images in reading order; `mark` is the label of marked images, for readers who do not see red."""

    template: ClassVar[str] = "image_grid.html"

    images: Sequence[GridImage]
    caption: str = ""
    mark: str = "wrong"
