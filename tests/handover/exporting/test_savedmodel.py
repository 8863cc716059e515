"""SavedModel and frozen graphs: the references' names, loaded by TensorFlow alone, and operators of other networks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from forked_viaduct import viaduct
from viaduct.data.png import encode_png
from viaduct.data.shapes import Shapes
from viaduct.extras import is_installed
from viaduct.handover.classifier import open_run
from viaduct.handover.exporting.export import export
from viaduct.handover.exporting.request import ExportRequest

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not is_installed("tensorflow"), reason="TensorFlow is not installed"),
]

LOAD = """
import json, sys
from pathlib import Path
import numpy as np
import tensorflow as tf
model, frozen, files = sys.argv[1], sys.argv[2], sys.argv[3:]
encoded = np.array([Path(file).read_bytes() for file in files], dtype=object)
loaded = tf.saved_model.load(model)
answer = loaded.signatures["predict"](image_bytes=tf.constant(encoded))
second = {name: tensor.numpy() for name, tensor in answer.items()}
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    meta = tf.compat.v1.saved_model.load(session, ["serve"], model)
    signature = meta.signature_def["predict"]
    fetched = {name: info.name for name, info in signature.outputs.items()}
    first = session.run(fetched, {signature.inputs["image_bytes"].name: encoded})
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    definition = tf.compat.v1.GraphDef.FromString(Path(frozen).read_bytes())
    tf.import_graph_def(definition, name="")
    third = session.run({"classes": "classes:0", "probabilities": "probabilities:0"}, {"input_tensor:0": encoded})
same = all(np.allclose(first[name], other[name], atol=1e-6) for name in first for other in (second, third))
print(json.dumps({
    "same": same,
    "signatures": sorted(meta.signature_def),
    "input": signature.inputs["image_bytes"].name,
    "outputs": sorted(first),
    "classes": first["classes"].tolist(),
    "loops": sorted({node.op for node in definition.node if "While" in node.op}),
}))
"""


def load_with_tensorflow(*words: str | Path) -> dict[str, object]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *map(str, words)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    loaded: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return loaded


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_image_bytes_are_answered_under_the_references_names(shapes_run: Path, tmp_path: Path) -> None:
    model, frozen = tmp_path / "served", tmp_path / "graph.pb"
    classifier = open_run(shapes_run)
    requests = (
        ExportRequest(form="savedmodel", out=model, input="image-bytes"),
        ExportRequest(form="frozen-pb", out=frozen, input="image-bytes", fold=True),
    )
    for request in requests:
        check_result = export(classifier, request).check_result
        assert check_result is not None
        assert check_result.same_top1 == check_result.images == 64
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("graph.pb", "graph.pb.json", "graph.pb.md", "served", "served.json", "served.md")
    ]
    for card in ("graph.pb.json", "served.json"):
        (taken,) = json.loads((tmp_path / card).read_text())["inputs"]
        assert taken["dtype"] == "string (JPEG, PNG of 32x32 pixels, no other)"
    images = Shapes(global_batch=1, size=32, train_images=1, validation_images=5).load(None).validation.images
    files = [tmp_path / f"{number}.png" for number in range(len(images))]
    for file, image in zip(files, images, strict=True):
        file.write_bytes(encode_png(image))
    answer = load_with_tensorflow(model, frozen, *files)
    inputs = torch.stack([torch.from_numpy(classifier.prepare(file.read_bytes())).permute(2, 0, 1) for file in files])
    with torch.inference_mode():
        expected = classifier.network(inputs).argmax(1).tolist()
    assert answer == {
        "same": True,
        "signatures": ["predict", "serving_default"],
        "input": "input_tensor:0",
        "outputs": ["classes", "probabilities"],
        "classes": expected,
        "loops": [],  # those of TensorFlow 1: Enter, Merge, Switch, Exit
    }


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["--batch 8", "--precision fp16", "--fold-bn --precision fp16 --input image-bytes"])
@pytest.mark.parametrize("form", ["savedmodel", "frozen-pb"])
def test_tensorflow_in_other_forms(form: str, flags: str, shapes_run: Path, tmp_path: Path) -> None:
    out = tmp_path / ("served" if form == "savedmodel" else "graph.pb")
    for _ in range(2):  # the second replaces the first
        made = viaduct("export", shapes_run, "--to", form, "--out", out, "--force", *flags.split())
        assert made.returncode == 0, made.stderr
        assert "of 64" in made.stdout
