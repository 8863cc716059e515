"""Requests and responses of the Open Inference Protocol v2 (KServe, Triton), with its binary tensor data extension.

    request = parse_request(body, header_length, limits)        raises Refusal for a malformed or large request
    content, headers = build_response(request, model, probabilities, labels)

A request has one input: `image_bytes` BYTES [N], encoded images; `pixels` UINT8 [N, height, width, 3], decoded ones; or
`images` FP32 [N, 3, size, size], preprocessed ones. In JSON `image_bytes` are base64; in binary data each element is
its length, 4 bytes little-endian, and its bytes.

Outputs: `probabilities` FP32 [N, classes], `classes` INT64 [N], `labels` BYTES [N]; with the classification extension
each of them as BYTES [N, k], "probability:index:label".
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from viaduct.handover.serving.limits import Limits, Refusal

HEADER_LENGTH = "Inference-Header-Content-Length"
VERSION = "1"
EXTENSIONS = ["binary_tensor_data", "classification"]
DTYPES: dict[str, np.dtype[Any]] = {"FP32": np.dtype("<f4"), "UINT8": np.dtype("u1"), "INT64": np.dtype("<i8")}
INPUTS = {"image_bytes": "BYTES", "pixels": "UINT8", "images": "FP32"}
OUTPUTS = {"probabilities": "FP32", "classes": "INT64", "labels": "BYTES"}


@dataclass(frozen=True)
class RequestedOutput:
    """Requested output and its form."""

    name: str  # a key of OUTPUTS
    binary: bool = False  # True: as binary data, not JSON
    classification: int = 0  # number of most probable classes that are returned as text; 0: the tensor is returned


@dataclass(frozen=True)
class InferRequest:
    """Parsed request; its images are not checked yet."""

    input: str  # a key of INPUTS
    shape: tuple[int, ...]
    data: Any  # list of bytes for image_bytes, otherwise an array of this shape
    outputs: tuple[RequestedOutput, ...]
    id: str | None = None


@dataclass
class BinaryPart:
    """Binary data after the JSON of a request."""

    data: memoryview
    used: int = 0  # how many bytes have been taken

    def take(self, size: int, name: str) -> memoryview:
        """Return the next `size` bytes; `name` is that of the input, for errors."""
        if size > len(self.data) - self.used:
            raise Refusal(
                400,
                f"input '{name}': binary_data_size is {size:,}, and {len(self.data) - self.used:,} bytes follow "
                "the JSON.",
            )
        self.used += size
        return self.data[self.used - size : self.used]


def describe_model(name: str, size: int, classes: int) -> dict[str, Any]:
    """Return the metadata of the model."""
    shapes: dict[str, list[int]] = {
        "image_bytes": [-1],
        "pixels": [-1, -1, -1, 3],
        "images": [-1, 3, size, size],
        "probabilities": [-1, classes],
        "classes": [-1],
        "labels": [-1],
    }

    def describe(tensors: dict[str, str]) -> list[dict[str, Any]]:
        return [{"name": tensor, "datatype": kind, "shape": shapes[tensor]} for tensor, kind in tensors.items()]

    return {
        "name": name,
        "versions": [VERSION],
        "platform": "viaduct_pytorch",
        "inputs": describe(INPUTS),
        "outputs": describe(OUTPUTS),
    }


def parse_request(body: bytes, header_length: str | None, limits: Limits) -> InferRequest:
    """Parse a request; raise Refusal if it is malformed or too large."""
    head, binary = split_body(body, header_length, limits)
    request = require_type(parse_json(head), dict, "the request", absent="null")
    identity = request.get("id")
    if identity is not None:
        require_type(identity, str, "'id'")
    parameters = read_parameters(request, "the request")
    inputs = require_type(request.get("inputs"), list, "'inputs'")
    if len(inputs) != 1:
        raise Refusal(400, f"'inputs' has {len(inputs):,} tensors; give one of: {', '.join(INPUTS)}.")
    name, shape, data = parse_input(require_type(inputs[0], dict, "the input"), binary, limits)
    if binary.used != len(binary.data):
        raise Refusal(400, f"{len(binary.data) - binary.used:,} bytes follow the data that the JSON describes.")
    all_binary = require_type(parameters.get("binary_data_output", False), bool, "'binary_data_output'")
    return InferRequest(name, shape, data, parse_outputs(request.get("outputs"), all_binary), identity)


def split_body(body: bytes, header_length: str | None, limits: Limits) -> tuple[bytes, BinaryPart]:
    """Split a body into the JSON and the binary data after it."""
    if header_length is None:
        head, binary = body, memoryview(b"")
    else:
        if not (header_length.isascii() and header_length.isdigit() and len(header_length) < 12):
            raise Refusal(400, f"{HEADER_LENGTH} is {header_length[:40]!r}; it must be the number of bytes of JSON.")
        length = int(header_length)
        if not 0 < length <= len(body):
            raise Refusal(400, f"{HEADER_LENGTH} is {length:,}, and the body has {len(body):,} bytes.")
        head, binary = body[:length], memoryview(body)[length:]
    if len(head) > limits.max_json:
        raise Refusal(
            413, f"the JSON has {len(head):,} bytes; at most {limits.max_json:,} are parsed. Send the data as binary."
        )
    return head, BinaryPart(binary)


def parse_json(text: bytes) -> Any:
    """Parse JSON; raise Refusal if it is not valid."""
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the JSON is not UTF-8 at byte {error.start:,}.") from None
    except json.JSONDecodeError as error:
        raise Refusal(400, f"not JSON: {error}.") from None
    except RecursionError:
        raise Refusal(400, "the JSON is nested too deeply.") from None
    except ValueError:  # the only valid JSON that Python does not parse
        raise Refusal(400, "the JSON holds a whole number of more digits than are parsed.") from None


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python accepts."""
    raise Refusal(400, f"not JSON: {name}.")


