"""Checkpoints as TensorFlow itself saves them, of the reference graphs with random weights.

Import this only where TensorFlow is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf

from references import tf_networks

Floats = npt.NDArray[np.float32]

# A ResNeXt has 32 groups whatever its size.
SMALL: dict[str, dict[str, Any]] = {
    "resnet18_v1": {"blocks": (1, 2), "filters": (4, 8)},
    "resnet50_v1": {"blocks": (1, 2), "filters": (4, 8)},
    "resnet18_v2": {"blocks": (1, 2), "filters": (4, 8)},
    "resnet50_v2": {"blocks": (2, 1), "filters": (4, 8)},
    "resnet20_cifar": {"blocks": (1, 2, 1), "filters": (4, 6, 8)},
    "resnet50_v15": {"blocks": (1, 2), "filters": (4, 8)},
    "resnext50": {"blocks": (1, 2), "filters": (32, 64), "stem_filters": 8},
    "amoebanet_d": {"cells": 3, "filters": 16, "stem_filters": 4},
}


class Reference(NamedTuple):
    """A checkpoint, an image and what the graph makes of it."""

    prefix: Path
    images_NHWC: Floats
    logits: Floats


def make_unoptimised_config() -> Any:
    """TensorFlow spends seconds on optimising a graph that runs once."""
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def save(
    folder: Path,
    name: str,
    *,
    classes: int = 7,
    size: int = 33,
    step: int = 5,
    beside: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Reference:
    """Build, save, run; `beside` is called with the logits and may add variables."""
    images = np.random.default_rng(2).standard_normal((2, size, size, 3), dtype=np.float32)
    with tf.Graph().as_default(), tf.Session(config=make_unoptimised_config()) as session:
        tf.set_random_seed(11)
        logits = tf_networks.build(name, tf.constant(images), classes, **options)
        tf.get_variable("global_step", initializer=np.int64(step), trainable=False)
        session.run(tf.global_variables_initializer())
        if beside is not None:
            there = set(tf.global_variables())
            update = beside(logits)
            session.run(tf.variables_initializer([added for added in tf.global_variables() if added not in there]))
            session.run(update)
        prefix = tf.train.Saver().save(session, str(folder / "model.ckpt"), step, write_meta_graph=False)
        return Reference(Path(prefix), images, session.run(logits))
