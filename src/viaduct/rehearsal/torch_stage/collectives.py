"""Collectives of `hccl` and `cncl`, computed by gloo on the CPU memory of the card's tensors.

`init_process_group("hccl")` makes a CardGroup, which torch.distributed and DistributedDataParallel use. As with the
card's library, a host's tensor is refused, unless the script requests a backend for host and card
(`cpu:gloo,npu:hccl`).
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves, tree_map_only

from viaduct.cards import MLU, NPU
from viaduct.rehearsal import limits
from viaduct.rehearsal.torch_stage import pinning
from viaduct.rehearsal.torch_stage.cards import cards, get_card_index, view_on_cpu
from viaduct.rehearsal.wrapping import wrap

# hccl and cncl. For the original script the device is called gpu, and its backend gpucl; the script sees cuda and nccl.
BACKEND_OF_CARD = {"npu": NPU.backend, "mlu": MLU.backend, "gpu": "gpucl"}
_RECORDER = "TORCH_FR_BUFFER_SIZE"  # variable of torch's flight recorder; 0 turns it off
# Device types of the group that is being created: the card's, the host's, or both.
_accepted_types: tuple[str, ...] = ()
_translates_nccl = False  # a request for nccl gets the card's backend without a report
c10d: Any = torch._C._distributed_c10d
_ProcessGroup: Any = dist.ProcessGroup


class CardGroup(_ProcessGroup):  # type: ignore[misc]
    """A process group for tensors on the device types `accepted_types`: the card's, the host's ("cpu"), or both."""

    def __init__(self, store: Any, rank: int, size: int, timeout: Any, accepted_types: tuple[str, ...]) -> None:
        super().__init__(rank, size)
        self._inner = c10d.ProcessGroupGloo(store, rank, size, timeout)
        self._accepted_types = accepted_types

    def getBackendName(self) -> str:
        return BACKEND_OF_CARD[cards.device_name]

    @property
    def _device_types(self) -> Any:
        return [torch.device(name) for name in self._accepted_types]

    @property
    def pg_name(self) -> str:
        return dist.distributed_c10d._world.pg_names[self]

    @property
    def group_name(self) -> Any:
        return self.pg_name

    def _lower(self, value: Any) -> Any:
        """Return CPU tensors over the memory of the card's, also in containers, for gloo; other values stay."""
        return tree_map_only(torch.Tensor, self._lower_tensor, value)

    def _lower_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        is_on_card = get_card_index(tensor) >= 0
        if (cards.device_name if is_on_card else "cpu") not in self._accepted_types:
            raise RuntimeError(f"No backend type associated with device type {tensor.device.type}")
        return view_on_cpu(tensor) if is_on_card else tensor

    def _run(self, name: str, result: Any, *args: Any) -> Any:
        """Run gloo's collective `name`; return its Work, with the card's tensors `result` as the value."""
        return _replace_result(getattr(self._inner, name)(*self._lower(args)), result)

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        op = getattr(opts, "reduceOp", opts)  # `opts` may also be None, or a ReduceOp as for torch's own groups
        options = c10d.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.SUM if op is None or op == dist.ReduceOp.AVG else op
        options.timeout = getattr(opts, "timeout", options.timeout)
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        run = self._reduce_to_mean if op == dist.ReduceOp.AVG else self._run
        return run("allreduce", tensors, tensors, options)

    def _reduce_to_mean(self, name: str, outputs: Any, *args: Any) -> Any:
        """Run gloo's collective `name`, a sum, with `args`, and divide `outputs` by the number of ranks."""
        getattr(self._inner, name)(*self._lower(args)).wait()
        for tensor in tree_leaves(outputs):
            self._lower_tensor(tensor).div_(self.size())
        return _completed_work(outputs)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce several tensors, one after the other."""
        for tensor in tensors:
            self.allreduce([tensor], opts).wait()
        return _completed_work(tensors)

    def broadcast(self, tensors: Any, opts: Any = None, **kwargs: Any) -> Any:
        if not hasattr(opts, "rootRank"):  # None, or a rank as for torch's own groups
            root, opts = (kwargs.get("root", 0) if opts is None else opts), c10d.BroadcastOptions()
            opts.rootRank, opts.rootTensor = root, 0
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        return self._run("broadcast", tensors, tensors, opts)

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        if opts.reduceOp != dist.ReduceOp.AVG:
            return self._run("reduce", tensors, tensors, opts)
        opts.reduceOp = dist.ReduceOp.SUM
        return self._reduce_to_mean("reduce", tensors if opts.rootRank == self.rank() else [], tensors, opts)

    def allgather(self, output: Any, inputs: Any, opts: Any = None) -> Any:
        if isinstance(inputs, torch.Tensor):
            output, inputs = [output], [inputs]
        return self._run("allgather", output, output, inputs, opts or c10d.AllgatherOptions())

    def _allgather_base(self, output: Any, inputs: Any, opts: Any = None) -> Any:
        # `view` refuses an output whose parts would be copies. The card's library takes contiguous outputs only.
        chunks = [list(output.view(self.size(), *inputs.shape).unbind(0))]
        self._inner.allgather(self._lower(chunks), self._lower([inputs]), c10d.AllgatherOptions()).wait()
        return _completed_work([output])

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather several tensors, each into one output, one after the other."""
        for output, part in zip(outputs, inputs, strict=True):
            self._allgather_base(output, part).wait()
        return _completed_work(outputs)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        return self._run("gather", outputs, outputs, inputs, opts)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        return self._run("scatter", outputs, outputs, inputs, opts)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce every part over the ranks, and keep this rank's part; gloo has no reduce_scatter of lists."""
        op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        options = c10d.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op
        for output, parts in zip(outputs, inputs, strict=True):
            reduced = [self._lower(part).clone() for part in parts]
            for part in reduced:
                self._inner.allreduce([part], options).wait()
            own_part = reduced[self.rank()]
            self._lower(output).copy_(own_part.div_(self.size()) if op == dist.ReduceOp.AVG else own_part)
        return _completed_work(outputs)

    def _reduce_scatter_base(self, output: Any, inputs: Any, opts: Any = None) -> Any:
        parts = inputs.reshape(self.size(), *output.shape).unbind(0)
        return self.reduce_scatter([output], [list(parts)], opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce and scatter several tensors, one after the other."""
        for output, tensor in zip(outputs, inputs, strict=True):
            self._reduce_scatter_base(output, tensor, opts)
        return _completed_work(outputs)

    def alltoall_base(self, output: Any, inputs: Any, output_sizes: Any, input_sizes: Any, opts: Any = None) -> Any:
        """Exchange parts of one tensor among all ranks."""
        options = opts or c10d.AllToAllOptions()
        return self._run("alltoall_base", [output], output, inputs, output_sizes, input_sizes, options)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Exchange lists of tensors; every rank scatters in turn, since gloo has no alltoall of lists."""
        for root in range(self.size()):
            options = c10d.ScatterOptions()
            options.rootRank = root
            scattered = [self._lower(list(inputs))] if root == self.rank() else []
            self._inner.scatter([self._lower(outputs[root])], scattered, options).wait()
        return _completed_work(outputs)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather several tensors, one after the other."""
        for index, part in enumerate(inputs):
            self.allgather([[row[index] for row in outputs]], [part]).wait()
        return _completed_work(outputs)

    # torch.distributed calls these names since 2.13; C++ and older code use the names above.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    def barrier(self, opts: Any = None) -> Any:
        return self._inner.barrier(c10d.BarrierOptions())

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Any:
        return self._inner.send(self._lower(tensors), dstRank, tag)

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Any:
        return self._inner.recv(self._lower(tensors), srcRank, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        return self._inner.recv_anysource(self._lower(tensors), tag)


def _completed_work(result: Any) -> Any:
    """Return a Work that is done, with `result` as its value."""
    future: Any = torch.futures.Future()
    future.set_result(result)
    return c10d._create_work_from_future(future)


def _replace_result(work: Any, result: Any) -> Any:
    """Return gloo's Work with another value: the card's tensors, which DistributedDataParallel reads."""

    def replace(future: Any) -> Any:
        future.value()  # raises the error of a collective that failed
        return result

    return c10d._create_work_from_future(work.get_future().then(replace))


def create_process_group(store: Any, rank: int, size: int, timeout: Any) -> CardGroup:
    """Return a process group of the card; torch.distributed calls this."""
    return CardGroup(store, rank, size, timeout, _accepted_types)


def translate_nccl() -> None:
    """Let requests for nccl get the card's backend from now on, without a report, as the vendors' patches do."""
    global _translates_nccl
    _translates_nccl = True
    dist.is_nccl_available = dist.distributed_c10d.is_nccl_available = lambda: True
    torch.cuda.nccl.version = lambda: (2, 21, 5)  # torch calls it when a collective fails


def install() -> None:
    """Register the card's backend and its group class with torch.distributed."""
    name = BACKEND_OF_CARD[cards.device_name]
    dist.Backend.register_backend(name, create_process_group, devices=[cards.device_name])
    setattr(dist, f"ProcessGroup{name.upper()}", CardGroup)
    setattr(dist, f"is_{name}_available", lambda: True)
    setattr(dist.distributed_c10d, f"is_{name}_available", lambda: True)
    _wrap_group_makers()
    _wrap_data_parallel()


def install_as_nccl() -> None:
    """Register the backend for the original script, which sees it as nccl."""
    dist.Backend.register_backend("gpucl", create_process_group, devices=[cards.device_name])
    translate_nccl()

    @wrap(dist.distributed_c10d, "get_backend")
    def get_backend(plain: Any, group: Any = None) -> Any:
        name = plain(group)
        original = name.replace(f"{cards.device_name}:gpucl", "cuda:nccl").replace("gpucl", "nccl")
        return name if original == name else dist.Backend(original)

    dist.get_backend = get_backend
    _wrap_group_makers()
    _wrap_data_parallel()


def _wrap_data_parallel() -> None:
    """Let DistributedDataParallel look for unused parameters.

    For this its C++ code allocates pinned host memory by the plug-in's C++ allocator, which a stand-in does not have.
    """

    @wrap(torch.nn.parallel.DistributedDataParallel, "__init__")
    def init(plain: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        if self.find_unused_parameters or self.static_graph:
            pinning.replace_empty_strided()


def _wrap_group_makers() -> None:
    """Replace nccl by the card's backend where groups are made, and store the device types of each group's backend."""
    makers = dist.distributed_c10d
    for name in ("init_process_group", "new_group"):
        setattr(dist, name, wrap(makers, name)(_make_group))

    @wrap(makers, "_new_process_group_helper")  # makes every group, with the group's own backend or the default group's
    def make_any_group(plain: Any, *args: Any, **kwargs: Any) -> Any:
        global _accepted_types
        _accepted_types = _find_accepted_types(inspect.signature(plain).bind(*args, **kwargs).arguments["backend"])
        return plain(*args, **kwargs)


def _make_group(plain: Any, *args: Any, **kwargs: Any) -> Any:
    args, kwargs = _replace_nccl(plain.__name__, args, kwargs)
    with _without_flight_recorder():
        return plain(*args, **kwargs)


def _find_accepted_types(backend: Any) -> tuple[str, ...]:
    """Return the device types that a backend accepts; the card's library does not accept the host's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wrapped function gives the same warning
        devices = dist.distributed_c10d.BackendConfig(dist.Backend(backend)).get_device_backend_map()
    card_backend = BACKEND_OF_CARD[cards.device_name]
    accepts_host = devices.get("cpu", card_backend) != card_backend
    accepts_card = devices.get(cards.device_name) == card_backend
    return tuple(name for name, accepts in (("cpu", accepts_host), (cards.device_name, accepts_card)) if accepts)


@contextmanager
def _without_flight_recorder() -> Iterator[None]:
    """Turn torch's flight recorder off: in torch 2.15 it needs a name that process groups in Python do not have."""
    previous = os.environ.get(_RECORDER)
    os.environ[_RECORDER] = "0"
    try:
        yield
    finally:
        del os.environ[_RECORDER]
        if previous is not None:
            os.environ[_RECORDER] = previous


def _replace_nccl(
    function: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with the card's backend in place of nccl.

    nccl is reported as a limit, unless `translate_nccl` was called.
    """
    backend = BACKEND_OF_CARD[cards.device_name]
    position = 0 if function == "init_process_group" else 2  # of the parameter `backend`
    requested = kwargs.get("backend", args[position] if len(args) > position else None)
    if not isinstance(requested, str) or "nccl" not in requested.lower():
        return args, kwargs
    translated = _translate_backend(requested)
    if not _translates_nccl:
        limits.report_violation(
            "nccl-left", device=cards.device_name, backend=requested, library=backend.upper(), replacement=translated
        )
    args = tuple(translated if index == position else value for index, value in enumerate(args))
    return args, ({**kwargs, "backend": translated} if "backend" in kwargs else kwargs)


def _translate_backend(backend: str) -> str:
    """Return a backend with the card in place of CUDA: "cpu:gloo,npu:hccl" for "cpu:gloo,cuda:nccl"."""
    return backend.lower().replace("nccl", BACKEND_OF_CARD[cards.device_name]).replace("cuda", cards.device_name)
