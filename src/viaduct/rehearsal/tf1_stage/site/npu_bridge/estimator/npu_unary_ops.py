"""The object `npu_unary_ops`, whose methods are operators."""

from __future__ import annotations

import math
from typing import Any

import tensorflow.compat.v1 as tf


class NpuUnaryOps:
    """Operators of one input."""

    def gelu(self, x: Any) -> Any:
        """Return GELU in its tanh approximation, as on the NPU."""
        x = tf.convert_to_tensor(x)
        return 0.5 * x * (1.0 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3))))


npu_unary_ops = NpuUnaryOps()
