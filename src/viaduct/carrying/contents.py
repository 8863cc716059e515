"""Contents of files that a script wrote: tensors by name, plain values, scalars, lines, pixels.

No code of a file is executed: a pickle may contain NumPy arrays and plain containers only, and PyTorch checkpoints are
read with `weights_only`.
"""

from __future__ import annotations

import argparse
import collections
import pickle
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from viaduct.carrying.observations import Arrays
from viaduct.comparison.formats import widen_bfloat16
from viaduct.data.tfrecord import read_records
from viaduct.errors import ViaductError
from viaduct.protobuf_wire import BYTES, FIXED32, VARINT, iterate_fields, read_varint

MAX_FILE_BYTES = 1 << 30
MAX_VALUES = 200_000  # of one file
MAX_DEPTH = 50  # of nested containers
# First bytes: a zip archive, torch.save's old format (its magic number, pickled), a pickle of protocol 2 or later.
ZIP, OLD_TORCH, PICKLE = b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"\x80"
EIGHT_BIT_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")  # Pillow's
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
PLAIN_CLASSES = {
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *((f"numpy.{core}.{module}", name) for core in ("core", "_core") for module, name in (
        ("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer"))),
    *(("builtins", name) for name in ("set", "frozenset", "complex", "bytearray", "list", "dict", "int", "float")),
}  # fmt: skip


class Unreadable(Exception):
    """A file whose content cannot be compared; the message says why."""


@dataclass
class Content:
    """Content of one file: arrays and values by name, or the lines of a text."""

    arrays: Arrays = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    lines: list[str] | None = None  # without blank ones; None if the file is not a text
    may_skip_values: bool = False  # a run may leave out some values, so only those that both sides have are compared
    is_image: bool = False  # `arrays` holds the 8-bit pixels of an image
    unread_reason: str = ""  # why names and dtypes could not be read; then `arrays` holds the bytes of the tensors
    skipped: list[str] = field(default_factory=list)  # names of tensors and other entries that are not read


def read_content(path: Path) -> Content:
    """Read a file in the format of its name and first bytes; raise Unreadable if it cannot be compared."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise Unreadable("it is larger than 1 GiB")
    try:
        return find_reader(path)(path)
    except (Unreadable, MemoryError):
        raise
    except ViaductError as error:
        raise Unreadable(str(error).splitlines()[0]) from None
    except ImportError as error:
        raise Unreadable(f"{error.name or error} is not installed") from None
    except Exception as error:  # of any library that reads a damaged file
        first_line = str(error).partition("\n")[0]
        raise Unreadable(f"it cannot be read: {type(error).__name__}: {first_line}") from None


def find_reader(path: Path) -> Callable[[Path], Content]:
    """Return the reader for a file, by its name and first bytes; raise Unreadable for a graph."""
    name = path.name.lower()
    with path.open("rb") as file:
        beginning = file.read(32)
    if "tfevents" in name:
        return read_events
    if name.endswith(".index"):
        return read_tensorflow
    if name.endswith((".meta", "graph.pbtxt", ".pb", ".onnx", ".om")):
        raise Unreadable("it holds a graph, and graphs are not compared")
    if name.endswith(".safetensors"):
        return read_safetensors
    if beginning.startswith(b"\x93NUMPY") or name.endswith(".npz"):
        return read_numpy
    if beginning.startswith(b"\x89HDF"):
        return read_hdf5
    if name.endswith(IMAGES):
        return read_image
    if beginning.startswith((ZIP, OLD_TORCH)):
        return read_torch
    if beginning.startswith(PICKLE) or name.endswith((".pkl", ".pickle")):
        return read_pickle
    return read_text


def read_text(path: Path) -> Content:
    """Return the lines of a UTF-8 text, without blank ones; raise Unreadable for other files.

    Only files whose bytes differ are read (`written_files.compare_written`).
    """
    data = path.read_bytes()
    text = data.decode("utf-8", errors="replace")
    if b"\0" in data or text.encode() != data:
        raise Unreadable("its format is not known, and its bytes differ")
    return Content(lines=[line for line in text.replace("\r", "\n").split("\n") if line.strip()])


def read_numpy(path: Path) -> Content:
    """Return the arrays of a .npy or .npz file; raise Unreadable for damaged files and pickled objects."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return Content({"array": loaded})
        with loaded as archive:
            return Content({name: archive[name] for name in archive.files})
    except ValueError as error:
        why = "it holds Python objects" if "allow_pickle" in str(error) else str(error)
        raise Unreadable(why) from None


