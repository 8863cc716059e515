"""Messages between ranks: values as JSON, and the raw bytes of tensors; nothing that is received is executed.

    data = encode(({"weight": tensor}, {"step": 3}, None))
    model, state, averages = decode(data)

torch's own `broadcast_object_list` sends pickles: a process that can connect to a rank could run code in it. Here
numbers, strings, containers, paths, dtypes, tensors, arrays and objects of classes marked `sendable` can be sent. The
receiver refuses a message whose length does not fit its contents.

A message is the length of its JSON text in 8 bytes, the text, and the bytes of its tensors. In the JSON a tensor is
{"tensor": [dtype, sizes, axes]}; the axes are in the order in which they vary in memory, the slowest first, and the
sizes are theirs. Other types that JSON lacks are objects with one key, too.
"""

from __future__ import annotations

import json
import math
from pathlib import Path, PurePath
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from viaduct.errors import BadValue, LostRank

Record = TypeVar("Record", bound=type)
PREFIX_BYTES = 8  # for the length of the JSON text
MAX_DEPTH = 64  # of containers within containers in a message that is received
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
        torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
    )
}  # fmt: skip
RECORDS: dict[str, Any] = {}  # classes marked `sendable`, by name


def sendable(kind: Record) -> Record:
    """Mark a NamedTuple or dataclass whose fields may be sent to other ranks."""
    RECORDS[kind.__name__] = kind
    return kind


def encode(value: Any) -> bytes:
    """Return a value as a message; raise BadValue with the type of a value that cannot be sent."""
    buffers: list[bytes] = []
    text = json.dumps(to_json(value, buffers)).encode()
    return b"".join((len(text).to_bytes(PREFIX_BYTES, "little"), text, *buffers))


def to_json(value: Any, buffers: list[bytes]) -> Any:
    """Return a value in types of JSON; append the bytes of its tensors to `buffers`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return to_json(value.item(), buffers)
    if isinstance(value, list):
        return [to_json(item, buffers) for item in value]
    if type(value).__name__ in RECORDS and isinstance(value, RECORDS[type(value).__name__]):
        names = getattr(value, "_fields", None) or list(vars(value))
        return {type(value).__name__: [to_json(getattr(value, name), buffers) for name in names]}
    if isinstance(value, tuple):
        return {"tuple": [to_json(item, buffers) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[to_json(key, buffers), to_json(item, buffers)] for key, item in value.items()]}
    if isinstance(value, Tensor | np.ndarray):
        return {"tensor" if isinstance(value, Tensor) else "array": add_tensor(torch.as_tensor(value), buffers)}
    if isinstance(value, PurePath):
        return {"path": str(value)}
    if isinstance(value, torch.dtype) and value in DTYPES.values():
        return {"dtype": str(value).removeprefix("torch.")}
    raise build_type_error(type(value).__name__)


def add_tensor(tensor: Tensor, buffers: list[bytes]) -> list[Any]:
    """Append the bytes of a tensor to `buffers`; return its dtype, and its sizes and axes in the order of memory."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES or tensor.layout != torch.strided:
        raise build_type_error(f"tensor of {name}, {str(tensor.layout).removeprefix('torch.')}")
    # Axes in the order of memory, so that channels_last stays channels_last.
    strides, sizes = tuple(tensor.stride()), tuple(tensor.shape)
    order = sorted(range(tensor.ndim), key=lambda axis: (-strides[axis], -sizes[axis]))
    contiguous = tensor.detach().resolve_conj().resolve_neg().cpu().permute(order).contiguous()
    # as_strided, because reshape may keep stride 0 for a tensor of one element, and view needs stride 1.
    elements = contiguous.as_strided((contiguous.numel(),), (1,))
    buffers.append(elements.view(torch.uint8).numpy().tobytes())
    return [name, list(contiguous.shape), order]


def build_type_error(kind: str) -> BadValue:
    hint = "States of optimizers and the like are made of numbers, texts, lists, tuples, dictionaries and tensors."
    return BadValue(f"a {kind} cannot be sent from one rank to another.", hint)


def decode(data: memoryview | bytes) -> Any:
    """Return the value of a message; raise LostRank for bytes that are no message."""
    view = memoryview(data)
    length = int.from_bytes(view[:PREFIX_BYTES], "little")
    if len(view) < PREFIX_BYTES or length > len(view) - PREFIX_BYTES:
        raise LostRank(f"a message of {len(view):,} bytes that is cut short came from another rank.")
    reader = Reader(view[PREFIX_BYTES + length :])
    try:
        value = reader.read_value(json.loads(bytes(view[PREFIX_BYTES : PREFIX_BYTES + length])), MAX_DEPTH)
        if reader.position != len(reader.data):
            raise ValueError("more bytes than its tensors need")
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError) as error:
        raise LostRank(f"a message that cannot be understood came from another rank: {error}.") from None
    return value


class Reader:
    """Reads the values of a message; its tensors in the order in which they were added."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.position = 0

    def read_value(self, record: Any, depth: int) -> Any:
        """Return the value that `to_json` wrote as `record`; raise ValueError if it is nested deeper than `depth`."""
        if depth == 0:
            raise ValueError("it is nested too deeply")
        if isinstance(record, list):
            return [self.read_value(item, depth - 1) for item in record]
        if not isinstance(record, dict):
            return record
        ((kind, content),) = record.items()
        if kind in RECORDS:
            return RECORDS[kind](*self.read_value(content, depth - 1))
        if kind == "dict":
            return {self.read_value(key, depth - 1): self.read_value(item, depth - 1) for key, item in content}
        if kind == "tuple":
            return tuple(self.read_value(content, depth - 1))
        if kind in ("tensor", "array"):
            tensor = self.read_tensor(content)
            return tensor if kind == "tensor" else tensor.numpy()
        if kind == "dtype":
            return DTYPES[content]
        if kind == "path":
            return Path(content)
        raise ValueError(f"a value of an unknown kind, {kind!r}")

    def read_tensor(self, content: Any) -> Tensor:
        """Return the next tensor of the message, in the memory layout that it was sent in."""
        name, shape, order = content
        dtype = DTYPES[name]
        if not all(type(size) is int and size >= 0 for size in shape) or sorted(order) != [*range(len(shape))]:
            raise ValueError("a tensor of an impossible shape")
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes > len(self.data) - self.position:
            raise ValueError("fewer bytes than its tensors need")
        buffer = bytearray(self.data[self.position : self.position + nbytes])
        self.position += nbytes
        tensor = torch.frombuffer(buffer, dtype=dtype).reshape(shape) if buffer else torch.empty(shape, dtype=dtype)
        return tensor.permute([order.index(axis) for axis in range(len(order))])  # undoes the permutation of the sender
