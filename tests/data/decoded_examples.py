"""All features of an encoded `tf.train.Example`; viaduct itself decodes only those that training needs."""

from __future__ import annotations

import numpy as np

from viaduct.data.crc32c import Buffer
from viaduct.data.example import (
    FLOAT_LIST,
    INT64_LIST,
    iterate_features,
    read_floats,
    read_int64s,
    read_list,
    report_bad_message,
)
from viaduct.errors import BadData
from viaduct.protobuf_wire import list_messages


@report_bad_message
def decode_example(data: Buffer) -> dict[str, list[bytes] | np.ndarray]:
    """Return every feature by its name; a feature that has no list of values becomes an empty Python list."""
    try:
        return {str(name, "utf-8"): decode_feature(value) for name, value in iterate_features(memoryview(data))}
    except UnicodeDecodeError as error:
        raise BadData(f"not a tf.train.Example: the name {error.object!r} is not UTF-8.") from error


def decode_feature(data: memoryview) -> list[bytes] | np.ndarray:
    kind, values = read_list(data)
    if kind == FLOAT_LIST:
        return read_floats(values)
    if kind == INT64_LIST:
        return read_int64s(values)
    return [bytes(value) for value in list_messages(values, 1)]
