"""ONNX, run by ONNX Runtime.

    onnxruntime.InferenceSession("model.onnx").run(None, {"pixels": pixels})       [probabilities, classes]

PyTorch's exporter (torch.onnx, dynamo=True) needs onnx and onnxscript, which cannot be installed with TensorFlow 2.15.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from viaduct.atomic_files import write_file
from viaduct.errors import BadValue
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.format import Batch, FileDescription, Predictions, TensorInfo, describe_tensors
from viaduct.handover.exporting.graph import (
    OUTPUTS,
    CannotExport,
    build_module,
    explain_failure,
    silence_exporters,
    trace,
)
from viaduct.handover.exporting.request import ExportRequest

WRITER_PACKAGES = ("onnx", "onnxscript")
RUNNER_PACKAGES = ("onnxruntime",)
NEWEST_OPSET, OLDEST_OPSET = 25, 18  # range of the opsets that onnxscript 0.7 supports
DECODER_OPSET = 20  # the first opset that has ImageDecoder


def write(classifier: Classifier, request: ExportRequest, path: Path) -> FileDescription:
    """Write the graph with its weights; for image bytes, the graph for pixels with a decoder before it."""
    opset = choose_opset(request)
    takes_bytes = request.input == "image-bytes"
    if takes_bytes:
        require_image_decoder(request)
    module = build_module(classifier, request)  # preprocessing, network and softmax
    program = trace(module, classifier, 1 if takes_bytes else request.batch)
    graph_input, outputs = describe_tensors(classifier, request, module.pixels_shape)
    # For image bytes, pixels are traced; the decoder that makes them is inserted afterwards.
    traced_input = TensorInfo("pixels", (1, "height", "width", 3), "uint8") if takes_bytes else graph_input
    model = convert(program, traced_input.name, opset)
    name_sizes(model, traced_input)
    if takes_bytes:
        put_decoder_first(model)
        outputs = tuple(TensorInfo(output.name, (1, *output.shape[1:]), output.dtype) for output in outputs)
    write_file(path, model.SerializeToString())
    return FileDescription((graph_input,), outputs, {"opset": opset, "ir_version": model.ir_version})


def choose_opset(request: ExportRequest) -> int:
    """Return the opset of --opset, or the newest that the exporter and the installed onnx support.

    Raise BadValue if they do not support the requested one.
    """
    import onnx

    newest = min(NEWEST_OPSET, onnx.defs.onnx_opset_version())
    oldest = DECODER_OPSET if request.input == "image-bytes" else OLDEST_OPSET
    if request.opset is not None and not oldest <= request.opset <= newest:
        raise BadValue(f"--opset is {request.opset}.", f"Give {oldest} to {newest}; the default is {newest}.")
    return request.opset or newest


def convert(program: torch.export.ExportedProgram, name: str, opset: int) -> Any:
    """Return the ONNX model of a traced graph."""
    failure, hint = "torch.onnx cannot convert the network", "Try another --opset, or --to pt2."
    with explain_failure(CannotExport, failure, hint), silence_exporters():
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
    return converted.model_proto


def name_sizes(model: Any, graph_input: TensorInfo) -> None:
    """Rename variable sizes from the exporter's names, such as s77, to those of `graph_input`, such as batch."""
    graph = model.graph
    (value,) = graph.input
    dims = zip(value.type.tensor_type.shape.dim, graph_input.shape, strict=True)
    names = {dim.dim_param: str(name) for dim, name in dims if dim.dim_param}
    for tensor in (*graph.input, *graph.output, *graph.value_info):
        for dim in tensor.type.tensor_type.shape.dim:
            if dim.dim_param in names:
                dim.dim_param = names[dim.dim_param]


def require_image_decoder(request: ExportRequest) -> None:
    """Raise BadValue for batches of several images, and CannotExport if ONNX Runtime cannot run ImageDecoder."""
    if request.batch not in (None, 1):
        raise BadValue(f"--batch {request.batch}: ImageDecoder takes one image at a time.", "Leave --batch out.")
    import onnxruntime
    from onnx import TensorProto, helper

    decoder = helper.make_node("ImageDecoder", ["image_bytes"], ["pixels"], pixel_format="RGB")
    encoded = helper.make_tensor_value_info("image_bytes", TensorProto.UINT8, ["length"])
    decoded = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["height", "width", 3])
    graph = helper.make_graph([decoder], "decoder", [encoded], [decoded])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", DECODER_OPSET)], ir_version=9)
    failure = f"onnxruntime {onnxruntime.__version__} cannot decode images"
    hint = "--input pixels takes decoded images; --to savedmodel takes image bytes."
    with explain_failure(CannotExport, failure, hint):
        onnxruntime.InferenceSession(model.SerializeToString(), providers=onnxruntime.get_available_providers())


def put_decoder_first(model: Any) -> None:
    """Insert a decoder, so that the graph's input is one encoded image."""
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
    """.onnx file opened in ONNX Runtime on the CPU."""

    takes_nhwc = False  # a prepared tensor is N x 3 x height x width

    def __init__(self, path: Path, classifier: Classifier) -> None:
        import onnxruntime

        self.runtime = f"onnxruntime {onnxruntime.__version__}"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        with explain_failure(CannotExport, f"{self.runtime} cannot open the graph", "Try a lower --opset."):
            self.session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(self, batch: Batch) -> Predictions:
        (graph_input,) = self.session.get_inputs()
        inputs = [batch] if isinstance(batch, np.ndarray) else [np.frombuffer(data, np.uint8) for data in batch]
        probabilities, classes = zip(
            *(self.session.run(list(OUTPUTS), {graph_input.name: each}) for each in inputs), strict=True
        )
        return np.concatenate(probabilities), np.concatenate(classes)


open_runner = Session
