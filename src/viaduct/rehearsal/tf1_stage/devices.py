"""Maps the devices that a TensorFlow script names (`tf.device("/gpu:0")`, strategies) to the CPU.

A request for a GPU is reported in a script that was migrated to the NPU or MLU, not in the original script.
"""

from __future__ import annotations

import re
from typing import Any

from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import state
from viaduct.rehearsal.wrapping import wrap

# A card in a device string: "gpu:0", "device:MLU:1" (of "/device:MLU:1"), "npu:*".
CARD_PATTERN = re.compile(r"(device:)?\b(gpu|xla_gpu|mlu|npu)\b(:(\d+|\*))?", re.IGNORECASE)
GPU_PATTERN = re.compile(r"\b(xla_)?gpu\b", re.IGNORECASE)


def install() -> None:
    """Map device strings and strategies to the CPU; for the NPU report eager mode, for the MLU add `mlu_options`."""
    import tensorflow.compat.v1 as tf
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.python.distribute import device_util
    from tensorflow.python.framework import ops

    @wrap(ops.Graph, "device")
    def device(plain: Any, self: Any, device_name_or_function: Any) -> Any:
        if callable(device_name_or_function):
            return plain(self, lambda op: map_device(device_name_or_function(op)))
        return plain(self, map_device(device_name_or_function))

    for name in ("canonicalize", "resolve"):

        @wrap(device_util, name)
        def resolve(plain: Any, device: Any, *args: Any, **kwargs: Any) -> Any:
            return plain(map_device(device), *args, **kwargs)

    for name in ("MirroredStrategy", "OneDeviceStrategy"):
        wrap_strategy(getattr(tf.distribute, name))
    if state.platform == "mlu":
        # A field of Cambricon's TensorFlow; here an alias of gpu_options, which the CPU does not read.
        ConfigProto.mlu_options = property(lambda config: config.gpu_options)
    if state.platform == "npu":
        report_eager(tf, "enable_eager_execution")
        report_eager(tf, "enable_v2_behavior")


def map_device(device: Any) -> Any:
    """Return the string of a device, with the CPU in place of a card; return None and the like unchanged.

    A GPU is reported, unless the script is the original.
    """
    if hasattr(device, "to_string"):
        device = device.to_string()  # of a tf.DeviceSpec
    if not isinstance(device, str):
        return device
    if state.platform != "original" and GPU_PATTERN.search(device):
        limits.report_violation("gpu-device", "mlu" if state.platform == "mlu" else "", requested=device)
    return CARD_PATTERN.sub("device:CPU:0", device)


def wrap_strategy(kind: Any) -> None:
    """Wrap the constructor of a strategy class so that the strategy has one replica, on the CPU."""

    @wrap(kind, "__init__")
    def init(plain: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        # The devices are the first argument that is no CrossDeviceOps; objects of that class have a method `reduce`.
        values = [value for value in (*args, *kwargs.values()) if value is not None and not hasattr(value, "reduce")]
        devices = values[0] if values else []
        for device in [devices] if isinstance(devices, str) else devices:
            map_device(device)  # reports a GPU
        plain(self, "/device:CPU:0" if kind.__name__.startswith("OneDevice") else ["/device:CPU:0"])


def report_eager(tf: Any, name: str) -> None:
    """Wrap a function that switches eager mode on, to report its call."""

    @wrap(tf, name)
    def enable(plain: Any, *args: Any, **kwargs: Any) -> Any:
        limits.report_violation("eager", function=f"tf.{name}")
        return plain(*args, **kwargs)