def require_type(value: Any, kind: type, name: str, absent: str = "missing or null") -> Any:
    """Return the value if it has this type (a bool is not an int), else raise Refusal with its name."""
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    names = {dict: "an object", list: "an array", str: "a string", int: "a whole number", bool: "true or false"}
    got = absent if value is None else f"{json.dumps(value)[:40]}"
    raise Refusal(400, f"{name} must be {names[kind]}; it is {got}.")


def read_parameters(parent: dict[str, Any], description: str) -> dict[str, Any]:
    """Return the parameters of a request, an input or an output."""
    parameters: dict[str, Any] = require_type(parent.get("parameters") or {}, dict, f"'parameters' of {description}")
    if any(name.startswith("shared_memory") for name in parameters):
        raise Refusal(400, f"{description}: shared memory is not supported.")
    return parameters


def parse_input(tensor: dict[str, Any], binary: BinaryPart, limits: Limits) -> tuple[str, tuple[int, ...], Any]:
    """Return name, shape and values of the input."""
    name = require_type(tensor.get("name"), str, "'name' of the input")
    if name not in INPUTS:
        raise Refusal(400, f"there is no input '{name[:60]}'; there are: {', '.join(INPUTS)}.")
    if tensor.get("datatype") != INPUTS[name]:
        raise Refusal(400, f"input '{name}': its datatype is {INPUTS[name]}, not {str(tensor.get('datatype'))[:40]!r}.")
    shape = parse_shape(tensor.get("shape"), name, limits)
    parameters = read_parameters(tensor, f"input '{name}'")
    if "binary_data_size" in parameters:
        if "data" in tensor:
            raise Refusal(400, f"input '{name}' has both 'data' and 'binary_data_size'.")
        size = require_type(parameters["binary_data_size"], int, f"input '{name}': 'binary_data_size'")
        if size < 0:
            raise Refusal(400, f"input '{name}': 'binary_data_size' is {size}.")
        return name, shape, decode_binary(name, shape, binary.take(size, name))
    if "data" not in tensor:
        raise Refusal(400, f"input '{name}' has neither 'data' nor the parameter 'binary_data_size'.")
    return name, shape, decode_json(name, shape, tensor["data"])


