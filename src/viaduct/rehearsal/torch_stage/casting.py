"""Autocast on the card, with the operator lists of CUDA's autocast, which both vendors' plug-ins use.

PyTorch leaves the casting on a plug-in's device to the plug-in. Operators of LOWER_PRECISION run in the lower
precision, of FLOAT32 in float32, of FLOAT32_RESULT with a float32 result, of WIDEST in float32 if one input is float32;
all others run in the dtypes of their inputs. A parameter is cast once in each autocast region, so that the gradients of
a weight that is used twice add up as on CUDA.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import cards, get_card_index
from viaduct.rehearsal.torch_stage.dispatch import find_overload, make_library
from viaduct.rehearsal.wrapping import wrap

_KEY = "AutocastPrivateUse1"  # PyTorch's dispatch key of autocast on a plug-in's device
_EXCLUDED = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))
_aten = torch.ops.aten

# fmt: off
LOWER_PRECISION = (
    "_convolution.deprecated", "_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr",
    "matmul", "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul",
    "linalg_multi_dot", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell",
    "rnn_tanh_cell", "rnn_relu_cell", "_scaled_dot_product_flash_attention", "scaled_dot_product_attention",
)
FLOAT32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
    "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm",
    "native_layer_norm", "rms_norm", "group_norm", "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim",
    "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d",
    "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss",
    "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss",
    "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
    "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d",
    "upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa",
)
FLOAT32_RESULT = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
    "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList",
)
WIDEST = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
    "scatter_add",
)
# fmt: on

# By the id of a parameter: the parameter and its cast copy.
_cache: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}


def _is_castable(value: Any) -> bool:
    """Return True for tensors that autocast casts: a card's floating point tensors other than float64."""
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype is not torch.float64
        and get_card_index(value) >= 0
    )


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """Return an argument cast to a dtype, with a cache for parameters; unchanged if autocast does not cast it."""
    if not _is_castable(value) or value.dtype is dtype:
        return value
    if not _is_cacheable(value, dtype):
        return value.to(dtype)
    cached = _cache.get(id(value))
    if cached is not None:
        reference, copy = cached
        if reference() is value:
            return copy
    cast = value.to(dtype)
    _cache[id(value)] = (weakref.ref(value), cast)
    return cast


def _is_cacheable(value: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return True for a float32 parameter that is cast to the lower precision, if autocast's cache is on."""
    return (
        value.dtype is torch.float32
        and value.requires_grad
        and value.is_leaf
        and not value._is_view()
        and dtype is torch.get_autocast_dtype(cards.device_name)
        and torch.is_autocast_cache_enabled()
    )


def _cast_all(args: Any, kwargs: Any, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with their tensors cast, also those in lists."""

    def cast(value: Any) -> Any:
        return [_cast(item, dtype) for item in value] if isinstance(value, list | tuple) else _cast(value, dtype)

    return tuple(map(cast, args)), {name: cast(value) for name, value in kwargs.items()}


# ---- autocast's kernels, which call an operator with other arguments


def _make_casting_kernel(operator: Any, get_dtype: Callable[[], torch.dtype]) -> Callable[..., Any]:
    """Return a kernel that casts its tensors to `get_dtype()` and runs the operator."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _cast_all(args, kwargs, get_dtype())
        return operator(*args, **kwargs)

    return kernel


def _make_float32_result_kernel(operator: Any) -> Callable[..., Any]:
    """Return a kernel that requests a float32 result unless the caller names a dtype."""
    position = [argument.name for argument in operator._schema.arguments].index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = args[position] if len(args) > position else kwargs.get("dtype")
        if dtype is None and _is_castable(args[0]):
            return operator(*args[:position], **{**kwargs, "dtype": torch.float32})
        return operator(*args, **kwargs)

    return kernel


def _make_norm_kernel(operator: Any, typed: Any) -> Callable[..., Any]:
    """Return a kernel that requests a float32 result of `typed`, the overload of a norm that takes a dtype."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return typed(*args, **kwargs, dtype=torch.float32) if _is_castable(args[0]) else operator(*args, **kwargs)

    return kernel


def _make_widest_kernel(operator: Any) -> Callable[..., Any]:
    """Return a kernel that computes in float32 if one input is float32."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        values = [item for value in args for item in (value if isinstance(value, list | tuple) else [value])]
        if any(_is_castable(value) and value.dtype is torch.float32 for value in values):
            args, _ = _cast_all(args, {}, torch.float32)
        return operator(*args, **kwargs)

    return kernel


def _refuse_autocast(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Use torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss instead."
    )


def register() -> None:
    """Register autocast's kernels under the device's dispatch key."""
    make_library("_").fallback(torch.library.fallthrough_kernel, _KEY)
    kernels = {
        name: _make_casting_kernel(find_overload(name), lambda: torch.get_autocast_dtype(cards.device_name))
        for name in LOWER_PRECISION
    }
    kernels |= {name: _make_casting_kernel(find_overload(name), lambda: torch.float32) for name in FLOAT32}
    kernels |= {name: _make_float32_result_kernel(find_overload(name)) for name in FLOAT32_RESULT}
    kernels |= {name: _make_widest_kernel(find_overload(name)) for name in WIDEST}
    kernels["norm.Scalar"] = _make_norm_kernel(_aten.norm.Scalar, _aten.norm.ScalarOpt_dtype)
    kernels["norm.ScalarOpt_dim"] = _make_norm_kernel(_aten.norm.ScalarOpt_dim, _aten.norm.ScalarOpt_dim_dtype)
    kernels["binary_cross_entropy"] = _refuse_autocast
    aten = make_library("aten")
    for name, kernel in kernels.items():
        aten.impl(name, _without_autocast(kernel), _KEY)

    @wrap(torch, "clear_autocast_cache")
    def clear_autocast_cache(plain: Any) -> None:
        _cache.clear()
        plain()


def _without_autocast(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel so that operators called within it are not cast again."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_EXCLUDED):
            return kernel(*args, **kwargs)

    return call
