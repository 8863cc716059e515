"""SavedModel and frozen graphs: the references' names, loaded by TensorFlow alone, and operators of other networks."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from command import viaduct
from viaduct.data.png_encoder import encode_png
from viaduct.data.shapes import Shapes
from viaduct.extras import is_installed
from viaduct.handover.classifier import open_run
from viaduct.handover.exporting.export import export
from viaduct.handover.exporting.graph import CannotExport, Network, export_module
from viaduct.handover.exporting.request import Request

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
        Request(form="savedmodel", out=model, input="image-bytes"),
        Request(form="frozen-pb", out=frozen, input="image-bytes", fold=True),
    )
    for request in requests:
        outcome = export(classifier, request).outcome
        assert outcome is not None
        assert outcome.equal == outcome.images == 64
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


def encode_odd_images() -> dict[str, bytes]:
    """Return images of kinds that decoders like to treat differently."""
    generator = np.random.default_rng(0)

    def draw(mode: str, height: int, width: int) -> Image.Image:
        coarse = Image.fromarray(generator.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        return coarse.resize((width, height), Image.Resampling.BICUBIC).convert(mode)

    images = {
        "grey.jpg": draw("L", 90, 120),
        "cmyk.jpg": draw("CMYK", 90, 120),
        "chroma.jpg": draw("RGB", 203, 77),
        "alpha.png": draw("RGBA", 80, 91),
        "grey.png": draw("L", 80, 91),
        "grey_alpha.png": draw("LA", 50, 60),
        "palette.png": draw("P", 70, 99),
        "bits.png": draw("1", 40, 44),
        "sixteen.png": Image.fromarray(generator.integers(0, 65535, (60, 70), dtype=np.uint16)),
        "one.png": draw("RGB", 1, 1),
    }
    encoded = {}
    for name, image in images.items():
        file = io.BytesIO()
        image.save(file, "JPEG" if name.endswith("jpg") else "PNG")
        encoded[name] = file.getvalue()
    progressive = io.BytesIO()
    draw("RGB", 300, 200).save(progressive, "JPEG", progressive=True)
    return {**encoded, "progressive.jpg": progressive.getvalue()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recipe", ["resnet18_imagenet", "resnext50_imagenet"])
def test_odd_images_are_decoded_as_evaluation_does(recipe: str, tmp_path: Path) -> None:
    from families import build_classifier, write_photos

    from viaduct.handover.exporting.checking import compute_expected
    from viaduct.handover.exporting.savedmodel import open_runner

    write_photos(tmp_path / "photos")
    classifier = build_classifier("resnet18_v1", recipe, {}, tmp_path / "photos")
    request = Request(form="savedmodel", out=tmp_path / "served", input="image-bytes", check=False)
    export(classifier, request)
    runner = open_runner(tmp_path / "served", classifier, request)
    for name, encoded in encode_odd_images().items():
        probabilities, _ = runner.run([encoded])
        assert np.abs(probabilities - compute_expected(classifier, [encoded])).max() <= 1e-5, name


# Operators of networks that are not ours


class Pools(nn.Module):
    """Pools of every padding."""

    def __init__(self) -> None:
        super().__init__()
        self.pools = nn.ModuleList(
            [
                nn.MaxPool2d(3, 2, 1),
                nn.MaxPool2d(3, 2),
                nn.MaxPool2d(2, 2, ceil_mode=True),
                nn.AvgPool2d(3, 2, 1),
                nn.AvgPool2d(3, 2, 1, count_include_pad=False),
                nn.AvgPool2d(3, 1, 1, count_include_pad=False),
                nn.AvgPool2d(2, 2, ceil_mode=True),
                nn.AvgPool2d(3, 2, 1, ceil_mode=True),
                nn.AvgPool2d((2, 3), (1, 2)),
                nn.AdaptiveAvgPool2d(1),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([pool(x).flatten(1) for pool in self.pools], 1)


class Convolutions(nn.Module):
    """Depthwise, grouped, dilated, strided, without padding, with bias; broadcasting of channels as in SE blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.BatchNorm2d(8),
            nn.SiLU(),
            nn.Conv2d(8, 16, 5, padding=2, groups=8, bias=False),
            nn.ReLU6(),
            nn.Conv2d(16, 8, 3, stride=(2, 1), padding=(1, 0), groups=4),
            nn.Hardswish(),
            nn.Conv2d(8, 8, 3, dilation=2, padding=2),
            nn.LeakyReLU(0.2),
            nn.GELU(),
            nn.Dropout(0.5),
        )
        self.squeeze = nn.Conv2d(8, 8, 1)
        self.head = nn.Sequential(nn.Flatten(), nn.LazyLinear(12), nn.BatchNorm1d(12), nn.Linear(12, 4, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        y = y * torch.sigmoid(self.squeeze(y.mean((2, 3), keepdim=True)))
        logits: Tensor = self.head(nn.functional.pad(y, (-1, 1, 0, 2), value=0.5) - 2 * y.mean() + y[:, :1, -1:, ::1])
        return logits


class Sorts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).sort(1).values[:, :4]


def run_translated(network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs of PyTorch and of TensorFlow."""
    from viaduct.handover.exporting.tf_network import import_tensorflow, translate

    tf = import_tensorflow()
    with torch.no_grad():
        network.eval()(inputs)
        for norm in network.modules():
            if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
                assert norm.running_mean is not None
                norm.running_mean.uniform_(-0.3, 0.3)
        expected = network(inputs)
    example = torch.zeros(2, *inputs.shape[1:])
    program = export_module(Network(network, torch.float32).eval(), example, {0: torch.export.Dim("batch", min=1)})
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        images = tf.compat.v1.placeholder(tf.float32, [None, *inputs.shape[2:], 3])
        logits = translate(program.run_decompositions(), images)
        found = session.run(logits, {images: inputs.permute(0, 2, 3, 1).numpy()})
    return expected, torch.from_numpy(found)


@pytest.mark.parametrize("network", [Pools, Convolutions])
@pytest.mark.parametrize("shape", [(12, 12), (13, 11), (9, 16)])
@pytest.mark.filterwarnings("ignore")
def test_operators_of_other_networks_are_translated(network: type[nn.Module], shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    expected, found = run_translated(network(), torch.randn(3, 3, *shape))
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=2e-5)


@pytest.mark.filterwarnings("ignore")
def test_an_operator_without_translation_is_named() -> None:
    with pytest.raises(CannotExport, match=r"the network uses aten\.sort"):
        run_translated(Sorts(), torch.randn(3, 3, 4, 4))
