"""Synthetic files for TFRecords that a TensorFlow 1 script names and that are missing.

Names of missing files are replaced by names in the rehearsal's record. These files are written before the first run of
a graph, with the features that the script parses (`tf.parse_single_example`, `tf.io.parse_example`). Names are replaced
in `TFRecordDataset`, `Dataset.list_files` and `tf.gfile.Glob`; for other functions the files are missing.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from viaduct.rehearsal.fake_data import print_note
from viaduct.rehearsal.fake_data.records import DeclaredFeature, count_records_per_file, write_records
from viaduct.rehearsal.tf1_stage import sessions
from viaduct.rehearsal.wrapping import wrap

PARSERS = ("parse_single_example", "parse_example")


class MissingFiles(sessions.Observer):
    """Missing files, and the features that the script parses from TFRecords."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Path] = {}  # the synthetic file by a missing file's name
        self.features: dict[str, DeclaredFeature] = {}
        self.parsed_bytes: dict[str, str] = {}  # by key of a tensor of bytes: the feature that it was parsed from
        # By key of a tensor of numbers: the feature that it was decoded from, and the bytes of one number.
        self.decoded_numbers: dict[str, tuple[str, int]] = {}
        self._written: dict[Path, dict[str, DeclaredFeature]] = {}  # the features in each synthetic file

    def replace(self, name: str) -> str:
        """Return the name of a synthetic file for a missing file; other names are unchanged."""
        if os.path.exists(name) or Path(name).parent == self.folder:
            return name
        if name not in self.names:
            file = re.sub(r"[^A-Za-z0-9._-]+", "_", name.strip("/")) or "records"
            self.names[name] = self.folder / file
            print_note(f"{name} is missing; records are made up.")
        return str(self.names[name])

    def before_run(self, run: sessions.GraphRun) -> None:
        """Write the files that do not have all known features yet."""
        if not self.features:
            return
        for path in self.names.values():
            if self._written.get(path) != self.features:
                write_records(path, self.features, count_records_per_file(len(self.names)))
                self._written[path] = dict(self.features)

    def remember_features(self, features: dict[str, Any], tensors: dict[str, Any]) -> None:
        """Remember the features that a script parses, and their tensors."""
        for name, feature in features.items():
            if (declared_feature := make_feature(feature)) is None:
                continue
            self.features[name] = declared_feature
            if declared_feature.kind == "bytes" and name in tensors:
                self.parsed_bytes[key_of(tensors[name])] = name

    def remember_size(self, tensor: Any, shape: Any) -> None:
        """Remember the size in bytes of raw numbers that the script gives this shape."""
        if key_of(tensor) not in self.decoded_numbers or (count := count_elements(shape)) is None:
            return
        name, size = self.decoded_numbers[key_of(tensor)]
        self.features[name] = DeclaredFeature(self.features[name].count, "bytes", byte_count=count * size)


def install(folder: Path) -> MissingFiles:
    """Wrap TensorFlow's readers and parsers; call this after the stand-in is installed, before the script starts."""
    import tensorflow as tf

    missing = MissingFiles(folder)
    wrap_readers(tf, missing)
    for name in PARSERS:

        @wrap(tf.io, name)
        def parse(plain: Any, serialized: Any, features: Any, *args: Any, **kwargs: Any) -> Any:
            tensors = plain(serialized, features, *args, **kwargs)
            missing.remember_features(features, tensors)
            return tensors

        setattr(tf, name, parse)
    wrap_raw_decoding(tf, missing)
    sessions.observers.append(missing)
    return missing


