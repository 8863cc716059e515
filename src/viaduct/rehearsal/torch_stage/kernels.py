"""Operators on a card's tensors, computed by the CPU's kernels on the same memory.

A card is a stand-in device, known to PyTorch as PrivateUse1; its tensors are CPU memory with another device label. A
fallback runs the operators that PyTorch does not compose from others. It makes CPU tensors over the memory of the
arguments, runs the CPU's kernel, and labels new tensors of the result with the card. The few operators that allocate
memory, share it or move it between devices have their own kernels. Operators that PyTorch composes differently on
devices of plug-ins (a convolution, dropout) are computed as on the CPU, so most results are the CPU's bit for bit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from viaduct.rehearsal.torch_stage import absent, attention, doubles, sparse
from viaduct.rehearsal.torch_stage.cards import (
    cards,
    get_card_index,
    put_on_card,
    resolve_card_index,
    to_cpu,
    view_on_cpu,
)
from viaduct.rehearsal.torch_stage.dispatch import find_overload, make_library
from viaduct.rehearsal.torch_stage.generators import check_generator

Kernel = Callable[..., Any]
_KEY = "PrivateUse1"  # PyTorch's dispatch key for a plug-in's device
_CPU = torch.device("cpu")
_ON_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_aten = torch.ops.aten

# Prefixes of the names of operators whose index tensors may be on the host, and of copies between devices.
_INDEXES = ("aten::index.", "aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index")
_COPIES = ("aten::copy", "aten::_foreach_copy")
_TENSOR, _LISTS, _DEVICE, _GENERATOR = torch.Tensor, (list, tuple), torch.device, torch._C.Generator


class _Schema:
    """What the fallback needs to know of an operator's schema."""

    def __init__(self, operator: Any) -> None:
        schema = operator._schema
        self.is_index = f"{schema.name}.".startswith(_INDEXES)
        self.may_mix_devices = self.is_index or schema.name.startswith(_COPIES)
        self.is_view = _returns_view(schema)
        self.out_names = frozenset(a.name for a in schema.arguments if a.is_out)  # parameters such as `out`
        # By position: True if the parameter is a tensor.
        self.takes_tensor = tuple(isinstance(a.type, torch.TensorType) for a in schema.arguments)

    def has_number_as_tensor(self, args: Any) -> bool:
        """Return True if an argument for a tensor's parameter is a number."""
        pairs = zip(self.takes_tensor, args, strict=False)  # keyword arguments are not in `args`
        return any(takes_tensor and isinstance(value, (int, float, complex)) for takes_tensor, value in pairs)


def _returns_view(schema: Any) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)


_read_schema: Callable[[Any], _Schema] = functools.cache(_Schema)  # takes an operator


