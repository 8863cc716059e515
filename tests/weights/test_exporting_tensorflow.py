"""A graph of TensorFlow restores what we export, and computes what our network computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from viaduct import models
from viaduct.weights.checkpoint import Entry
from viaduct.weights.exporting import export_tf_checkpoint
from viaduct.weights.stored import Metadata, StoredWeights

pytest.importorskip("tensorflow", reason="restores checkpoints with TensorFlow; install viaduct[tf]")
tf = pytest.importorskip("tensorflow.compat.v1")

from references import tf_networks  # noqa: E402
from weights.reference_checkpoints import SMALL, make_unoptimised_config  # noqa: E402


def lively(name: str, **options: Any) -> nn.Module:
    """A network whose norms look as if they had been trained."""
    torch.manual_seed(5)
    model = models.build(name, 7, **options).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model


@pytest.mark.parametrize(
    ("name", "layout"),
    [("resnet50_v2", ""), ("resnet50_v15", ""), ("resnext50", "a"), ("resnext50", "b"), ("amoebanet_d", "")],
)
def test_a_saver_restores_what_we_export(name: str, layout: str, tmp_path: Path) -> None:
    options = {**SMALL[name], **({"aux": False} if name == "amoebanet_d" else {})}
    model = lively(name, **options)
    infos = {key: Entry("float32", tuple(t.shape), 4 * t.numel()) for key, t in model.state_dict().items()}
    facts = Metadata(name, 7, step=12, options=options)
    stored = StoredWeights(tmp_path, "run", infos, model.state_dict().__getitem__, facts)
    export_tf_checkpoint(stored, tmp_path / "model.ckpt-12", layout=layout)
    images = np.random.default_rng(2).standard_normal((2, 67, 67, 3), dtype=np.float32)
    with tf.Graph().as_default(), tf.Session(config=make_unoptimised_config()) as session:
        grouped = {"layout": layout} if layout else {}
        logits = tf_networks.build(name, tf.constant(images), 7, **options, **grouped)
        step = tf.train.get_or_create_global_step()
        tf.train.Saver().restore(session, tf.train.latest_checkpoint(str(tmp_path)))
        found, restored = session.run((logits, step))
    assert restored == 12
    with torch.no_grad():
        expected = model(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