def wrap_readers(tf: Any, missing: MissingFiles) -> None:
    """Let TFRecordDataset, Dataset.list_files and gfile.Glob find synthetic files in place of missing ones."""
    from tensorflow.python.data.ops import readers

    plain_glob, plain_list_files = tf.io.gfile.glob, tf.data.Dataset.list_files

    for kind in (readers.TFRecordDatasetV1, readers.TFRecordDatasetV2):

        @wrap(kind, "__init__")
        def init(plain: Any, self: Any, filenames: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(filenames, (str, os.PathLike)):
                filenames = missing.replace(os.fspath(filenames))
            elif isinstance(filenames, (list, tuple)) and all(isinstance(f, (str, os.PathLike)) for f in filenames):
                filenames = [missing.replace(os.fspath(name)) for name in filenames]
            plain(self, filenames, *args, **kwargs)

    @wrap(tf.io.gfile, "glob")
    def glob(plain: Any, pattern: Any) -> Any:
        names = plain(pattern)
        return names if names or not isinstance(pattern, str) else [missing.replace(pattern)]

    @functools.wraps(plain_list_files)
    def list_files(file_pattern: Any, *args: Any, **kwargs: Any) -> Any:
        patterns = [file_pattern] if isinstance(file_pattern, str) else file_pattern
        if not isinstance(patterns, Sequence) or any(plain_glob(pattern) for pattern in patterns):
            return plain_list_files(file_pattern, *args, **kwargs)
        return tf.data.Dataset.from_tensor_slices([missing.replace(pattern) for pattern in patterns])

    tf.data.Dataset.list_files, tf.gfile.Glob = staticmethod(list_files), glob


def wrap_raw_decoding(tf: Any, missing: MissingFiles) -> None:
    """Wrap decode_raw, cast, reshape and set_shape, which reveal the size of raw bytes."""

    @wrap(tf.io, "decode_raw")
    def decode_raw(plain: Any, input_bytes: Any = None, out_type: Any = None, *args: Any, **kwargs: Any) -> Any:
        encoded = key_of(input_bytes if input_bytes is not None else kwargs.get("bytes"))
        numbers = plain(input_bytes, out_type, *args, **kwargs)
        if encoded in missing.parsed_bytes:
            missing.decoded_numbers[key_of(numbers)] = (missing.parsed_bytes[encoded], tf.as_dtype(out_type).size)
        return numbers

    @wrap(tf, "cast")
    def cast(plain: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        result = plain(x, *args, **kwargs)
        if key_of(x) in missing.decoded_numbers:
            missing.decoded_numbers[key_of(result)] = missing.decoded_numbers[key_of(x)]
        return result

    @wrap(tf, "reshape")
    def reshape(plain: Any, tensor: Any, shape: Any, *args: Any, **kwargs: Any) -> Any:
        missing.remember_size(tensor, shape)
        return plain(tensor, shape, *args, **kwargs)

    @wrap(tf.Tensor, "set_shape")
    def set_shape(plain: Any, self: Any, shape: Any) -> None:
        missing.remember_size(self, shape)
        plain(self, shape)

    tf.decode_raw = decode_raw


def key_of(tensor: Any) -> str:
    """Return a string that identifies a tensor: its graph and its name."""
    graph = getattr(tensor, "graph", None)
    return f"{id(graph)} {tensor.name}" if graph is not None else ""


def count_elements(shape: Any) -> int | None:
    """Return the number of elements of a static shape; None if part of it is unknown."""
    sizes = shape.as_list() if hasattr(shape, "as_list") else shape
    sizes = [sizes] if isinstance(sizes, int) else sizes
    if not isinstance(sizes, (list, tuple)) or not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    return math.prod(sizes)


def make_feature(feature: Any) -> DeclaredFeature | None:
    """Return the declaration of a fixed-length feature; None for other features, shapes and dtypes."""
    if type(feature).__name__ != "FixedLenFeature":
        return None
    kinds = {"int64": "int64", "float32": "float", "string": "bytes"}
    count = count_elements(list(feature.shape)) if len(feature.shape) else 1
    kind = kinds.get(getattr(feature.dtype, "name", ""))
    return DeclaredFeature(count, kind) if kind is not None and count is not None else None
