"""Kinds of work of kernels and operators, by their names.

    classify_kernel(name), classify_operator(name)     one of KINDS, as `viaduct bench` shows them
    refine_other_kind(kind, name)                      the same kind; instead of "other kernels" a more specific one

The name of a compiled kernel contains the names of the operators fused into it. The first match of KERNEL_PATTERNS
decides, so a batch norm with its ReLU and its sum counts as normalisation. viaduct's own kernels are recognised by
their names and files.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from viaduct.cards import BACKENDS

CONVOLUTION, NORMALISATION, PRODUCT = "convolution", "normalisation", "matrix product"
POOLING, OPTIMIZER, COPIES, OTHER = "pooling", "optimizer", "copies", "other kernels"
COMPILED = "compiled code, undivided"  # an operator that runs a compiled graph, if the trace does not have its kernels
COMMUNICATION, ATTENTION, ELEMENTWISE, REDUCTION = "communication", "attention", "elementwise", "reduction"
KINDS = (CONVOLUTION, NORMALISATION, PRODUCT, POOLING, OPTIMIZER, COPIES, COMPILED, OTHER)

# The first pattern that is found in a name, in lower case, decides.
KERNEL_PATTERNS = (
    (COPIES, r"multi_tensor_apply.*copy"),
    (OPTIMIZER, r"multi_tensor_apply|fused_?sgd|fused_?adam|foreach"),
    (POOLING, r"pool"),
    (NORMALISATION, r"batch_?norm|bn_[fb]w|\bbn_|layer_?norm|group_?norm|welford|_norm_legit"),
    (CONVOLUTION, r"fprop|dgrad|wgrad|implicit_gemm|implicit_convolve|convolv|winograd|conv_?depthwise|conv2d|cudnn"),
    (CONVOLUTION, r"tem_fused.*convolution|nchwtonhwc|nhwctonchw|nhwcaddpadding|convolution"),
    (PRODUCT, r"gemm|gemv|nvjet|cublas|splitk|cutlass|tem_fused.*mm"),
    (COPIES, r"^memcpy|^memset|\bcopy_kernel|direct_copy|catarray|fused__to_copy_\d"),
)
OPERATOR_PATTERNS = (
    (OPTIMIZER, r"^optimizer\.|_fused_sgd|_fused_adam|foreach"),
    (POOLING, r"pool"),
    (NORMALISATION, r"batch_?norm|layer_norm|group_norm"),
    (CONVOLUTION, r"conv"),
    (PRODUCT, r"::(mm|addmm|bmm|baddbmm|linear|matmul|mkldnn_linear)\b|onednn_linear"),
    (COMPILED, r"compiledfx|torch-compiled|compiledfunction"),
    (COPIES, r"::(copy_|_to_copy|clone|contiguous|cat|to)$"),
)
# Kinds within OTHER, and their patterns.
DETAILED_PATTERNS = (
    (
        COMMUNICATION,
        "|".join(BACKENDS.values())  # nccl, hccl, cncl
        + r"|gloo|c10d::|all_?reduce|all_?gather|reduce_?scatter|broadcast_?(coalesced|kernel)",
    ),
    (ATTENTION, r"attention|flash_fwd|flash_bwd|fmha"),
    (
        REDUCTION,
        r"reduce|softmax|::(sum|mean|max|min|amax|amin|argmax|argmin|norm|linalg_vector_norm|var|std|prod|cumsum|logsumexp|"
        r"all|any|nll_loss|nll_loss_forward)(_backward|_)?$",
    ),
    (
        ELEMENTWISE,
        r"elementwise|triton_poi|vectorized|::(add|sub|mul|div|neg|abs|exp|log|sqrt|rsqrt|pow|relu|sigmoid|tanh|gelu|silu|"
        r"clamp|clamp_min|hardtanh|leaky_relu|threshold|addcmul|addcdiv|lerp|where|maximum|minimum|eq|ne|lt|gt|le|ge|fill|"
        r"zero|dropout|bernoulli|native_dropout|reciprocal|erf|sign|normal|uniform|random)(_backward|_)?$",
    ),
)
# Kinds of viaduct's own kernels, by patterns that are searched in the kernel's name, then in the name of its file.
# terms_kernels.py pools and sums, in cells of AmoebaNet; halves_kernels.py copies half of the pixels.
VIADUCT_PATTERNS = (
    (POOLING, "pool|terms"),
    (NORMALISATION, "norm|moments"),
    (CONVOLUTION, "grouped|stem|bottleneck|conv"),
    (COPIES, "halves"),
)


def classify_kernel(name: str) -> str:
    """Return the kind of a kernel; viaduct's own kernels are classified by their source files."""
    return classify_viaduct_kernels().get(name) or find_first_match(KERNEL_PATTERNS, name)


def classify_operator(name: str) -> str:
    """Return the kind of a PyTorch operator, such as aten::addmm."""
    return find_first_match(OPERATOR_PATTERNS, name)


def refine_other_kind(kind: str, name: str) -> str:
    """Return the kind; for OTHER a more specific one if the name of the kernel or operator gives it."""
    return find_first_match(DETAILED_PATTERNS, name) if kind == OTHER else kind


def find_first_match(table: tuple[tuple[str, str], ...], name: str) -> str:
    return next((kind for kind, pattern in table if re.search(pattern, name.lower())), OTHER)


@cache
def classify_viaduct_kernels() -> dict[str, str]:
    """Return the kind of each kernel of viaduct/kernels, by name; a name in two files of different kinds is OTHER.

    Functions named …_kernel in files named …_kernels.py are kernels.
    """
    kinds: dict[str, set[str]] = {}
    for path in sorted((Path(__file__).parents[1] / "kernels").glob("*_kernels.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel"):
                # The kernel's name comes first: stem_kernels.py has convolutions and poolings.
                patterns = [
                    (kind, pattern, text) for text in (node.name, path.stem) for kind, pattern in VIADUCT_PATTERNS
                ]
                kind = next((kind for kind, pattern, text in patterns if re.search(pattern, text)), OTHER)
                kinds.setdefault(node.name, set()).add(kind)
    return {name: file_kinds.pop() if len(file_kinds) == 1 else OTHER for name, file_kinds in kinds.items()}
