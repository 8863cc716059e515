"""horovod.tensorflow.compression: the dtype in which gradients are exchanged."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class Compressor:
    """Base class, also of a script's own compressors; `ctx` is the second result of `compress`."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class NoneCompressor(Compressor):
    """Exchanges tensors in their own dtype."""


class FP16Compressor(Compressor):
    """Exchanges floating point tensors as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return (tf.cast(tensor, tf.float16), tensor.dtype) if tensor.dtype.is_floating else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class Compression:
    none = NoneCompressor
    fp16 = FP16Compressor
