"""Images that a TensorFlow graph decodes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from viaduct.extras import is_installed
from viaduct.handover.exporting.export import export
from viaduct.handover.exporting.request import ExportRequest

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not is_installed("tensorflow"), reason="TensorFlow is not installed"),
]


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
    from handover.exporting.export_families import build_classifier, write_photos
    from viaduct.handover.exporting.checking import compute_expected
    from viaduct.handover.exporting.savedmodel import open_runner

    write_photos(tmp_path / "photos")
    classifier = build_classifier("resnet18_v1", recipe, {}, tmp_path / "photos")
    request = ExportRequest(form="savedmodel", out=tmp_path / "served", input="image-bytes", check=False)
    export(classifier, request)
    runner = open_runner(tmp_path / "served", classifier)
    for name, encoded in encode_odd_images().items():
        probabilities, _ = runner.run([encoded])
        assert np.abs(probabilities - compute_expected(classifier, [encoded])).max() <= 1e-5, name
