"""Images: their sources, the order in which they are used, and their batches.

    source.py      the data of a recipe, and the arrays it loads                    (no torch)
    shapes.py      the built-in set, drawn from silhouettes.py                      (no torch)
    cifar10.py     CIFAR-10 in its binary version; fashion_mnist.py                 (no torch)
    order.py       sample order and random draws, pure functions of the position   (no torch)
    augment.py     crop, mirror, normalise, cut out, resize, on whole batches
    prefetch.py    threads that prepare batches ahead, in order
    batches.py     batches of a split on the device, for the training loop

    preprocess.py  decode, crop and resize an image as each reference does   (no torch from here)
    references/    the preprocessing of each reference         views.py         parts of these; pillow_views.py
    geometry.py    the crop sampler and bilinear resizing      colour.py        random changes of colour
    jpeg.py        decoding as TensorFlow does it              png.py           the same for PNG
    region.py      decoding only the region of a crop          auto_augment.py  policies, made of operations.py
    crops.py       crops of several records in one call        compiled.py      lookup of the C extensions' functions
    balance.py     class balancing                             notices.py       lines on stderr, lists of names

    records.py           TFRecords, MindRecords and class folders as a recipe's data; record_batches.py: batches (torch)
    index.py             random access to TFRecords, with tfrecord.py, example.py, file_index.py, sidecar.py, shards.py
    mindrecord_folder.py random access to MindRecords (mindrecord.py); folder.py: to class folders and lists
    build.py             TFRecords from images (origins.py); check.py, sheet.py, fetch.py: other verbs of `viaduct data`
    synthetic.py         noise instead of images; synthetic_batches.py: its batches (torch)

`preprocess` and `sample_crop` are public and stable. They are imported at their first use.
"""

from importlib import import_module
from typing import Any

from viaduct.data.cifar10 import Cifar10
from viaduct.data.shapes import Shapes
from viaduct.data.source import Arrays, Images, ImageSet, Split

__all__ = ["Arrays", "Cifar10", "ImageSet", "Images", "Shapes", "Split", "preprocess", "sample_crop"]


def __getattr__(name: str) -> Any:
    """Import a public function at its first use; the submodule `preprocess` can be called like its function."""
    if name == "preprocess":
        return import_module("viaduct.data.preprocess")
    if name == "sample_crop":
        return import_module("viaduct.data.preprocess").sample_crop
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
