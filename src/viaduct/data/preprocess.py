"""Preprocessing of encoded images as each network's reference does it; the differences are listed below.

    preprocess("official", data)                                       evaluation: float32 224x224x3, normalised
    preprocess("v15", data, train=True, generator=generator)           training, drawn as the reference draws
    prepare_image("v15", data)                                         the same before normalisation, 0..255
    normalisation("v15")                                               (mean, scale): (image - mean) * scale

A `View` says which pixels are needed and how their colours change. It is computed from the size alone; then the image
is decoded and `resample`d once, whatever was cropped or mirrored.

`exact` (the default) decodes as TensorFlow does, bit for bit, and resizes to within 1e-4 grey levels of it.
`fast` lets libjpeg-turbo shrink the image by 2, 4 or 8 while it decodes, if even then every pixel of the result comes
from a pixel of its own; and in training it repeats chroma rather than interpolate it, as the reference of `v15` does.
Evaluation in `fast` equals `exact` for views less than twice the size of the result. For larger views it averages where
the references skip pixels. Measured differences in evaluation, on the scale of 0..255: mean 1.5, 99th percentile 7 (a
retina, 1411x1411); 3.0 and 19 (a field of stars, 1000x872); 4.4 and 41, at most 122 (a portrait, 512x512). These are
not small: a network evaluated in `fast` sees smoother images.

In both modes no more is decoded than a view needs, where the extension was built (region.py); the pixels are those of
the whole image. Some of the references' training also decodes regions only, and TensorFlow then has other chroma in
their leftmost and rightmost column, by up to 13 grey levels (60 crops). There, and only there, we differ from it.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from viaduct.data import jpeg, references, region
from viaduct.data.auto_augment import Policy
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
Colours = Literal["reference"] | DrawColour | None  # changes of colour in training: the reference's, others, or none
NEEDS_GENERATOR = ("training draws at random and needs a generator.", "Try: generator=np.random.default_rng(seed)")


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
    """Prepare an image: normalised, or on the scale of 0..255; into `out` where that is given.

    `policy` changes training images before the colours are varied.
    """
    preprocessing = find_preprocessing(name)
    normal = name if normalised else None
    if preprocessing.views is not None:
        image, recolour = cut_with_pillow(preprocessing.views, jpeg_bytes, train, generator, size, policy, colours)
        out = np.empty((size, size, 3), dtype=np.float32) if out is None else out
        out[:] = image
        return finish(out, recolour, normal)
    height, width = jpeg.dimensions(jpeg_bytes)
    view = choose_view(name, height, width, train, generator, boxes, size, colours)
    fancy_upsampling = preprocessing.fancy_upsampling[train] and not (train and mode == "fast")
    if policy is None or generator is None:
        return render(jpeg_bytes, view, normal, fancy_upsampling, mode, out)
    out = render(jpeg_bytes, view._replace(recolour=None), None, fancy_upsampling, mode, out)
    out[:] = policy(as_bytes(out), generator)
    return finish(out, view.recolour, normal)


def cut_with_pillow(
    views: SourceViews,
    jpeg_bytes: jpeg.Encoded,
    train: bool,
    generator: np.random.Generator | None,
    size: int,
    policy: Policy | None,
    colours: Colours,
) -> tuple[jpeg.Pixels, Recolour | None]:
    """Return the part of an image that a network of another package sees, as bytes, and the change of its colours."""
    pixels = jpeg.decode(jpeg_bytes, dct="accurate")
    if not train:
        return views.cut_centre(pixels, size), None
    if generator is None:
        raise BadValue(*NEEDS_GENERATOR)
    image = views.cut_random(pixels, size, generator)
    image = policy(np.ascontiguousarray(image), generator) if policy else image
    return image, colours(generator) if callable(colours) else None


def as_bytes(image: Floats) -> npt.NDArray[np.uint8]:
    """Round to whole grey levels of 0..255."""
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def normalisation(name: str) -> tuple[Floats, Floats]:
    """Return (mean, scale), one number a channel: a pixel p becomes (p - mean) * scale."""
    preprocessing = find_preprocessing(name)
    return np.array(preprocessing.mean, dtype=np.float32), np.array(preprocessing.scale, dtype=np.float32)


def normalise(name: str, image: Floats) -> Floats:
    """Normalise an image, in place."""
    shift, scale = normal_lines(name, image.shape[1])
    image += shift.reshape(-1, 3)
    image *= scale.reshape(-1, 3)
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
    """Choose the part of an image of this size that is used; in training draw a crop, a mirroring, changes of colour.

    All draws but a policy's happen here, before a pixel is decoded, always in this order.
    """
    if size < 1:
        raise BadValue(f"size must be at least 1, got {size}.")
    preprocessing = find_preprocessing(name)
    if not train:
        return preprocessing.evaluation(height, width, size)
    if generator is None:
        raise BadValue(*NEEDS_GENERATOR)
    crop = sample_crop(name, height, width, boxes, generator)
    columns = stretch_axis(crop.x, crop.width, size)
    if generator.random() < 0.5:
        mirrors_before = preprocessing.mirrors_before_resize
        columns = mirror_before(columns, crop.x, crop.width) if mirrors_before else mirror_after(columns)
    draw_colour = preprocessing.recolour if colours == "reference" else colours
    recolour = draw_colour(generator) if draw_colour else None
    return View(stretch_axis(crop.y, crop.height, size), columns, recolour)


def render(
    jpeg_bytes: jpeg.Encoded,
    view: View,
    normal: str | None = None,
    fancy_upsampling: bool = True,
    mode: Mode = "exact",
    out: Floats | None = None,
) -> Floats:
    """Decode and resample an image, recolour it, and normalise it for the reference `normal` if that is not None."""
    if mode not in ("exact", "fast"):
        raise BadValue(f"mode must be 'exact' or 'fast', got {mode!r}.")
    rows, columns, recolour = view
    out = np.empty((len(rows.fraction), len(columns.fraction), 3), dtype=np.float32) if out is None else out
    fast = mode == "fast" and jpeg.is_jpeg(jpeg_bytes)
    shrink = largest_shrink(rows, columns) if fast else 1
    if shrink > 1:
        height, width = jpeg.dimensions(jpeg_bytes)
        rows = shrink_axis(rows, shrink, -(-height // shrink))
        columns = shrink_axis(columns, shrink, -(-width // shrink))
    lines = normal_lines(normal, len(columns.fraction)) if normal and not recolour else None
    options: dict[str, Any] = {"shrink": shrink, "fancy_upsampling": fancy_upsampling}
    if region.decode_view(jpeg_bytes, rows, columns, out, **options, normal=lines):
        return out if lines else finish(out, recolour, normal)
    pixels = jpeg.decode(jpeg_bytes, **options)
    return finish(resample(pixels, rows, columns, out), recolour, normal)


def finish(image: Floats, recolour: Recolour | None, normal: str | None) -> Floats:
    """Recolour sampled pixels and normalise them for the reference `normal`, in place; None leaves a step out."""
    if recolour:
        image = recolour(image)
    return normalise(normal, image) if normal else image


@cache
def normal_lines(name: str, width: int) -> region.Lines:
    """Return (-mean, scale) for each value of a row, three for each pixel.

    Over an image numpy adds three numbers in 0.2 ms, a row in 0.02 ms.
    """
    mean, scale = normalisation(name)
    return np.tile(-mean, width), np.tile(scale, width)


class CallableModule(ModuleType):
    """Module that can be called.

    `viaduct.data.preprocess(...)` is promised to be a function, and importing this file puts the module there.
    """

    __call__ = staticmethod(preprocess)


sys.modules[__name__].__class__ = CallableModule
