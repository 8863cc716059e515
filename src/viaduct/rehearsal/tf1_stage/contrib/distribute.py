"""tf.contrib.distribute: strategies of tf.distribute; MirroredStrategy also takes num_gpus."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

OneDeviceStrategy = tf.distribute.OneDeviceStrategy


class MirroredStrategy(tf.distribute.MirroredStrategy):  # type: ignore[misc]
    def __init__(
        self, devices: Any = None, num_gpus: int | None = None, cross_device_ops: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(devices=devices or [f"/gpu:{number}" for number in range(num_gpus or 1)])


class AllReduceCrossDeviceOps:
    """Choice of a reduction library, without effect on one CPU."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
