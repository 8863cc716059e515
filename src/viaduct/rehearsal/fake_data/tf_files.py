"""TFRecord files that a TensorFlow 1 script names and that are not there.

Names of missing files are replaced by names in the rehearsal's record. What the script then parses out of them
(`tf.parse_single_example`, `tf.io.parse_example`) says what is in them; they are written before the first run of a
graph. Found are files given to `TFRecordDataset`, `Dataset.list_files` and `tf.gfile.Glob`; a script that opens files
in another way finds them missing.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from viaduct.rehearsal.fake_data.records import Declared, share, write_records

PARSERS = ("parse_single_example", "parse_example")


class Missing:
    """The files that were asked for, and what is parsed out of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Path] = {}
        self.features: dict[str, Declared] = {}
        self.parsed: dict[str, str] = {}  # a tensor of bytes -> its feature
        self.raw: dict[str, tuple[str, int]] = {}  # a tensor of decoded numbers -> its feature, bytes of a number
        self._written: dict[Path, dict[str, Declared]] = {}

    def stand_in(self, name: str) -> str:
        if os.path.exists(name) or Path(name).parent == self.folder:
            return name
        if name not in self.names:
            plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name.strip("/")).replace("*", "x") or "records"
            self.names[name] = self.folder / plain
            tell(f"{name} is missing; records are made up.")
        return str(self.names[name])

    def write(self) -> None:
        """Files that were not written yet, or of which more is known by now."""
        if not self.features:
            return
        for path in self.names.values():
            if self._written.get(path) != self.features:
                write_records(path, self.features, share(len(self.names)))
                self._written[path] = dict(self.features)

    def parse(self, features: dict[str, Any], tensors: dict[str, Any]) -> None:
        for name, feature in features.items():
            if (declared := declaration(feature)) is None:
                continue
            self.features[name] = declared
            if declared.kind == "bytes" and name in tensors:
                self.parsed[key(tensors[name])] = name

    def shaped(self, tensor: Any, shape: Any) -> None:
        """Raw numbers get their shape: now their bytes can be counted."""
        if key(tensor) not in self.raw or (count := product(shape)) is None:
            return
        name, size = self.raw[key(tensor)]
        self.features[name] = Declared(self.features[name].count, "bytes", raw=count * size)


def install(folder: Path) -> Missing:
    """After the stage is set; the script has not begun."""
    import tensorflow as tf
    from tensorflow.python.data.ops import readers

    missing = Missing(folder)
    for kind in (readers.TFRecordDatasetV1, readers.TFRecordDatasetV2):
        kind.__init__ = with_files(kind.__init__, missing)
    tf.data.Dataset.list_files = staticmethod(listing(tf.data.Dataset.list_files, missing))
    tf.gfile.Glob = tf.io.gfile.glob = globbing(tf.io.gfile.glob, missing)
    for name in PARSERS:
        found = parsing(getattr(tf.io, name), missing)
        setattr(tf, name, found)
        setattr(tf.io, name, found)
    install_raw(tf, missing)
    from viaduct.rehearsal.tf1_stage import sessions

    sessions.observers.append(before_runs(missing))
    return missing


def before_runs(missing: Missing) -> Any:
    from viaduct.rehearsal.tf1_stage.sessions import Observer, Pass

    class Writes(Observer):
        def begins(self, run: Pass) -> None:
            missing.write()

    return Writes()


def with_files(plain: Callable[..., Any], missing: Missing) -> Callable[..., Any]:
    @functools.wraps(plain)
    def init(self: Any, filenames: Any, *args: Any, **named: Any) -> None:
        if isinstance(filenames, (str, os.PathLike)):
            filenames = missing.stand_in(os.fspath(filenames))
        elif isinstance(filenames, (list, tuple)) and all(isinstance(name, (str, os.PathLike)) for name in filenames):
            filenames = [missing.stand_in(os.fspath(name)) for name in filenames]
        plain(self, filenames, *args, **named)

    return init


