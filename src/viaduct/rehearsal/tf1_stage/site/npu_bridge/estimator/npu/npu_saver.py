"""NPUSaver is TensorFlow's Saver: variables are on the host here."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


class NPUSaver(tf.train.Saver):  # type: ignore[misc]
    pass
