"""Collectives of horovod.tensorflow, with the restrictions, dtypes and gradients of Horovod 0.28."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import collectives

from .._ranks import rank, size
from .compression import Compression

Average, Sum, Adasum, Min, Max, Product = range(6)
# Reduction of `collectives.allreduce` by op. For a mean `reduce_tensors` divides the sum. Adasum is accepted with one
# rank only, where nothing is exchanged.
REDUCTIONS = {Average: "sum", Sum: "sum", Adasum: "sum", Min: "min", Max: "max", Product: "prod"}
REDUCED_DTYPES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64")
EXCHANGED_DTYPES = (*REDUCED_DTYPES, "uint16", "int16", "bool")


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> Any:
    """Reduce a tensor over the ranks by `op`, or its older form `average`; the default is the mean."""
    if op is not None and average is not None:
        raise ValueError("allreduce takes op or average, not both; op supersedes average")
    if op is None:
        op = Sum if average is False else Average
    if is_sparse(tensor):
        return reduce_slices(tensor, op, prescale_factor, postscale_factor)
    compressed, context = compression.compress(tf.convert_to_tensor(tensor))
    (reduced,) = reduce_tensors([compressed], op, prescale_factor, postscale_factor)
    return compression.decompress(reduced, context)


def is_sparse(tensor: Any) -> bool:
    return hasattr(tensor, "indices")


def reduce_slices(slices: Any, op: int, prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Any:
    """Return IndexedSlices with the rows of all ranks; raise NotImplementedError for other ops than sum and mean."""
    if op == Adasum:
        raise NotImplementedError("Horovod has no Adasum of tf.IndexedSlices; pass sparse_as_dense=True")
    if op not in (Sum, Average):
        raise NotImplementedError("tf.IndexedSlices are reduced by op=Sum and op=Average only")
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError("tf.IndexedSlices are not scaled: no prescale_factor and postscale_factor")
    values, indices = allgather(slices.values), allgather(slices.indices)
    return tf.IndexedSlices(values / size() if op == Average else values, indices, slices.dense_shape)


def reduce_tensors(
    tensors: list[Any], op: int, prescale_factor: float = 1.0, postscale_factor: float = 1.0
) -> list[Any]:
    """Reduce dense tensors in one exchange; their gradients are reduced by the same operation."""
    check_op(op)
    scaled = [scale(check_exchange("allreduce", tensor, REDUCED_DTYPES), prescale_factor) for tensor in tensors]
    reduction = REDUCTIONS[op]
    reduced = collectives.allreduce(scaled, reduction, op_name="HorovodAllreduce", gradient_reduction=reduction)
    if op == Average and size() > 1:
        reduced = [tensor / size() if tensor.dtype.is_floating else scale(tensor, 1 / size()) for tensor in reduced]
    return [scale(tensor, postscale_factor) for tensor in reduced]


def check_op(op: int) -> None:
    """Raise NotImplementedError for Adasum between several ranks, and ValueError for an unknown op.

    Horovod's Adasum depends on its build: the mean within a machine with NCCL, the adaptive sum with MPI, an error with
    gloo.
    """
    if op == Adasum and size() > 1:
        raise NotImplementedError(
            "viaduct's stand-in for Horovod has no Adasum, whose result depends on how Horovod was built; rehearse "
            "with op=hvd.Average, or with one rank"
        )
    if op not in REDUCTIONS:
        raise ValueError(f"op is {op!r}; it must be hvd.Average, Sum, Adasum, Min, Max or Product")


def refuse_accumulation(backward_passes_per_step: int) -> None:
    if backward_passes_per_step > 1:
        raise NotImplementedError(
            f"backward_passes_per_step is {backward_passes_per_step}, but viaduct's stand-in for Horovod does not "
            "accumulate gradients; rehearse with 1"
        )


def check_exchange(name: str, value: Any, dtypes: tuple[str, ...] = EXCHANGED_DTYPES) -> Any:
    """Return a tensor or variable; raise TypeError, as Horovod's operator does, if its dtype is not in `dtypes`."""
    if value.dtype.base_dtype.name not in dtypes:
        raise TypeError(
            f"Value passed to parameter 'tensor' of Horovod's {name} has DataType {value.dtype.base_dtype.name} not in "
            f"list of allowed values: {', '.join(dtypes)}"
        )
    return value


def check_variables(variables: Iterable[Any]) -> list[Any]:
    """Return variables as a list; raise TypeError for a dtype that Horovod does not broadcast."""
    return [check_exchange("broadcast", variable) for variable in variables]


def scale(tensor: Any, factor: float) -> Any:
    """Multiply a tensor and keep its dtype; as in Horovod, integers are truncated."""
    if factor == 1.0:
        return tensor
    if tensor.dtype.is_floating:
        return tensor * factor
    return tf.cast(tf.cast(tensor, tf.float64) * factor, tensor.dtype)


def allgather(tensor: Any, name: str | None = None) -> Any:
    """Return the tensors of all ranks, concatenated; their first dimensions may differ."""
    tensor = check_exchange("allgather", tf.convert_to_tensor(tensor))

    def split_mean(op: Any, incoming: Any) -> Any:
        """Return this rank's rows of the mean of the ranks' gradients."""
        (mean,) = reduce_tensors([incoming], Average)
        rows = collectives.allgather(tf.reshape(tf.shape(op.inputs[0])[0], [1]), op_name="HorovodAllgatherRows")
        return tf.split(mean, rows, num=size())[rank()]

    return collectives.allgather(tensor, op_name="HorovodAllgather", gradient=split_mean)


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the root rank's tensor; the gradient is the mean on the root rank and zero on the others."""
    tensor = check_exchange("broadcast", tf.convert_to_tensor(tensor))

    def mean_on_root(op: Any, incoming: Any) -> Any:
        (mean,) = reduce_tensors([incoming], Average)
        return mean if rank() == root_rank else mean * 0

    (result,) = collectives.broadcast([tensor], root_rank, op_name="HorovodBroadcast", gradient=mean_on_root)
    return result


def reduce_gradients(
    gradients: list[Any], compression: Any, sparse_as_dense: bool, op: int, predivide_factor: float = 1.0
) -> list[Any]:
    """Return gradients reduced over the ranks; None stays None. Dense gradients are compressed and exchanged together.

    Dense gradients are divided by `predivide_factor` before the reduction and multiplied by it afterwards; for
    tf.IndexedSlices on several ranks it must be 1.
    """
    check_op(op)
    if sparse_as_dense:
        gradients = [tf.convert_to_tensor(gradient) if is_sparse(gradient) else gradient for gradient in gradients]
    if size() == 1:
        return gradients
    factors = (1 / predivide_factor, predivide_factor)
    dense = [gradient for gradient in gradients if gradient is not None and not is_sparse(gradient)]
    compressed = [compression.compress(gradient) for gradient in dense]
    reduced = iter(reduce_tensors([tensor for tensor, _ in compressed], op, *factors))
    contexts = iter([context for _, context in compressed])
    results: list[Any] = []
    for gradient in gradients:
        if gradient is None:
            results.append(None)
        elif is_sparse(gradient):
            results.append(reduce_slices(gradient, op, *factors))
        else:
            results.append(compression.decompress(next(reduced), next(contexts)))
    return results
