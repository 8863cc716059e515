"""Operators of torch that do not work on a card, work with limits (types, arguments, sizes), or may run on the CPU.

The limits of the NPU are those of Ascend's table of native API for torch 2.6. The operators of the MLU are those that
the list of supported API in torch_mlu's repository does not contain. Only operators that are common in training are
listed here; other operators may or may not work. Later releases may support more.
"""

from __future__ import annotations

from dataclasses import dataclass

from viaduct.cards.limits import Risk

SOURCES = {
    "npu": ("Ascend's table for torch 2.6", "昇腾 torch 2.6 原生 API 支持清单"),
    "mlu": ("torch_mlu's list of supported API", "torch_mlu 的 API 支持清单"),
}


@dataclass(frozen=True)
class OperatorLimit:
    """Documented limit of an operator on a card."""

    english: str  # a clause that follows the operator's name and a colon
    chinese: str
    risk: Risk = "medium"  # risk of a failure if the script is not changed
    # The limit applies only to calls that switch this argument on (`sorted`: off); empty: to all calls.
    keyword: str = ""


MISSING = OperatorLimit("it is listed as unsupported", "列为不支持", "high")
ON_CPU = OperatorLimit("it may fall back to the CPU, with a copy there and back", "可能回退至 CPU 执行", "low")
FLOAT32_ONLY = OperatorLimit("float32 only", "仅支持 fp32")
NO_FLOAT64 = OperatorLimit("not in double precision", "不支持双精度")
FLOAT16_OR_FLOAT32 = OperatorLimit("float16 and float32 only", "仅支持 fp16、fp32")

NPU_MISSING = (
    "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor", "sparse_bsc_tensor", "from_dlpack", "heaviside",
    "quantize_per_tensor", "quantize_per_channel", "scatter_reduce", "poisson", "nanquantile", "std_mean",
    "var_mean", "unique_consecutive", "cdist",
    *(
        f"nn.functional.{name}"
        for name in (
            "conv3d", "conv_transpose3d", "avg_pool3d", "max_pool1d", "max_unpool3d", "adaptive_max_pool1d",
            "adaptive_max_pool2d", "gumbel_softmax", "embedding_bag", "pdist", "multilabel_soft_margin_loss",
            "triplet_margin_loss", "triplet_margin_with_distance_loss", "grid_sample",
        )
    ),
)  # fmt: skip
NPU_ON_CPU = ("index_reduce", "narrow_copy", "acosh", "copysign", "std", "trunc", "slogdet", "tensor_split")
NPU_LIMITS = {
    "sum": OperatorLimit("the argument `dtype` is not supported", "不支持 dtype 参数", "high", "dtype"),
    "kthvalue": OperatorLimit("float16, float32 and int32 only", "仅支持 fp16、fp32、int32"),
    "cumprod": OperatorLimit("float16, float32 and int32 only", "仅支持 fp16、fp32、int32"),
    "logaddexp": NO_FLOAT64,
    "logaddexp2": NO_FLOAT64,
    "multinomial": FLOAT16_OR_FLOAT32,
    "unique": OperatorLimit("with dim, not in float16", "带 dim 时不支持 fp16", "medium", "dim"),
    "topk": OperatorLimit("sorted=False is not supported", "不支持 sorted=False", "medium", "sorted"),
    "repeat_interleave": OperatorLimit("its result must have fewer than 2^22 elements", "输出元素个数需小于 2^22"),
    "nn.functional.ctc_loss": OperatorLimit("float32 only, and no target of length 0", "仅支持 fp32,目标长度不能为 0"),
    "nn.functional.kl_div": OperatorLimit(
        "log_target=True is not supported", "log_target 仅支持 False", "high", "log_target"
    ),
    "nn.functional.interpolate": OperatorLimit(
        "scale_factor is not supported: give size", "不支持 scale_factor:请改用 size", "medium", "scale_factor"
    ),
    "nn.functional.nll_loss": FLOAT32_ONLY,
    "nn.functional.fractional_max_pool2d": ON_CPU,
    "nn.functional.scaled_dot_product_attention": OperatorLimit(
        "an experimental feature: tensors must be [N, heads, L, E], masks bool, and E at most 512",
        "试用特性:输入排布为 [N, head_num, L, E],attn_mask 为 bool,E 不超过 512",
    ),
}
MLU_MISSING = (
    "heaviside", "nanquantile", "nanmedian", "nanmean", "histogram", "histogramdd", "bucketize", "logcumsumexp",
    "cholesky", "cholesky_inverse", "cholesky_solve", "lgamma", "digamma", "igamma", "igammac", "frexp", "mode",
    "matrix_exp", "lobpcg", "geqrf", "istft", "index_reduce", "fmax", "fmin", "gcd", "lcm", "hypot",
)  # fmt: skip
# Limits by card and by the operator's name after `torch.`.
OPERATORS: dict[str, dict[str, OperatorLimit]] = {
    "npu": dict.fromkeys(NPU_MISSING, MISSING) | dict.fromkeys(NPU_ON_CPU, ON_CPU) | NPU_LIMITS,
    "mlu": {name: OperatorLimit("it is not listed as supported", "未列为支持") for name in MLU_MISSING},
}
# Names of methods that are specific to Tensor: `x.kthvalue(…)` counts as torch.kthvalue unless x is known to be another
# library's object.
TENSOR_METHODS = ("scatter_reduce", "unique_consecutive", "kthvalue", "heaviside", "nanquantile", "repeat_interleave")
