"""Maps device strings and device options to the CPU.

A request for a GPU is reported in a script that was migrated to the NPU or MLU, not in the original script.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from viaduct.rehearsal import limits
from viaduct.rehearsal.plan import On

# A card in a device string: "gpu:0", "/device:MLU:1", "npu:*".
CARD_PATTERN = re.compile(r"(device:)?\b(gpu|xla_gpu|mlu|npu)\b(:(\d+|\*))?", re.IGNORECASE)
GPU_PATTERN = re.compile(r"\b(xla_)?gpu\b", re.IGNORECASE)


def install(on: On) -> None:
    """Map device strings and strategies to the CPU; on the NPU report eager mode, on the MLU add `mlu_options`."""
    import tensorflow.compat.v1 as tf
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.python.distribute import device_util
    from tensorflow.python.framework import ops

    ops.Graph.device = wrap_graph_device(ops.Graph.device, on)
    device_util.canonicalize = wrap_first_argument(device_util.canonicalize, on)
    device_util.resolve = wrap_first_argument(device_util.resolve, on)
    for name in ("MirroredStrategy", "OneDeviceStrategy"):
        wrap_strategy(getattr(tf.distribute, name), on)
    if on == "mlu":
        # A field of Cambricon's TensorFlow; here an alias of gpu_options, which the CPU does not read.
        ConfigProto.mlu_options = property(lambda config: config.gpu_options)
    if on == "npu":
        for name in ("enable_eager_execution", "enable_v2_behavior"):
            setattr(tf, name, wrap_eager(name, getattr(tf, name)))


def map_device(device: Any, on: On) -> Any:
    """Return a device string with its card replaced by the CPU; report a GPU outside of the original script."""
    if not isinstance(device, str):
        return device
    if on != "original" and GPU_PATTERN.search(device):
        change = "Write mlu for gpu." if on == "mlu" else "Remove the device block; the whole graph runs on the NPU."
        limits.report_violation(
            "gpu-device",
            f"The device {device!r} is requested.",
            "There is no GPU: without soft placement the graph is refused, with it this part runs on the host.",
            change,
        )
    return CARD_PATTERN.sub("device:CPU:0", device).replace("device:device:", "device:")


def wrap_graph_device(plain: Callable[..., Any], on: On) -> Callable[..., Any]:
    """Wrap tf.device so that devices of the card become the CPU."""

    @functools.wraps(plain)
    def device(self: Any, device_name_or_function: Any) -> Any:
        requested = device_name_or_function
        if callable(requested) and not hasattr(requested, "to_string"):  # a DeviceSpec has to_string
            return plain(self, lambda op: map_device(requested(op), on))
        return plain(self, map_device(requested, on))

    return device


def wrap_first_argument(plain: Callable[..., Any], on: On) -> Callable[..., Any]:
    """Wrap a function whose first argument is a device, so that it gets the mapped device."""

    @functools.wraps(plain)
    def resolve(device: Any, *args: Any, **kwargs: Any) -> Any:
        return plain(map_device(device, on), *args, **kwargs)

    return resolve


def wrap_strategy(kind: Any, on: On) -> None:
    """Wrap a strategy's constructor so that it has one replica, on the CPU."""
    plain = kind.__init__

    @functools.wraps(plain)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        values = [*args, *kwargs.values()]
        # The devices are the first argument other than CrossDeviceOps, which have `reduce`. `map_device` reports GPUs.
        devices = next((value for value in values if value is not None and not hasattr(value, "reduce")), None)
        names = [map_device(name, on) for name in ([devices] if isinstance(devices, str) else devices or [])]
        if kind.__name__.startswith("OneDevice"):
            plain(self, names[0] if names else "/device:CPU:0")
        else:
            plain(self, ["/device:CPU:0"])

    kind.__init__ = init


def wrap_eager(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that switches eager mode on, to report its call."""

    @functools.wraps(plain)
    def enable(*args: Any, **kwargs: Any) -> Any:
        limits.report_violation(
            "eager",
            f"tf.{name} is called.",
            "Nothing is compiled for the NPU: everything runs on the host, or the adapter's operators fail.",
            "Build a graph and run it in a session, or in an Estimator.",
        )
        return plain(*args, **kwargs)

    return enable