def parse_shape(value: Any, name: str, limits: Limits) -> tuple[int, ...]:
    """Return the shape of the input; the size of images is not checked here."""
    numbers = require_type(value, list, f"input '{name}': 'shape'")
    if len(numbers) > 8:
        raise Refusal(400, f"input '{name}': 'shape' has {len(numbers):,} numbers.")
    shape = tuple(require_type(number, int, f"input '{name}': each number of 'shape'") for number in numbers)
    if name == "image_bytes" and len(shape) == 2 and shape[1] == 1:
        shape = shape[:1]  # clients write [N, 1] for servers that add a batch dimension, such as Triton
    if len(shape) != (1 if name == "image_bytes" else 4) or any(not 0 < number < 1 << 31 for number in shape):
        expected = {"image_bytes": "[N]", "pixels": "[N, height, width, 3]", "images": "[N, 3, size, size]"}[name]
        raise Refusal(400, f"input '{name}': the shape is {list(shape)}; it must be {expected}.")
    if shape[0] > limits.images_per_request:
        raise Refusal(413, f"the request has {shape[0]:,} images; at most {limits.images_per_request:,} are taken.")
    return shape


def decode_binary(name: str, shape: tuple[int, ...], data: memoryview) -> Any:
    """Decode binary data."""
    if name == "image_bytes":
        return split_elements(data, shape[0])
    dtype = DTYPES[INPUTS[name]]
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise Refusal(
            400, f"input '{name}': shape {list(shape)} has {expected:,} bytes, and binary_data_size is {len(data):,}."
        )
    return np.frombuffer(data, dtype).reshape(shape)


def split_elements(data: memoryview, count: int) -> list[bytes]:
    """Return the elements of a BYTES tensor."""
    elements: list[bytes] = []
    position = 0
    while position < len(data):
        if len(elements) == count or position + 4 > len(data):
            raise Refusal(400, f"input 'image_bytes': the binary data do not have {count:,} elements.")
        (length,) = struct.unpack_from("<I", data, position)
        position += 4
        if length > len(data) - position:
            raise Refusal(
                400,
                f"input 'image_bytes': element {len(elements)} says that it has {length:,} bytes; "
                f"{len(data) - position:,} are left.",
            )
        elements.append(bytes(data[position : position + length]))
        position += length
    if len(elements) != count:
        raise Refusal(400, f"input 'image_bytes': the shape says {count:,}, the data have {len(elements):,} elements.")
    return elements


def decode_json(name: str, shape: tuple[int, ...], data: Any) -> Any:
    """Decode JSON data, flat or nested."""
    if name == "image_bytes":
        return decode_strings(data, shape[0])
    require_type(data, list, f"input '{name}': 'data'")
    try:
        values = np.asarray(data) if not has_booleans(data) else np.empty(0, object)
    except (ValueError, OverflowError):  # lists of unequal length
        values = np.empty(0, object)
    if values.dtype.kind not in "iuf":
        raise Refusal(400, f"input '{name}': 'data' must hold numbers only, in lists of equal length.")
    if values.size != math.prod(shape) or (values.ndim > 1 and values.shape != shape):
        raise Refusal(400, f"input '{name}': 'data' has the shape {list(values.shape)}; 'shape' is {list(shape)}.")
    if name == "pixels" and not (values.dtype.kind in "iu" and values.min() >= 0 and values.max() <= 255):
        raise Refusal(400, "input 'pixels': values must be whole numbers from 0 to 255.")
    with np.errstate(over="ignore"):  # infinite values are refused later
        return values.astype(DTYPES[INPUTS[name]]).reshape(shape)


def has_booleans(data: list[Any]) -> bool:
    """Return True if a value is true or false, which numpy would convert to 1 and 0."""
    kinds = set(map(type, data))
    return bool in kinds or (list in kinds and any(has_booleans(row) for row in data if type(row) is list))