def fallback(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Run any operator on a card's tensors with the CPU's kernel."""
    schema = _read_schema(operator)
    if schema.is_view:
        return operator.redispatch(_ON_CPU, *args, **kwargs)  # reads sizes and strides, not the device
    call = _Call(operator, schema)
    if schema.is_index and get_card_index(args[0]) < 0:  # a host's tensor, indexed by a card's
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    cpu_args, options = call.lower_arguments(args, kwargs)
    try:
        result = operator(*cpu_args, **options)
    except NotImplementedError as error:
        raise NotImplementedError(f"{operator} has no kernel for the CPU, which a rehearsal computes on.") from error
    except RuntimeError:
        if not schema.has_number_as_tensor(args):
            raise
        # PyTorch chose the overload for a tensor, but passes the plain number; here the overload for numbers is chosen.
        result = operator.overloadpacket(*cpu_args, **options)
    return call.lift_result(result)


def fallback_sparse(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Run any operator on a card's sparse tensors with the CPU's kernel."""
    call = _SparseCall(operator, _read_schema(operator))
    cpu_args, options = call.lower_arguments(args, kwargs)
    try:
        return call.lift_result(operator(*cpu_args, **options))
    except NotImplementedError as error:
        raise NotImplementedError(
            f"{operator} has no kernel for sparse tensors on the CPU, which a rehearsal computes on."
        ) from error


class _Call:
    """One call of the fallback: its card, and the CPU tensors of the card's tensors.

    `lower…` turns arguments of the card into arguments for the CPU, `lift…` turns the CPU's results into the card's.
    """

    __slots__ = ("addresses", "adopted", "has_host_tensor", "index", "lowered", "operator", "schema")

    def __init__(self, operator: Any, schema: _Schema) -> None:
        self.operator = operator
        self.schema = schema
        self.index = -1  # the card of the call; -1 until an argument names one
        self.has_host_tensor = False
        # By the id of a CPU tensor: the card's tensor, and the CPU tensor.
        self.lowered: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        # Pairs of an empty `out` tensor and the CPU tensor that the kernel fills instead.
        self.adopted: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.addresses: set[int] | None = None  # of the inputs' memory; None until `find_input_addresses` is called

    def lower_arguments(self, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with the card's tensors replaced by CPU tensors over their memory."""
        cpu_args = [self.lower(value) for value in args]
        return cpu_args, {name: self.lower(value, name in self.schema.out_names) for name, value in kwargs.items()}

    def lower(self, value: Any, is_out: bool = False) -> Any:
        """Return one argument for the CPU's kernel."""
        if isinstance(value, _TENSOR):
            return self.lower_tensor(value, is_out)
        if isinstance(value, _LISTS):
            return [self.lower_tensor(v, is_out) if isinstance(v, _TENSOR) else v for v in value]
        if isinstance(value, _DEVICE):
            return self.lower_device(value)
        if isinstance(value, _GENERATOR):
            return check_generator(value)
        return value

    def lower_tensor(self, tensor: torch.Tensor, is_out: bool) -> torch.Tensor:
        """Return a CPU tensor over a card's tensor, or a host's tensor unchanged; refuse a mix of devices."""
        index = get_card_index(tensor)
        if index >= 0:
            self.set_card(index)
            cpu_tensor = view_on_cpu(tensor)
            if is_out and not tensor.numel():
                # The kernel grows an empty `out`, which a card's memory cannot, since it came through DLPack. The
                # kernel fills a new CPU tensor instead, and `lift_result` gives its memory to `out`.
                cpu_tensor = torch.empty_like(cpu_tensor)
                self.adopted.append((tensor, cpu_tensor))
            self.lowered[id(cpu_tensor)] = (tensor, cpu_tensor)
            return cpu_tensor
        if tensor.dim() and not self.schema.may_mix_devices:
            self.has_host_tensor = True
            if self.index >= 0:
                _refuse_mixing(self.index, "cpu")
        return tensor

    def set_card(self, index: int) -> None:
        """Store the card of an argument; raise RuntimeError if another argument is on another device."""
        if self.index < 0:
            self.index = index
            if self.has_host_tensor:
                _refuse_mixing(index, "cpu")
        elif index != self.index and not self.schema.may_mix_devices:
            _refuse_mixing(self.index, f"{cards.name_in_script}:{index}")

    def lower_device(self, device: torch.device) -> torch.device:
        """For a card, store its index and return the CPU; return other devices unchanged."""
        if device.type == cards.device_name:
            self.set_card(resolve_card_index(device))
            return _CPU
        return device

    def lift_result(self, result: Any) -> Any:
        """Return a result with its tensors on the card."""
        for tensor, cpu_tensor in self.adopted:
            adopt_memory(tensor, cpu_tensor)
        if isinstance(result, _TENSOR):
            return self.lift_tensor(result)
        if isinstance(result, tuple):
            return tuple(self.lift_result(part) for part in result)
        if isinstance(result, list):
            return [self.lift_result(part) for part in result]
        return result

    def lift_tensor(self, result: torch.Tensor) -> torch.Tensor:
        """Return a kernel's result as a tensor of the card; for an argument's CPU tensor, return that argument."""
        if id(result) in self.lowered:
            card_tensor, _ = self.lowered[id(result)]
            return card_tensor
        if get_card_index(result) >= 0:
            return result
        if result.dtype in doubles.WIDE_DTYPES:
            doubles.report_wide_tensor(result.dtype, self.operator)
        index = self.index if self.index >= 0 else cards.current_index
        try:
            address = result.data_ptr()
        except RuntimeError:
            if result.layout is torch.strided:
                raise
            return sparse.lift_sparse(result, index)  # a sparse tensor has no address of its own
        if not address and result._is_zerotensor():
            result = torch.zeros(result.shape, dtype=result.dtype, device=_CPU)  # a zero tensor has no memory
        if address in self.find_input_addresses():
            result = result.clone()  # `put_on_card` would count an input's memory twice
        return put_on_card(result, index)

    def find_input_addresses(self) -> set[int]:
        if self.addresses is None:
            tensors = [cpu_tensor for _, cpu_tensor in self.lowered.values()]
            self.addresses = {tensor.data_ptr() for tensor in tensors if tensor.layout is torch.strided} - {0}
        return self.addresses


class _SparseCall(_Call):
    """One call with sparse tensors among its arguments."""

    __slots__ = ()

    def lower_tensor(self, tensor: torch.Tensor, is_out: bool) -> torch.Tensor:
        if tensor.layout is torch.strided or get_card_index(tensor) < 0:
            return super().lower_tensor(tensor, is_out)
        self.set_card(get_card_index(tensor))
        cpu_tensor = sparse.lower_sparse(tensor)
        self.lowered[id(cpu_tensor)] = (tensor, cpu_tensor)
        return cpu_tensor

    def lift_tensor(self, result: torch.Tensor) -> torch.Tensor:
        if id(result) in self.lowered and result.layout is not torch.strided:
            # The CPU tensor was changed in place: its contents become those of the card's tensor.
            card_tensor, _ = self.lowered[id(result)]
            card_tensor.data = sparse.lift_sparse(result, get_card_index(card_tensor))
        return super().lift_tensor(result)


def _refuse_mixing(index: int, other: str) -> None:
    raise RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{cards.name_in_script}:{index} and {other}!"
    )


def adopt_memory(tensor: torch.Tensor, cpu_tensor: torch.Tensor) -> None:
    """Give a card's tensor the memory and the shape of a CPU tensor."""
    storage = put_on_card(cpu_tensor, get_card_index(tensor)).untyped_storage()
    _set_storage(tensor, storage, 0, cpu_tensor.size(), cpu_tensor.stride())


def _set_storage(self: Any, source: Any, offset: Any, size: Any, stride: Any = ()) -> Any:
    return _aten.set_.source_Storage_storage_offset.redispatch(_ON_CPU, self, source, offset, size, stride)


# Kernels of single operators, with the parameters of their schemas.


def _empty(
    size: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> torch.Tensor:
    index = _check_device(device, dtype)
    return put_on_card(_aten.empty.memory_format(size, dtype=dtype, device=_CPU, memory_format=memory_format), index)


def _empty_strided(
    size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> torch.Tensor:
    return put_on_card(
        _aten.empty_strided.default(size, stride, dtype=dtype, device=_CPU), _check_device(device, dtype)
    )


def _check_device(device: Any, dtype: torch.dtype | None) -> int:
    """Return the card of a new tensor; refuse a card that does not exist, and report a dtype of 64-bit floats."""
    index = resolve_card_index(device)
    cards.check(index)
    if (dtype := dtype or torch.get_default_dtype()) in doubles.WIDE_DTYPES:
        doubles.report_wide_tensor(dtype)
    return index


def _copy(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    _aten.copy_.default(to_cpu(self), to_cpu(src))
    return self


def _copy_from(self: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    _aten.copy_.default(to_cpu(dst), to_cpu(self))
    return dst


def _copy_from_and_resize(self: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
    if self.shape != dst.shape:
        _aten.resize_.default(dst, list(self.shape))
    return _copy_from(self, dst)


def _resize(self: torch.Tensor, size: Any, memory_format: Any = None) -> torch.Tensor:
    """Resize a tensor in place, into new memory if its own is too small."""
    if memory_format is None and self.shape == torch.Size(size):
        return self
    allocated = self.untyped_storage().nbytes() // self.element_size() - self.storage_offset()
    elements = math.prod(size)
    if elements > allocated:
        old = view_on_cpu(_aten.as_strided.default(self, [self.numel()], [1], self.storage_offset()))
        larger = torch.empty(elements, dtype=self.dtype, device=_CPU)
        larger[: old.numel()].copy_(old)
        adopt_memory(self, larger)
    strides = _aten.empty.memory_format(size, dtype=self.dtype, device="meta", memory_format=memory_format).stride()
    return _aten.as_strided_.default(self, list(size), list(strides), self.storage_offset())  # type: ignore[no-any-return]


def _set_source_storage(self: Any, source: Any) -> Any:
    length = source.nbytes() // self.element_size()
    return _set_storage(self, source, 0, [length], [1])


def _set_source_tensor(self: Any, source: Any) -> Any:
    return _set_storage(self, source.untyped_storage(), source.storage_offset(), source.size(), source.stride())


def _set_nothing(self: torch.Tensor) -> torch.Tensor:
    adopt_memory(self, torch.empty(0, dtype=self.dtype, device=_CPU))
    return self


def _dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Compute dropout as on the CPU; for other devices PyTorch calls a fused kernel with another random mask."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if p == 0 or not train or not input.numel():
        return input
    if p == 1:
        return input * torch.zeros((), dtype=input.dtype, device=input.device)
    return input * torch.empty_like(input).bernoulli_(1 - p).div_(1 - p)


def _fallback_kernel(name: str, run: Kernel = fallback) -> Kernel:
    """Return a kernel that runs the fallback for one operator, which PyTorch would otherwise compose from others."""
    # Each of the hundreds of operators is looked up at its first call, since that takes half a millisecond.
    return lambda *args, **kwargs: run(find_overload(name), *args, **kwargs)


def _redispatch_kernel(operator: Any, keys: Any = _ON_CPU) -> Kernel:
    """Return a kernel that runs the CPU's on the card's tensors, for operators that do not touch values or device."""
    return lambda *args, **kwargs: operator.redispatch(keys, *args, **kwargs)


_KERNELS: dict[str, Kernel] = {
    **absent.MISSING_CPU_KERNELS,
    **attention.ATTENTION_KERNELS,
    **sparse.REFUSED_OPERATORS,
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "copy_": _copy,
    "_copy_from": _copy_from,
    "_copy_from_and_resize": _copy_from_and_resize,
    "resize_": _resize,
    "set_.source_Storage": _set_source_storage,
    "set_.source_Storage_storage_offset": _set_storage,
    "set_.source_Tensor": _set_source_tensor,
    "set_": _set_nothing,
    "_has_compatible_shallow_copy_type": lambda self, other: True,  # so that `module.npu()` keeps its parameters
    "record_stream": lambda self, stream: None,
    "dropout": _dropout,
    "_nested_tensor_from_mask_left_aligned": lambda t, mask: False,  # so that padded batches stay padded
}
_VIEWS = ("as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex")
# Operators that PyTorch composes from others on the card, and that the CPU computes by one kernel.
_CPU_FUSED = ("convolution", "convolution_backward", "_fused_sgd_", "_fused_adam_", "_fused_adamw_")
# Operators that allocate, share, pin or move memory, or inspect a tensor without computing: PyTorch may compose them
# from others on the card too.
_KEPT_COMPOSED = frozenset(
    (
        "_to_copy", "lift", "lift_fresh", "copy", "set", "resize", "resize_as_", "_resize_output_", "_pin_memory",
        "is_pinned", "_lazy_clone", "_print", "_fw_primal", "_make_dual", "is_coalesced", "is_same_size",
        "_has_same_storage_numel", "_new_zeros_with_same_feature_meta", "detach_", "as_strided_", "t_", "transpose_",
        "squeeze_", "unsqueeze_", "_assert_scalar",
        "_assert_tensor_metadata", "_unsafe_view", "unsafe_split", "unsafe_split_with_sizes",
        "_pack_padded_sequence",
    )
)  # fmt: skip


def register() -> None:
    """Register all kernels under the device's dispatch key, for the whole process; this cannot be undone."""
    make_library("_").fallback(fallback, _KEY)  # for all operators without a kernel below
    aten = make_library("aten")
    for name, kernel in _KERNELS.items():
        aten.impl(name, kernel, _KEY)
    aten.impl("scaled_dot_product_attention", attention.attention, "AutogradPrivateUse1")
    aten.impl("dropout", _dropout, "AutogradPrivateUse1")
    for name in _VIEWS:
        aten.impl(name, _redispatch_kernel(find_overload(name)), _KEY)
    for name in (*_CPU_FUSED, *_list_composed()):
        aten.impl(name, _fallback_kernel(name), _KEY)
    _register_layouts()


def _register_layouts() -> None:
    """Register kernels for sparse tensors, and refusals with an explanation for nested and quantized ones.

    The fallback covers all sparse operators that PyTorch does not compose from others. It is also registered for those
    that PyTorch would compose and for which the CPU has a sparse kernel.
    """
    aten = make_library("aten")
    for key, cpu_key in sparse.CPU_KEYS.items():
        make_library("_").fallback(fallback_sparse, key)
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, cpu_key))
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(cpu_key):
            short = name.removeprefix("aten::")
            if short in sparse.STRUCTURE_OPERATORS:
                aten.impl(short, _redispatch_kernel(find_overload(short), keys), key)
            elif name.startswith("aten::") and _find_composite_keys(name):
                aten.impl(short, _fallback_kernel(short, fallback_sparse), key)
    aten.impl("_sparse_mm_reduce_impl", sparse.reduce_products, "SparseCsrPrivateUse1")
    make_library("_").fallback(sparse.refuse_nested, "NestedTensorPrivateUse1")
    make_library("_").fallback(sparse.refuse_quantized, "QuantizedPrivateUse1")


def _list_composed() -> list[str]:
    """Return operators that PyTorch would compose from others on the card and that use the fallback instead.

    The CPU then uses its own kernel where it has one. For the others the fallback checks the arguments' devices. Those
    that PyTorch composes under autograd (CompositeImplicitAutograd alone) have no gradient of their own: they stay
    composed, unless the CPU has a kernel.
    """
    has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    registered = {*_KERNELS, *_VIEWS, *_CPU_FUSED}
    names = []
    for name in torch._C._dispatch_get_all_op_names():
        short = name.removeprefix("aten::")
        if not name.startswith("aten::") or short in registered or not (keys := _find_composite_keys(name)):
            continue
        has_cpu_kernel = has_kernel(name, "CPU") or short.startswith("_foreach_")
        if has_cpu_kernel or (keys != ["CompositeImplicitAutograd"] and _computes(name)):
            names.append(short)
    return names


def _find_composite_keys(name: str) -> list[str]:
    """Return the dispatch keys under which PyTorch composes an operator from others."""
    has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    keys = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    return [key for key in keys if has_kernel(name, key)]


def _computes(name: str) -> bool:
    """Return True if an operator computes new tensors from tensors on the same device."""
    packet, _, variant = name.partition(".")
    schema: Any = torch._C._get_schema(packet, variant)
    takes_device = any(a.name in ("device", "storage") for a in schema.arguments)
    if takes_device or packet.removeprefix("aten::") in _KEPT_COMPOSED:
        return False
    takes_tensor = any("Tensor" in str(a.type) for a in schema.arguments if not a.is_out)
    return takes_tensor and not _returns_view(schema)