def read_safetensors(path: Path) -> Content:
    from viaduct.weights.stored import open_weights

    with open_weights(path) as stored:
        return Content({name: as_numpy(stored.read(name)) for name in stored.tensor_infos})


def read_tensorflow(path: Path) -> Content:
    """Return the tensors of a TensorFlow checkpoint; `path`: its .index file.

    Partitioned variables and dtypes other than NUMPY_TYPES, such as strings, are skipped.
    """
    from viaduct.weights.bundle import Bundle

    checkpoint = Content()
    with Bundle(path.with_suffix("")) as bundle:
        for name, entry in bundle.entries.items():
            if entry.sliced or entry.dtype not in NUMPY_TYPES:
                checkpoint.skipped.append(name)
                continue
            array = np.frombuffer(bytes(bundle.read_bytes(name)), NUMPY_TYPES[entry.dtype]).reshape(entry.shape)
            checkpoint.arrays[name] = widen_bfloat16(array) if entry.dtype == "bfloat16" else array
    return checkpoint


NUMPY_TYPES = {  # by TensorFlow dtype; NumPy has no bfloat16, so its bits are read as integers
    **{name: name for name in ("float64", "int64", "float32", "int32", "float16", "uint8", "bool")},
    "bfloat16": "uint16",
}


def read_hdf5(path: Path) -> Content:
    """Return the datasets of an HDF5 file; attributes, such as the configuration of a Keras model, are not read."""
    import h5py

    with h5py.File(path, "r") as file:
        items: dict[str, Any] = {"": file}  # groups and datasets
        file.visititems(lambda name, item: items.update({name: item}))
        arrays = {name: np.asarray(item) for name, item in items.items() if isinstance(item, h5py.Dataset)}
        return Content(arrays, skipped=["attributes"] if any(item.attrs for item in items.values()) else [])


def read_image(path: Path) -> Content:
    """Return the pixels of an image: 8-bit ones as RGBA, others (16 bits, floats) as they are stored."""
    from PIL import Image

    with Image.open(path) as image:
        if (frames := getattr(image, "n_frames", 1)) > 1:
            raise Unreadable(f"it holds {frames} images; only files with one are compared")
        if image.mode not in EIGHT_BIT_MODES:
            return Content({"pixels": np.asarray(image)})
        return Content({"pixels": np.asarray(image.convert("RGBA"))}, is_image=True)


def read_torch(path: Path) -> Content:
    """Return the values of a PyTorch checkpoint, or only the bytes of its tensors if it holds other classes."""
    import torch

    try:
        with torch.serialization.safe_globals(list_harmless_classes()):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        message = " ".join(str(error).split())
        class_name = message.partition("Unsupported global: GLOBAL ")[2].partition(" ")[0]
        if class_name:
            return read_storages(path, f"it holds a pickled {class_name}, which is not executed")
        raise Unreadable(f"torch.load(weights_only=True) does not read it: {message[:120]}") from None
    return flatten(loaded)


def read_storages(path: Path, why: str) -> Content:
    """Return the bytes of an archive's tensors, without their names; raise Unreadable if there are none."""
    if not zipfile.is_zipfile(path):
        raise Unreadable(why)
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if re.search(r"/data/\d+$", name)]
        storages = {f"storage {Path(name).name}": np.frombuffer(archive.read(name), np.uint8) for name in names}
    if not storages:
        raise Unreadable(why)
    return Content(storages, unread_reason=why)


def list_harmless_classes() -> list[Any]:
    """Return classes, besides those that torch allows, whose creation executes no code of the file."""
    import importlib
    import pathlib

    core: Any = importlib.import_module(f"numpy.{'core' if np.__version__.startswith('1.') else '_core'}.multiarray")
    constructors = [core.scalar, core._reconstruct]
    dtypes = {type(np.dtype(name)) for name in ("f2", "f4", "f8", "i4", "i8", "u1", "?")}
    paths = [pathlib.PosixPath, pathlib.PurePosixPath]
    containers = [argparse.Namespace, collections.defaultdict, dict, list, set]
    return [*containers, np.dtype, np.ndarray, *constructors, *paths, *dtypes]


