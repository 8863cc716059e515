"""Preprocessing of encoded images as each network's reference does it; the differences are listed below.

    preprocess("official", data)                                       evaluation: float32 224x224x3, normalised
    preprocess("v15", data, train=True, generator=generator)       training, drawn as the reference draws
    prepare_pixels("v15", data)                                        the same before normalisation, 0..255
    normalisation("v15")                                               (mean, scale): (image - mean) * scale

A `View` says which pixels are needed and how their colours change. It is computed from the size alone; then the image
is decoded and `resample`d once, whatever was cropped or mirrored.

`exact` (the default) decodes as TensorFlow does, bit for bit, and resizes to within 1e-4 grey levels of it.
`fast` lets libjpeg-turbo shrink the image by 2, 4 or 8 while it decodes, if even then every pixel of the result has
one of its own; and in training it repeats chroma rather than interpolate it, as the reference of `v15` does. Evaluation
in `fast` is `exact` for views less than twice the size of the result. Beyond, it averages where the references skip
pixels. Measured in evaluation, on the scale of 0..255: mean 1.5, 99th percentile 7 (a retina, 1411x1411); 3.0 and 19 (a
field of stars, 1000x872); 4.4 and 41, at most 122 (a portrait, 512x512). These are not small: a network evaluated in
`fast` sees smoother images.

In both modes no more is decoded than a view needs, where the extension was built (region.py); the pixels are the same.
Some of the references' training does so too, and TensorFlow then has other chroma in its leftmost and rightmost column,
by up to 13 grey levels (60 crops); we decode as if the image were whole, and equal it elsewhere.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Literal

import numpy as np
import numpy.typing as npt

from viaduct.data import jpeg, references, region
from viaduct.data.auto_augment import Policy
from viaduct.data.colour import add_to_channels, multiply_channels
from viaduct.data.geometry import (
    Boxes,
    Crop,
    draw_crop,
    largest_shrink,
    mirror_after,
    mirror_before,
    resample,
    shrink_axis,
    stretch_axis,
)
from viaduct.data.source import require_at_least
from viaduct.data.source_views import PREFIX, SourceViews, parse_name
from viaduct.data.views import DrawColour, Floats, Preprocessing, Recolour, View
from viaduct.errors import BadValue

Mode = Literal["exact", "fast"]
Colours = Literal["reference"] | DrawColour | None  # in training: the network's own, others, or none


def preprocess(
    name: str,
    jpeg_bytes: jpeg.Encoded,
    train: bool = False,
    generator: np.random.Generator | None = None,
    boxes: Boxes | None = None,
    size: int = 224,
    mode: Mode = "exact",
) -> Floats:
    """Return an image as the network of reference `name` expects it: float32, size x size x 3, normalised.

    Training needs a generator.
    """
    check_arguments(name, jpeg_bytes, generator, size)
    return prepare_image(name, jpeg_bytes, train, generator, boxes, size, mode, normalised=True)


def prepare_pixels(
    name: str,
    jpeg_bytes: jpeg.Encoded,
    train: bool = False,
    generator: np.random.Generator | None = None,
    boxes: Boxes | None = None,
    size: int = 224,
    mode: Mode = "exact",
    out: Floats | None = None,
) -> Floats:
    """Return the image before normalisation, on the scale of 0..255.

    It is for display, and for normalising on the device.
    """
    check_arguments(name, jpeg_bytes, generator, size)
    return prepare_image(name, jpeg_bytes, train, generator, boxes, size, mode, out)


def check_arguments(name: str, jpeg_bytes: object, generator: object, size: object) -> None:
    """Refuse arguments of wrong types with a message of our own."""
    find_preprocessing(name)
    if not isinstance(jpeg_bytes, bytes | bytearray | memoryview):
        hint = "Read the file first: Path(name).read_bytes()."
        raise BadValue(f"an image must be given as its encoded bytes, got {describe_value(jpeg_bytes)}.", hint)
    if generator is not None and not isinstance(generator, np.random.Generator):
        hint = "Try: generator=np.random.default_rng(seed)"
        raise BadValue(f"generator must be a numpy Generator, got {describe_value(generator)}.", hint)
    require_at_least(1, "size", int(size) if isinstance(size, np.integer) else size)


def describe_value(value: object) -> str:
    """Return a value with its type, cut where it is long."""
    text = repr(value)
    return f"the {type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def prepare_image(
    name: str,
    jpeg_bytes: jpeg.Encoded,
    train: bool = False,
    generator: np.random.Generator | None = None,
    boxes: Boxes | None = None,
    size: int = 224,
    mode: Mode = "exact",
    out: Floats | None = None,
    *,
    normalised: bool = False,
    policy: Policy | None = None,
    colours: Colours = "reference",
) -> Floats:
    """Prepare an image, normalised or not, into `out` where it is given.

    `policy` changes training images before the colours are varied.
    """
    views = find_preprocessing(name).views
    if views is not None:
        return prepare_with_pillow(name, views, jpeg_bytes, train, generator, size, out, normalised, policy, colours)
    height, width = jpeg.dimensions(jpeg_bytes)
    view = choose_view(name, height, width, train, generator, boxes, size, colours)
    fancy_upsampling = find_preprocessing(name).fancy_upsampling[train] and not (train and mode == "fast")
    if policy is None or generator is None:
        return render(jpeg_bytes, view, name if normalised else None, fancy_upsampling, mode, out)
    image = render(jpeg_bytes, view._replace(recolour=None), None, fancy_upsampling, mode, out)
    image[:] = policy(as_bytes(image), generator)
    return finish(image, view.recolour, name if normalised else None)


def prepare_with_pillow(
    name: str,
    views: SourceViews,
    jpeg_bytes: jpeg.Encoded,
    train: bool,
    generator: np.random.Generator | None,
    size: int,
    out: Floats | None,
    normalised: bool,
    policy: Policy | None,
    colours: Colours,
) -> Floats:
    """Prepare an image as the source of its network does."""
    pixels = jpeg.decode(jpeg_bytes, dct="accurate")
    if train and generator is None:
        raise BadValue("training draws at random and needs a generator.", "Try: generator=np.random.default_rng(seed)")
    if train and generator is not None:
        image = views.cut_random(pixels, size, generator)
        image = policy(np.ascontiguousarray(image), generator) if policy else image
        recolour = colours(generator) if callable(colours) else None
    else:
        image, recolour = views.cut_centre(pixels, size), None
    out = np.empty((size, size, 3), dtype=np.float32) if out is None else out
    out[:] = image
    return finish(out, recolour, name if normalised else None)


def as_bytes(image: Floats) -> npt.NDArray[np.uint8]:
    """Round to whole grey levels of 0..255."""
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def normalisation(name: str) -> tuple[Floats, Floats]:
    """Return (mean, scale), one number a channel: a pixel p becomes (p - mean) * scale."""
    chosen = find_preprocessing(name)
    return np.array(chosen.mean, dtype=np.float32), np.array(chosen.scale, dtype=np.float32)


def normalise(name: str, image: Floats) -> Floats:
    """Normalise an image, in place."""
    mean, scale = normalisation(name)
    add_to_channels(image, -mean)
    multiply_channels(image, scale)
    return image


def find_preprocessing(name: str) -> Preprocessing:
    """Return the preprocessing of a reference, or of a network of another package."""
    if isinstance(name, str) and name.startswith(f"{PREFIX}:"):
        return read_source(name)
    return references.load(name)


def sample_crop(name: str, height: int, width: int, boxes: Boxes | None, generator: np.random.Generator) -> Crop:
    """Draw a training crop, distributed as in the reference called `name`."""
    sampler = references.load(name).sampler
    assert sampler is not None
    return draw_crop(sampler, height, width, boxes, generator)


@cache
def read_source(name: str) -> Preprocessing:
    """Return the preprocessing of a network of another package: bytes are divided by 255, then normalised."""
    views = parse_name(name)
    mean, scale = (255 * value for value in views.mean), (1 / (255 * value) for value in views.deviation)
    return Preprocessing(refuse_view, tuple(mean), tuple(scale), views=views)  # type: ignore[arg-type]


def refuse_view(height: int, width: int, size: int) -> View:
    """Refuse to describe an antialiased image as positions between pixels."""
    raise BadValue("images of a network of another package are resized by Pillow, which this step cannot do.")


def choose_view(
    name: str,
    height: int,
    width: int,
    train: bool = False,
    generator: np.random.Generator | None = None,
    boxes: Boxes | None = None,
    size: int = 224,
    colours: Colours = "reference",
) -> View:
    """Choose the part of an image of this size that is used.

    Everything random happens here, before a pixel is decoded.
    """
    if size < 1:
        raise BadValue(f"size must be at least 1, got {size}.")
    if not train:
        return find_preprocessing(name).evaluation(height, width, size)
    if generator is None:
        raise BadValue("training draws at random and needs a generator.", "Try: generator=np.random.default_rng(seed)")
    return choose_random_view(name, height, width, generator, boxes, size, colours)


def choose_random_view(
    name: str,
    height: int,
    width: int,
    generator: np.random.Generator,
    boxes: Boxes | None,
    size: int,
    colours: Colours = "reference",
) -> View:
    """Draw a crop, a mirroring and a change of colours for training."""
    chosen = find_preprocessing(name)
    crop = sample_crop(name, height, width, boxes, generator)
    columns = stretch_axis(crop.x, crop.width, size)
    if generator.random() < 0.5:
        before = chosen.mirrors_before_resize
        columns = mirror_before(columns, crop.x, crop.width) if before else mirror_after(columns)
    draw = chosen.recolour if colours == "reference" else colours
    recolour = draw(generator) if draw else None
    return View(stretch_axis(crop.y, crop.height, size), columns, recolour)


def render(
    jpeg_bytes: jpeg.Encoded,
    view: View,
    normal: str | None = None,
    fancy_upsampling: bool = True,
    mode: Mode = "exact",
    out: Floats | None = None,
) -> Floats:
    """Decode and resample an image, recolour it and normalise it as `normal` does, into `out` if given."""
    if mode not in ("exact", "fast"):
        raise BadValue(f"mode must be 'exact' or 'fast', got {mode!r}.")
    rows, columns, recolour = view
    out = np.empty((len(rows.fraction), len(columns.fraction), 3), dtype=np.float32) if out is None else out
    fast = mode == "fast" and jpeg.is_jpeg(jpeg_bytes)
    shrink = largest_shrink(rows, columns) if fast else 1
    if shrink > 1:
        height, width = jpeg.dimensions(jpeg_bytes)
        rows, columns = (
            shrink_axis(rows, shrink, -(-height // shrink)),
            shrink_axis(columns, shrink, -(-width // shrink)),
        )
    lines = normal_lines(normal, len(columns.fraction)) if normal and not recolour else None
    if region.decode_view(
        jpeg_bytes, rows, columns, out, shrink=shrink, fancy_upsampling=fancy_upsampling, normal=lines
    ):
        return out if lines else finish(out, recolour, normal)
    pixels = jpeg.decode(jpeg_bytes, fancy_upsampling=fancy_upsampling, shrink=shrink)
    return finish(resample(pixels, rows, columns, out), recolour, normal)


def finish(image: Floats, recolour: Recolour | None, normal: str | None) -> Floats:
    """Recolour and normalise sampled pixels, in place."""
    if recolour:
        image = recolour(image)
    return normalise(normal, image) if normal else image


@cache
def normal_lines(name: str, width: int) -> region.Lines:
    """Return (-mean, scale) for each number of a row: the same sums and products as in `normalise`."""
    mean, scale = normalisation(name)
    return np.tile(-mean, width), np.tile(scale, width)


class CallableModule(ModuleType):
    """Module that can be called.

    `viaduct.data.preprocess(...)` is promised to be a function, and importing this file puts the module there.
    """

    __call__ = staticmethod(preprocess)


sys.modules[__name__].__class__ = CallableModule
