"""The operators of Ascend's TF Adapter as a module, and the adapter's version."""

from __future__ import annotations

from types import ModuleType

version = "v1.15.0"


def get_gen_ops() -> ModuleType:
    from ..estimator import npu_ops

    return npu_ops
