"""Device strings and device options: what names a card is the CPU here.

A GPU that is left in a script for the NPU or the MLU is told; in the original it is what it should be.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Literal

from viaduct.rehearsal import limits

CARD = re.compile(r"(device:)?\b(gpu|xla_gpu|mlu|npu)\b(:(\d+|\*))?", re.IGNORECASE)
GPU = re.compile(r"\b(xla_)?gpu\b", re.IGNORECASE)
On = Literal["npu", "mlu", "original"]


def install(on: On) -> None:
    """Map device strings to the CPU."""
    import tensorflow.compat.v1 as tf
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.python.distribute import device_util
    from tensorflow.python.framework import ops

    ops.Graph.device = on_the_cpu(ops.Graph.device, on)
    device_util.canonicalize = mapped_first(device_util.canonicalize, on)
    device_util.resolve = mapped_first(device_util.resolve, on)
    for name in ("MirroredStrategy", "OneDeviceStrategy"):
        wrap_strategy(getattr(tf.distribute, name), on)
    if on == "mlu":
        # A field of Cambricon's build only; an alias of gpu_options, which the CPU does not read either.
        ConfigProto.mlu_options = property(lambda config: config.gpu_options)
    if on == "npu":
        refuse_eager(tf)


def map_device(device: Any, on: On) -> Any:
    """Return the device on this machine; a GPU that should be gone is reported."""
    if not isinstance(device, str):
        return device
    if on != "original" and GPU.search(device):
        change = "Write mlu for gpu." if on == "mlu" else "Remove the device block; the whole graph runs on the NPU."
        limits.report_violation(
            "gpu-device",
            f"The device {device!r} is asked for.",
            "There is no GPU: without soft placement the graph is refused, with it this part runs on the host.",
            change,
        )
    return CARD.sub("device:CPU:0", device).replace("device:device:", "device:")


def on_the_cpu(plain: Callable[..., Any], on: On) -> Callable[..., Any]:
    """Wrap tf.device, so that devices of the card become the CPU."""

    @functools.wraps(plain)
    def device(self: Any, device_name_or_function: Any) -> Any:
        given = device_name_or_function
        if callable(given) and not hasattr(given, "to_string"):
            chooser = given

            def choose(op: Any) -> Any:
                return map_device(chooser(op), on)

            return plain(self, choose)
        return plain(self, map_device(given, on))

    return device


def mapped_first(plain: Callable[..., Any], on: On) -> Callable[..., Any]:
    """Wrap a function whose first argument is a device."""

    @functools.wraps(plain)
    def resolve(device: Any, *args: Any, **kwargs: Any) -> Any:
        return plain(map_device(device, on), *args, **kwargs)

    return resolve


def wrap_strategy(kind: Any, on: On) -> None:
    """Several cards become one CPU: replicas compute the same thing from the same batch there."""
    plain = kind.__init__

    @functools.wraps(plain)
    def init(self: Any, *args: Any, **named: Any) -> None:
        values = [*args, *named.values()]
        asked = next((value for value in values if value is not None and not hasattr(value, "reduce")), None)
        names = [map_device(name, on) for name in ([asked] if isinstance(asked, str) else asked or [])]
        if kind.__name__.startswith("OneDevice"):
            plain(self, names[0] if names else "/device:CPU:0")
        else:
            plain(self, ["/device:CPU:0"])

    kind.__init__ = init


def refuse_eager(tf: Any) -> None:
    """Report calls that switch eager mode on."""
    for name in ("enable_eager_execution", "enable_v2_behavior"):
        setattr(tf, name, eager_refused(name, getattr(tf, name)))


def eager_refused(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that switches eager mode on."""

    @functools.wraps(plain)
    def enable(*args: Any, **named: Any) -> Any:
        limits.report_violation(
            "eager",
            f"tf.{name} is called.",
            "Nothing is compiled for the NPU: everything runs on the host, or the adapter's operators fail.",
            "Build a graph and run it in a session, or in an Estimator.",
        )
        return plain(*args, **named)

    return enable
