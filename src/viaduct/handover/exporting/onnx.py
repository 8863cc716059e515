"""ONNX, run by ONNX Runtime.

    onnxruntime.InferenceSession("model.onnx").run(None, {"pixels": pixels})       [probabilities, classes]

The exporter is PyTorch's own (torch.onnx, dynamo=True); it needs onnx and onnxscript, which cannot share an environment
with TensorFlow 2.15.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from viaduct.atomic_files import replace_file
from viaduct.errors import BadValue, lacks_memory
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.format import Batch, Port, Written, graph_ports
from viaduct.handover.exporting.graph import (
    OUTPUTS,
    CannotExport,
    build_served,
    first_line,
    silence_exporters,
    trace,
)
from viaduct.handover.exporting.request import Request

PACKAGES = ("onnx", "onnxscript")
CHECK_PACKAGES = ("onnxruntime",)
NEWEST_OPSET, OLDEST_OPSET = 25, 18  # that onnxscript 0.7 converts to by itself
DECODER_OPSET = 20  # the first with ImageDecoder


def write(classifier: Classifier, request: Request, path: Path) -> Written:
    """Write the graph with its weights inside."""
    opset = choose_opset(request)
    if request.input == "image-bytes":
        require_image_decoder(request)
    served = build_served(classifier, request)
    program = trace(served, classifier, 1 if request.input == "image-bytes" else request.batch)
    shape = served.prepare.shape if served.prepare else None
    taken, outputs = graph_ports(classifier, request, shape)
    name = "pixels" if request.input == "image-bytes" else taken.name
    model = convert(program, name, opset)
    name_sizes(model, taken if request.input != "image-bytes" else Port(name, (1, "height", "width", 3), "uint8"))
    if request.input == "image-bytes":
        put_decoder_first(model)
        outputs = tuple(Port(port.name, (1, *port.shape[1:]), port.dtype) for port in outputs)
    with replace_file(path) as file:
        file.write(model.SerializeToString())
    return Written((taken,), outputs, {"opset": opset, "ir_version": model.ir_version})


def choose_opset(request: Request) -> int:
    """Return the newest opset that exporter and installed onnx know, or the one that was asked for."""
    import onnx

    newest = min(NEWEST_OPSET, onnx.defs.onnx_opset_version())
    oldest = DECODER_OPSET if request.input == "image-bytes" else OLDEST_OPSET
    if request.opset is not None and not oldest <= request.opset <= newest:
        raise BadValue(f"--opset is {request.opset}.", f"Give {oldest} to {newest}; {newest} is taken by itself.")
    return request.opset or newest


def convert(program: torch.export.ExportedProgram, name: str, opset: int) -> Any:
    """Return the ONNX model of a traced graph."""
    try:
        with silence_exporters():
            converted: Any = torch.onnx.export(
                program,
                (),
                None,
                input_names=[name],
                output_names=list(OUTPUTS),
                opset_version=opset,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # operators without a translation, in many forms
        if lacks_memory(error):
            raise
        raise CannotExport(
            f"torch.onnx cannot convert the network: {type(error).__name__}: {first_line(error)}",
            "Another --opset, or --to pt2, may do.",
        ) from error
    return converted.model_proto


def name_sizes(model: Any, taken: Port) -> None:
    """Give open sizes the names of the model card (batch, height, width) instead of the exporter's (s77, ...)."""
    (value,) = model.graph.input
    names = {
        size.dim_param: str(name)
        for size, name in zip(value.type.tensor_type.shape.dim, taken.shape, strict=True)
        if size.dim_param
    }
    graph = model.graph
    for described in (*graph.input, *graph.output, *graph.value_info):
        for size in described.type.tensor_type.shape.dim:
            if size.dim_param in names:
                size.dim_param = names[size.dim_param]


def require_image_decoder(request: Request) -> None:
    """Refuse image bytes where the runtime has no kernel for ImageDecoder: it is tried, not looked up in a list."""
    if request.batch not in (None, 1):
        raise BadValue(f"--batch {request.batch}: ImageDecoder takes one image at a time.", "Leave --batch out.")
    import onnxruntime
    from onnx import TensorProto, helper

    decoder = helper.make_node("ImageDecoder", ["image_bytes"], ["pixels"], pixel_format="RGB")
    encoded = helper.make_tensor_value_info("image_bytes", TensorProto.UINT8, ["length"])
    decoded = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["height", "width", 3])
    graph = helper.make_graph([decoder], "decoder", [encoded], [decoded])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", DECODER_OPSET)], ir_version=9)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=onnxruntime.get_available_providers())
    except Exception as error:
        raise CannotExport(
            f"onnxruntime {onnxruntime.__version__} cannot decode images: {first_line(error)}",
            "--input pixels takes decoded images; --to savedmodel takes image bytes.",
        ) from error


def put_decoder_first(model: Any) -> None:
    """Let the graph take the bytes of one encoded image instead of its pixels."""
    from onnx import TensorProto, helper

    graph = model.graph
    del graph.input[:]
    graph.input.append(helper.make_tensor_value_info("image_bytes", TensorProto.UINT8, ["length"]))
    axis = helper.make_tensor("image_axis", TensorProto.INT64, [1], [0])
    graph.initializer.append(axis)
    nodes = [
        helper.make_node("ImageDecoder", ["image_bytes"], ["image"], pixel_format="RGB"),
        helper.make_node("Unsqueeze", ["image", "image_axis"], ["pixels"]),
        *graph.node,
    ]
    del graph.node[:]
    graph.node.extend(nodes)


class Session:
    """An .onnx file in ONNX Runtime, on the CPU."""

    channels_last = False

    def __init__(self, path: Path) -> None:
        import onnxruntime

        self.runtime = f"onnxruntime {onnxruntime.__version__}"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        try:
            self.session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise CannotExport(
                f"{self.runtime} cannot open the graph: {first_line(error)}", "A lower --opset may do."
            ) from error

    def run(self, batch: Batch) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        (taken,) = self.session.get_inputs()
        if isinstance(batch, np.ndarray):
            probabilities, classes = self.session.run(list(OUTPUTS), {taken.name: batch})
            return probabilities, classes
        rows = [self.session.run(list(OUTPUTS), {taken.name: np.frombuffer(data, np.uint8)}) for data in batch]
        return np.concatenate([row[0] for row in rows]), np.concatenate([row[1] for row in rows])


def open_runner(path: Path, classifier: Classifier, request: Request) -> Session:
    """Open the file in ONNX Runtime."""
    return Session(path)
