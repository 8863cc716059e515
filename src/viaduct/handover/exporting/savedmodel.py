"""A SavedModel with a signature `predict`, also under TensorFlow Serving's default name `serving_default`.

tf.saved_model.load("served").signatures["predict"](input=images)         {"classes": …, "probabilities": …}

The input is called `image_bytes` instead of `input` if the graph takes encoded images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from viaduct.devices.base import summarise_error
from viaduct.errors import DiskFull
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.format import Batch, FileDescription, Predictions
from viaduct.handover.exporting.request import ExportRequest
from viaduct.handover.exporting.tf_graph import build_graph, convert_batch, convert_outputs
from viaduct.handover.exporting.tf_network import import_tensorflow

WRITER_PACKAGES = ("tensorflow",)
RUNNER_PACKAGES = ("tensorflow",)
SIGNATURES = ("predict", "serving_default")


def write(classifier: Classifier, request: ExportRequest, path: Path) -> FileDescription:
    """Write the folder."""
    tf = import_tensorflow()
    v1 = tf.compat.v1
    built = build_graph(classifier, request)
    (graph_input,) = built.description.inputs
    with built.graph.as_default():
        signature = v1.saved_model.build_signature_def(
            inputs={graph_input.name: v1.saved_model.build_tensor_info(built.input)},
            outputs={name: v1.saved_model.build_tensor_info(tensor) for name, tensor in built.outputs.items()},
            method_name=v1.saved_model.signature_constants.PREDICT_METHOD_NAME,
        )
    try:
        with v1.Session(graph=built.graph) as session:
            builder = v1.saved_model.Builder(str(path))
            builder.add_meta_graph_and_variables(
                session,
                [v1.saved_model.tag_constants.SERVING],
                signature_def_map=dict.fromkeys(SIGNATURES, signature),
                strip_default_attrs=True,
            )
            builder.save()
    except tf.errors.OpError as error:  # such as for a full disk
        raise DiskFull(f"cannot write {request.out}: {summarise_error(error)}") from None
    return built.description


class SavedModel:
    """Signature `predict` of a SavedModel opened in TensorFlow 2."""

    takes_nhwc = True

    def __init__(self, path: Path, classifier: Classifier) -> None:
        self.tf = import_tensorflow()
        self.runtime = f"TensorFlow {self.tf.__version__}"
        self.loaded: Any = self.tf.saved_model.load(str(path))
        self.predict: Any = self.loaded.signatures["predict"]
        ((self.key, _),) = self.predict.structured_input_signature[1].items()

    def run(self, batch: Batch) -> Predictions:
        return convert_outputs(self.predict(**{self.key: self.tf.constant(convert_batch(batch))}))


open_runner = SavedModel
