"""What kind of work a kernel or an operator does, by its name.

    classify_kernel(name), classify_operator(name)     the kinds that `viaduct bench` divides a step into
    describe_kernel(name), describe_operator(name)     the same, with "other kernels" divided further

Compiled kernels carry the names of what was fused into them, the heaviest of which decides: a batch norm with its ReLU
and its sum counts as normalisation. Our own kernels are known by the file that they stand in.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from viaduct.cards import BACKENDS

CONVOLUTION, NORMALISATION, PRODUCT = "convolution", "normalisation", "matrix product"
POOLING, OPTIMIZER, COPIES, OTHER = "pooling", "optimizer", "copies", "other kernels"
COMPILED = "compiled code, undivided"
COMMUNICATION, ATTENTION, ELEMENTWISE, REDUCTION = "communication", "attention", "elementwise", "reduction"
KINDS = (CONVOLUTION, NORMALISATION, PRODUCT, POOLING, OPTIMIZER, COPIES, COMPILED, OTHER)

# The first that is found in a kernel's name, in small letters, decides.
KERNELS = (
    (COPIES, r"multi_tensor_apply.*copy"),
    (OPTIMIZER, r"multi_tensor_apply|fused_?sgd|fused_?adam|foreach"),
    (POOLING, r"pool"),
    (NORMALISATION, r"batch_?norm|bn_[fb]w|\bbn_|layer_?norm|group_?norm|welford|_norm_legit"),
    (CONVOLUTION, r"fprop|dgrad|wgrad|implicit_gemm|implicit_convolve|convolv|winograd|conv_?depthwise|conv2d|cudnn"),
    (CONVOLUTION, r"tem_fused.*convolution|nchwtonhwc|nhwctonchw|nhwcaddpadding|convolution"),
    (PRODUCT, r"gemm|gemv|nvjet|cublas|splitk|cutlass|tem_fused.*mm"),
    (COPIES, r"^memcpy|^memset|\bcopy_kernel|direct_copy|catarray|fused__to_copy_\d"),
)
OPERATORS = (
    (OPTIMIZER, r"^optimizer\.|_fused_sgd|_fused_adam|foreach"),
    (POOLING, r"pool"),
    (NORMALISATION, r"batch_?norm|layer_norm|group_norm"),
    (CONVOLUTION, r"conv"),
    (PRODUCT, r"::(mm|addmm|bmm|baddbmm|linear|matmul|mkldnn_linear)\b|onednn_linear"),
    (COMPILED, r"compiledfx|torch-compiled|compiledfunction"),
    (COPIES, r"::(copy_|_to_copy|clone|contiguous|cat|to)$"),
)
# What OTHER is divided into where more is asked for.
FURTHER = (
    (
        COMMUNICATION,
        "|".join(BACKENDS.values())
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
OWN_FILES = (
    (POOLING, "pool|terms"),
    (NORMALISATION, "norm|moments"),
    (CONVOLUTION, "grouped|stem|bottleneck|conv"),
    (COPIES, "halves"),
)


def classify_kernel(name: str) -> str:
    """Return the kind of a device kernel by the name that a profile gives it."""
    return own_kernels().get(name) or first_match(KERNELS, name)


def classify_operator(name: str) -> str:
    """Return the kind of a PyTorch operator, such as aten::addmm."""
    return first_match(OPERATORS, name)


def describe_kernel(name: str) -> str:
    """Return the kind of a device's kernel, with "other kernels" divided further."""
    kind = classify_kernel(name)
    return first_match(FURTHER, name) if kind == OTHER else kind


def describe_operator(name: str) -> str:
    """Return the kind of an operator, with "other kernels" divided further."""
    kind = classify_operator(name)
    return first_match(FURTHER, name) if kind == OTHER else kind


def first_match(table: tuple[tuple[str, str], ...], name: str) -> str:
    small = name.lower()
    return next((kind for kind, pattern in table if re.search(pattern, small)), OTHER)


@cache
def own_kernels() -> dict[str, str]:
    """Return the kinds of the kernels of viaduct/kernels; a name in two files of different kinds is OTHER."""
    kinds: dict[str, set[str]] = {}
    for path in sorted((Path(__file__).parents[1] / "kernels").glob("*_kernels.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel"):
                kinds.setdefault(node.name, set()).add(kind_of_own(path.stem, node.name))
    return {name: found.pop() if len(found) == 1 else OTHER for name, found in kinds.items()}


def kind_of_own(file: str, name: str) -> str:
    """Return the kind of one of our kernels, from its name, else from its file: a stem has convolution and pooling."""
    for text in (name, file):
        for kind, pattern in OWN_FILES:
            if re.search(pattern, text):
                return kind
    return OTHER
