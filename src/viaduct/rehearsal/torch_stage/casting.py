"""Autocast on the card: the lists are those of CUDA's autocast, which both plug-ins follow.

PyTorch has the autocast switch for a foreign device and leaves the casting to its plug-in. Operators of LOWER run in
the lower precision, of FLOAT32 in float32, of FLOAT32_RESULT with a float32 result, of WIDEST in float32 if one input
has it; all others run in the dtypes of their inputs. A parameter is cast once a region, so that gradients of a weight
that is used twice add up as they do on CUDA.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import card_of, cards
from viaduct.rehearsal.torch_stage.dispatch import library, overload

_KEY = "AutocastPrivateUse1"
_EXCLUDED = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))
_aten = torch.ops.aten

# fmt: off
LOWER = (
    "_convolution.deprecated", "_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr",
    "matmul", "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul",
    "linalg_multi_dot", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell",
    "rnn_tanh_cell", "rnn_relu_cell", "_scaled_dot_product_flash_attention", "scaled_dot_product_attention",
)
# fmt: on
# fmt: off
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
# fmt: on
# fmt: off
FLOAT32_RESULT = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
    "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList",
)
# fmt: on
WIDEST = (
    "addcdiv",
    "addcmul",
    "atan2",
    "bilinear",
    "cross",
    "dot",
    "vdot",
    "grid_sampler",
    "index_put",
    "tensordot",
    "scatter_add",
)

_cache: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype is not torch.float64
        and card_of(value) >= 0
    )


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [function(part) for part in value]
    return function(value)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if not _eligible(value) or value.dtype is dtype:
        return value
    if not _cacheable(value, dtype):
        return value.to(dtype)
    known = _cache.get(id(value))
    if known is not None and known[0]() is value:
        return known[1]
    cast = value.to(dtype)
    _cache[id(value)] = (weakref.ref(value), cast)
    return cast


def _cacheable(value: torch.Tensor, dtype: torch.dtype) -> bool:
    return (
        value.dtype is torch.float32
        and value.requires_grad
        and value.is_leaf
        and not value._is_view()
        and dtype is torch.get_autocast_dtype(cards.name)
        and torch.is_autocast_cache_enabled()
    )


def _to(operator: Any, dtype: Callable[[], torch.dtype]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        wanted = dtype()
        with torch._C._ExcludeDispatchKeyGuard(_EXCLUDED):
            args = tuple(_each(lambda v: _cast(v, wanted), value) for value in args)
            kwargs = {name: _each(lambda v: _cast(v, wanted), value) for name, value in kwargs.items()}
            return operator(*args, **kwargs)

    return kernel


def _with_float32_result(operator: Any) -> Callable[..., Any]:
    position = [argument.name for argument in operator._schema.arguments].index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_EXCLUDED):
            given = args[position] if len(args) > position else kwargs.get("dtype")
            if given is None and _eligible(args[0]):
                return operator(*args[:position], **{**kwargs, "dtype": torch.float32})
            return operator(*args, **kwargs)

    return kernel


def _norm(operator: Any, typed: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_EXCLUDED):
            return typed(*args, **kwargs, dtype=torch.float32) if _eligible(args[0]) else operator(*args, **kwargs)

    return kernel


def _to_widest(operator: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_EXCLUDED):
            tensors = [v for value in args for v in (value if isinstance(value, list | tuple) else [value])]
            wide = any(_eligible(v) and v.dtype is torch.float32 for v in tensors)
            if wide:
                args = tuple(_each(lambda v: _cast(v, torch.float32), value) for value in args)
            return operator(*args, **kwargs)

    return kernel


def _refuse_autocast(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Use torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss instead."
    )


def register() -> None:
    library("_").fallback(torch.library.fallthrough_kernel, _KEY)
    aten = library("aten")
    for name in LOWER:
        aten.impl(name, _to(overload(name), lambda: torch.get_autocast_dtype(cards.name)), _KEY)
    for name in FLOAT32:
        aten.impl(name, _to(overload(name), lambda: torch.float32), _KEY)
    for name in FLOAT32_RESULT:
        aten.impl(name, _with_float32_result(overload(name)), _KEY)
    for name in WIDEST:
        aten.impl(name, _to_widest(overload(name)), _KEY)
    aten.impl("norm.Scalar", _norm(_aten.norm.Scalar, _aten.norm.ScalarOpt_dtype), _KEY)
    aten.impl("norm.ScalarOpt_dim", _norm(_aten.norm.ScalarOpt_dim, _aten.norm.ScalarOpt_dim_dtype), _KEY)
    aten.impl("binary_cross_entropy", _refuse_autocast, _KEY)
    _clear_with_pytorchs_own()


def _clear_with_pytorchs_own() -> None:
    clear = torch.clear_autocast_cache

    def clear_autocast_cache() -> None:
        _cache.clear()
        clear()

    torch.clear_autocast_cache = clear_autocast_cache
