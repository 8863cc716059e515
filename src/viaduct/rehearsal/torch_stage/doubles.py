"""Reports float64 and complex128 tensors on the card, except for those that three parts of PyTorch make internally."""

from __future__ import annotations

import os
from typing import Any

import torch

from viaduct.rehearsal import limits, wrapping
from viaduct.rehearsal.torch_stage.cards import cards

WIDE_DTYPES = {torch.float64: "float64", torch.complex128: "complex128"}
_TORCH = os.path.dirname(torch.__file__) + os.sep
# GradScaler inverts its scale in float64, which torch_npu and torch_mlu support. Printing a tensor and torch.jit.trace
# compute in float64, too.
_EXEMPT = tuple(_TORCH + part for part in (os.path.join("amp", "grad_scaler.py"), "_tensor_str.py", "jit"))
# Files between the script and an exempt file.
_INSIDE = (_TORCH, os.path.dirname(__file__), limits.__file__, wrapping.__file__)


def report_wide_tensor(dtype: torch.dtype, operator: Any = None) -> None:
    """Report a tensor of a dtype in WIDE_DTYPES; `operator` is the operator that makes it, None for a new tensor."""
    if limits.find_mode("float64") == "off" or _is_called_by_exempt_file():
        return
    case = "" if operator is None else "operator"
    limits.report_violation("float64", case, device=cards.device_name, dtype=WIDE_DTYPES[dtype], operator=operator)


def _is_called_by_exempt_file() -> bool:
    """Return True if one of the exempt files made the tensor, by calls within PyTorch and this folder only."""
    files = (frame.f_code.co_filename for frame in limits.iterate_frames())
    caller = next((file for file in files if file.startswith(_EXEMPT) or not file.startswith(_INSIDE)), "")
    return caller.startswith(_EXEMPT)
