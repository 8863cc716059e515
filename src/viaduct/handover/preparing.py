"""Evaluation preprocessing of single images.

    prepare_encoded(recipe.data, (32, 32), Path("photo.jpg").read_bytes())      float32 size x size x 3, normalised

Recipes for encoded images (`Records`: TFRecord files, class folders) crop and resize as data.preprocess says. Recipes
for images in arrays (`Images`: CIFAR-10, the built-in shapes) have images of a fixed size: an image of another size is
cropped around the centre to its aspect ratio and resized to it, with antialiasing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from viaduct.data import jpeg, png, preprocess
from viaduct.data.augment import Normalise, resize
from viaduct.data.geometry import resample
from viaduct.data.records import Records
from viaduct.data.source import Images, Source
from viaduct.errors import BadValue
from viaduct.handover.decoding import check_size, decode_image

Floats = npt.NDArray[np.float32]
CPU = torch.device("cpu")


def prepare_encoded(source: Source, image_shape: tuple[int, int] | None, data: bytes) -> Floats:
    """Return the network's input for an encoded image; records in JPEG and PNG are decoded as in evaluation.

    `image_shape` is the height and width of a recipe's images in arrays, if the run recorded it.
    """
    if isinstance(source, Records) and (png.is_png(data) or jpeg.is_jpeg(data)):
        check_size(data)
        return preprocess.prepare_image(source.preprocess, data, size=source.size, mode=source.decode, normalised=True)
    return prepare_decoded(source, image_shape, decode_image(data))


def prepare_decoded(source: Source, image_shape: tuple[int, int] | None, pixels: jpeg.Pixels) -> Floats:
    """Return the network's input for a decoded image, uint8 height x width x 3."""
    if isinstance(source, Records):
        return prepare_for_records(source, pixels)
    if isinstance(source, Images):
        shape = image_shape or source.image_shape or (source.size, source.size)
        return prepare_for_images(source, fit_pixels(pixels, shape))
    raise BadValue(f"images of a {type(source).__name__} recipe cannot be prepared one by one.")


def prepare_for_records(source: Records, pixels: jpeg.Pixels) -> Floats:
    """Return the network's input for a decoded image."""
    name = source.preprocess
    if pillow_views := preprocess.find_preprocessing(name).pillow_views:
        return preprocess.normalise(name, pillow_views.cut_centre(pixels, source.size).astype(np.float32))
    height, width = pixels.shape[:2]
    view = preprocess.choose_view(name, height, width, size=source.size)
    return preprocess.normalise(name, resample(pixels, view.rows, view.columns))


def fit_pixels(pixels: jpeg.Pixels, shape: tuple[int, int]) -> jpeg.Pixels:
    """Crop an image around its centre to the aspect ratio of `shape` and resize it, unless it has this shape."""
    height, width = pixels.shape[:2]
    if (height, width) == shape:
        return pixels
    rows = min(height, max(1, round(width * shape[0] / shape[1])))
    columns = min(width, max(1, round(height * shape[1] / shape[0])))
    top, left = (height - rows) // 2, (width - columns) // 2
    cut = torch.from_numpy(np.ascontiguousarray(pixels[top : top + rows, left : left + columns]))
    planes = cut.permute(2, 0, 1)[None].to(torch.float32)
    resized = F.interpolate(planes, size=shape, mode="bilinear", align_corners=False, antialias=True)
    fitted: jpeg.Pixels = resized[0].permute(1, 2, 0).round_().clamp_(0, 255).to(torch.uint8).numpy()
    return fitted


def prepare_for_images(source: Images, pixels: jpeg.Pixels) -> Floats:
    """Return the network's input for a decoded image that has the shape of the recipe's images."""
    normalised = Normalise(source, CPU)(torch.from_numpy(np.ascontiguousarray(pixels))[None])
    prepared: Floats = resize(normalised, source.size)[0].permute(1, 2, 0).contiguous().numpy()
    return prepared
