"""NaN in our kernels: a diverged network must not compute a finite loss."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

import viaduct.kernels
from kernels.check_kernels import run_on_nan
from kernels.interpreter import Interpret
from viaduct.kernels import norm_kernels

KERNELS = sorted(Path(viaduct.kernels.__file__).parent.glob("*_kernels.py"))
ARGUMENTS = {
    **dict.fromkeys(("x", "other", "y"), "*bf16"),
    **dict.fromkeys(("scale", "shift", "other_scale", "other_shift"), "*fp32"),
    **{"signs": "*i8", "rows": "i32", "channels": "i32"},
    **dict.fromkeys(("OTHER", "ROWS", "COLUMNS"), "constexpr"),
}


@pytest.mark.process
@pytest.mark.parametrize("part", ["stem", "block"])
def test_a_nan_reaches_the_same_outputs_as_in_pytorch(part: str, interpret: Interpret) -> None:
    ours, theirs = interpret(run_on_nan, part)
    assert ours == theirs
    assert ours[0] > 0


def test_no_relu_turns_nan_into_zero_on_a_card() -> None:
    """Triton's maximum returns the other operand of a NaN by default; its interpreter returns the NaN."""
    relus = [
        (path.name, call.lineno, {keyword.arg for keyword in call.keywords})
        for path in KERNELS
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "tl.maximum" and ast.unparse(call.args[1]) == "0.0"
    ]
    assert len(relus) >= 3
    assert [relu for relu in relus if "propagate_nan" not in relu[2]] == []


def test_the_compiled_relu_propagates_nan() -> None:
    """Compiled for a Hopper card, which needs no card."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    sizes = {"OTHER": 1, "ROWS": 16, "COLUMNS": 64}
    source = ASTSource(norm_kernels.scale_shift_kernel, ARGUMENTS, sizes)
    instructions = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    assert "max.NaN.f32" in instructions
    assert "max.f32" not in instructions