def decode_strings(data: Any, count: int) -> list[bytes]:
    """Decode base64 strings."""
    strings = require_type(data, list, "input 'image_bytes': 'data'")
    if all(isinstance(element, list) and len(element) == 1 for element in strings):
        strings = [element[0] for element in strings]  # shape [N, 1], nested
    if len(strings) != count:
        raise Refusal(400, f"input 'image_bytes': the shape says {count:,}, 'data' has {len(strings):,} elements.")
    images = []
    for position, text in enumerate(strings):
        require_type(text, str, f"input 'image_bytes': element {position}")
        try:
            images.append(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError):
            raise Refusal(
                400,
                f"input 'image_bytes': element {position} is not base64, which JSON needs here. "
                "Send the bytes themselves as binary tensor data.",
            ) from None
    return images


def parse_outputs(value: Any, all_binary: bool) -> tuple[RequestedOutput, ...]:
    """Return the requested outputs; by default all outputs."""
    requested = [] if value is None else require_type(value, list, "'outputs'")
    if not requested:
        return tuple(RequestedOutput(name, all_binary) for name in OUTPUTS)
    outputs: list[RequestedOutput] = []
    for tensor in requested:
        name = require_type(require_type(tensor, dict, "each of 'outputs'").get("name"), str, "'name' of an output")
        if name not in OUTPUTS:
            raise Refusal(400, f"there is no output '{name[:60]}'; there are: {', '.join(OUTPUTS)}.")
        if any(output.name == name for output in outputs):
            raise Refusal(400, f"output '{name}' is requested twice.")
        parameters = read_parameters(tensor, f"output '{name}'")
        binary = require_type(parameters.get("binary_data", all_binary), bool, f"output '{name}': 'binary_data'")
        count = require_type(parameters.get("classification", 0), int, f"output '{name}': 'classification'")
        if count < 0:
            raise Refusal(400, f"output '{name}': 'classification' is {count}.")
        outputs.append(RequestedOutput(name, binary, count))
    return tuple(outputs)


def build_response(
    request: InferRequest, model: str, probabilities: npt.NDArray[np.float32], labels: Sequence[str]
) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of the response."""
    described: list[dict[str, Any]] = []
    binary: list[bytes] = []
    for output in request.outputs:
        datatype, values = compute_output(output, probabilities, labels)
        entry: dict[str, Any] = {"name": output.name, "datatype": datatype, "shape": list(values.shape)}
        if output.binary:
            data = encode_values(values)
            entry["parameters"] = {"binary_data_size": len(data)}
            binary.append(data)
        else:
            entry["data"] = values.reshape(-1).tolist()
        described.append(entry)
    response: dict[str, Any] = {"model_name": model, "model_version": VERSION, "outputs": described}
    if request.id is not None:
        response["id"] = request.id
    head = json.dumps(response, allow_nan=False).encode()
    if not binary:
        return head, {"content-type": "application/json"}
    headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(head))}
    return b"".join([head, *binary]), headers


def compute_output(
    output: RequestedOutput, probabilities: npt.NDArray[np.float32], labels: Sequence[str]
) -> tuple[str, npt.NDArray[Any]]:
    """Return datatype and values of an output, N rows; text is an array of str objects."""
    if output.classification:
        count = min(output.classification, len(labels))
        rows = [
            [f"{row[index]:.6f}:{index}:{labels[index]}" for index in rank_classes(row, count)] for row in probabilities
        ]
        return "BYTES", np.array(rows, dtype=object)
    if output.name == "probabilities":
        return "FP32", probabilities
    classes = probabilities.argmax(axis=1).astype(np.int64)
    if output.name == "classes":
        return "INT64", classes
    return "BYTES", np.array([labels[index] for index in classes], dtype=object)


def rank_classes(row: npt.NDArray[np.float32], count: int) -> list[int]:
    """Return the most probable classes; equally probable ones by index."""
    return [int(index) for index in np.argsort(-row, kind="stable")[:count]]


def encode_values(values: npt.NDArray[Any]) -> bytes:
    """Encode a tensor as binary data."""
    if values.dtype != object:
        return values.astype(values.dtype.newbyteorder("<")).tobytes()
    elements = [text.encode() for text in values.reshape(-1)]
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)
