"""float64 on the card, alone or as a pair in complex128: a limit where the script asks for it.

It is none where PyTorch itself does for an instant.
"""

from __future__ import annotations

import os
import sys
from types import FrameType

import torch

from viaduct.rehearsal import limits
from viaduct.rehearsal.torch_stage.cards import cards

WIDE = {torch.float64: "float64", torch.complex128: "complex128"}
_TORCH = os.path.dirname(torch.__file__) + os.sep
# GradScaler inverts its scale in float64, which both plug-ins serve; printing looks at a tensor's digits, and a trace
# is checked against what it was traced from.
_OWN = tuple(_TORCH + part for part in (os.path.join("amp", "grad_scaler.py"), "_tensor_str.py", "jit"))


def met(what: str) -> None:
    if limits.mode("float64") == "off" or _is_pytorchs_own():
        return
    limits.report_violation(
        "float64",
        f"{what}.",
        f"Most operators of the {cards.name.upper()} have no float64: they fail, or go to the host and are slow.",
        "Use torch.float32: `.float()`, `dtype=torch.float32`, or an array of float32 before it goes to the device; "
        "complex64 for complex128.",
    )


def _is_pytorchs_own() -> bool:
    """Return True if the call comes from a part of PyTorch itself."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OWN):
            return True
        if not file.startswith((_TORCH, os.path.dirname(__file__))):
            return False
        frame = frame.f_back
    return False