def read_pickle(path: Path) -> Content:
    """Return the values of a pickle; raise Unreadable if it has classes other than PLAIN_CLASSES."""
    with path.open("rb") as file:
        return flatten(PlainUnpickler(file).load())


class PlainUnpickler(pickle.Unpickler):
    """Unpickler of arrays and plain containers, which imports no other class."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PLAIN_CLASSES:
            raise Unreadable(f"it holds a pickled {module}.{name}, which is not executed")
        return super().find_class(module, name)


def flatten(value: Any) -> Content:
    """Return nested values, named by their paths; raise Unreadable if they are too many or nested too deeply.

    Numeric arrays become `arrays`; other values, arrays without axes and empty containers become `values` as text. The
    second of two equal paths, such as those of the keys 1 and "1", gets an apostrophe.
    """
    content = Content()
    for number, (name, leaf) in enumerate(iterate_leaves(value, "", ())):
        if number >= MAX_VALUES:
            raise Unreadable(f"it holds more than {MAX_VALUES:,} values")
        while name in content.arrays or name in content.values:
            name += "'"
        array = as_array(leaf)
        if array is not None and array.ndim:
            content.arrays[name] = array
        else:
            content.values[name] = format_leaf(leaf if array is None else array.item())
    return content


def iterate_leaves(value: Any, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested containers with names such as `optimizer.state.0.exp_avg`.

    A container within itself becomes "…", an empty one "(empty)". `above`: ids of the enclosing containers.
    """
    if len(above) > MAX_DEPTH:
        raise Unreadable(f"its values are nested more than {MAX_DEPTH} deep")
    items = list_items(value)
    if items is None:
        yield name or "value", value
    elif id(value) in above:
        yield name or "value", "…"
    elif not items:
        yield name or "value", "(empty)"
    else:
        for key, child in items:
            yield from iterate_leaves(child, f"{name}.{key}" if name else str(key), (*above, id(value)))


def list_items(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the items of a container with their keys or numbers; None for any other value."""
    if isinstance(value, argparse.Namespace):
        return list(vars(value).items())
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    return list(enumerate(sorted(value, key=repr))) if isinstance(value, (set, frozenset)) else None


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    if hasattr(value, "detach"):
        return as_numpy(value)
    return value if isinstance(value, np.ndarray) and value.dtype.kind in "biufc" else None


def as_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    from viaduct.rehearsal.observe import as_array as convert

    return convert(tensor)


def format_leaf(value: Any) -> str:
    if isinstance(value, np.ndarray):  # of texts or objects; str() of a long array leaves most of it out
        value = value.tolist()
    return repr(float(value)) if isinstance(value, (float, np.floating)) else str(value)


def read_events(path: Path) -> Content:
    """Return the scalars of TensorBoard events by tag and step; tags of histograms, images and tensors are skipped."""
    content = Content(may_skip_values=True)
    for record in read_records(path):
        # Fields of the message Event: 2 is the step, 5 a summary.
        step, summaries = 0, []
        for number, wire, start, stop in iterate_fields(record, 0, len(record)):
            if (number, wire) == (2, VARINT):
                step = read_varint(record, start, stop)[0]
            elif (number, wire) == (5, BYTES):
                summaries.append(record[start:stop])
        for tag, scalar in (pair for summary in summaries for pair in iterate_scalars(summary)):
            if scalar is not None:
                content.values[f"{tag} at step {step}"] = repr(scalar)
            elif tag not in content.skipped:
                content.skipped.append(tag)
    return content


def iterate_scalars(summary: memoryview) -> Iterator[tuple[str, float | None]]:
    """Yield the tags of one summary with their scalars (`simple_value`); None for a value of another kind."""
    for _, _, start, stop in iterate_fields(summary, 0, len(summary)):
        value, tag, scalar = summary[start:stop], "", None  # fields of a value: 1 is the tag, 2 simple_value
        for number, wire, begin, end in iterate_fields(value, 0, len(value)):
            if (number, wire) == (1, BYTES):
                tag = bytes(value[begin:end]).decode("utf-8", "replace")
            elif (number, wire) == (2, FIXED32):
                scalar = struct.unpack("<f", value[begin:end])[0]
        yield tag, scalar