def listing(plain: Callable[..., Any], missing: Missing) -> Callable[..., Any]:
    @functools.wraps(plain)
    def list_files(file_pattern: Any, *args: Any, **named: Any) -> Any:
        import tensorflow as tf

        patterns = [file_pattern] if isinstance(file_pattern, str) else file_pattern
        if not isinstance(patterns, Sequence) or any(tf.io.gfile.glob.__wrapped__(one) for one in patterns):
            return plain(file_pattern, *args, **named)
        return tf.data.Dataset.from_tensor_slices([missing.stand_in(one) for one in patterns])

    return list_files


def globbing(plain: Callable[..., Any], missing: Missing) -> Callable[..., Any]:
    @functools.wraps(plain)
    def glob(pattern: Any) -> Any:
        found = plain(pattern)
        if found or not isinstance(pattern, str):
            return found
        return [missing.stand_in(pattern)]

    return glob


def parsing(plain: Callable[..., Any], missing: Missing) -> Callable[..., Any]:
    @functools.wraps(plain)
    def parse(serialized: Any, features: Any, *args: Any, **named: Any) -> Any:
        tensors = plain(serialized, features, *args, **named)
        missing.parse(features, tensors)
        return tensors

    return parse


def install_raw(tf: Any, missing: Missing) -> None:
    """Bytes that are decoded as numbers: their length is known once the numbers are given a shape."""
    decode, reshape, cast = tf.io.decode_raw, tf.reshape, tf.cast
    kind: Any = tf.Tensor
    set_shape = kind.set_shape

    @functools.wraps(decode)
    def decode_raw(input_bytes: Any = None, out_type: Any = None, *args: Any, **named: Any) -> Any:
        given = input_bytes if input_bytes is not None else named.get("bytes")
        numbers = decode(input_bytes, out_type, *args, **named)
        if key(given) in missing.parsed:
            missing.raw[key(numbers)] = (missing.parsed[key(given)], tf.as_dtype(out_type).size)
        return numbers

    @functools.wraps(cast)
    def marked_cast(x: Any, *args: Any, **named: Any) -> Any:
        result = cast(x, *args, **named)
        if key(x) in missing.raw:
            missing.raw[key(result)] = missing.raw[key(x)]
        return result

    @functools.wraps(reshape)
    def shaped(tensor: Any, shape: Any, *args: Any, **named: Any) -> Any:
        missing.shaped(tensor, shape)
        return reshape(tensor, shape, *args, **named)

    def shaped_in_place(self: Any, shape: Any) -> None:
        missing.shaped(self, shape)
        set_shape(self, shape)

    tf.decode_raw = tf.io.decode_raw = decode_raw
    tf.cast, tf.reshape = marked_cast, shaped
    kind.set_shape = shaped_in_place


def key(tensor: Any) -> str:
    """Names are unique within a graph; map functions have graphs of their own."""
    graph = getattr(tensor, "graph", None)
    return f"{id(graph)} {tensor.name}" if graph is not None else ""


def product(shape: Any) -> int | None:
    """Of a shape that is written out; None where part of it is computed or unknown."""
    sizes = shape.as_list() if hasattr(shape, "as_list") else shape
    sizes = [sizes] if isinstance(sizes, int) else sizes
    if not isinstance(sizes, (list, tuple)) or not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    result = 1
    for size in sizes:
        result *= size
    return result


def declaration(feature: Any) -> Declared | None:
    """A feature of fixed length; one of variable length may be empty, and is left out."""
    if type(feature).__name__ != "FixedLenFeature":
        return None
    kinds = {"int64": "int64", "float32": "float", "string": "bytes"}
    count = product(list(feature.shape)) if len(feature.shape) else 1
    kind = kinds.get(getattr(feature.dtype, "name", ""))
    return Declared(count, kind) if kind is not None and count is not None else None


def tell(line: str) -> None:
    print(f"viaduct rehearse: {line}", file=sys.stderr, flush=True)
