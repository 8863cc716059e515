"""Ranks: the processes of one run, each on a device of its own (or all on the CPU), joined by torch.distributed.

torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each rank. Without RANK
or WORLD_SIZE a run has one rank, and the functions here send nothing. Tensors on devices are sent by the device's own
backend (NCCL, HCCL, CNCL), tensors on the host and messages by gloo.
"""

from __future__ import annotations

import atexit
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from viaduct import devices
from viaduct.cluster.secret import SECRET_VARIABLE, derive_key_prefix
from viaduct.cores import count_cores
from viaduct.devices.base import summarise_error
from viaduct.errors import BadValue, Diverged, LostRank, ViaductError
from viaduct.path_errors import explain_os_error
from viaduct.recipes import Parallel
from viaduct.training.messages import decode, encode

Result = TypeVar("Result")
ADDRESS_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
# Messages time out this many seconds after `parallel.hang_seconds`, so that the watchdog (watchdog.py) reports first.
GRACE_S = 60.0
# Parts of error messages that suggest that another rank is gone; gloo raises nothing more specific than RuntimeError.
# Two of them lack their first letter, which may be small or a capital.
LOST_CONNECTION_TEXTS = (
    "gloo",
    "NCCL",
    "HCCL",
    "CNCL",
    "onnection closed by peer",
    "onnection reset by peer",
    "Timed out waiting",
)
# DistributedDataParallel's argument for copying buffers in each forward pass; torch 2.13 has renamed it.
BUFFERS_IN_FORWARD = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)
MAX_MESSAGE_BYTES = 1 << 36  # 64 GiB: many times the weights, their averages and the optimizer state of large networks
# Dtypes in which gradients are sent, by the recipe's `parallel.compress`.
WIRE_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Group:
    """The ranks of a run, seen from one of them."""

    rank: int = 0
    ranks: int = 1
    local_rank: int | None = None  # among the ranks of this machine; None: not started by a launcher
    local_ranks: int = 1  # on this machine

    @property
    def is_rank_zero(self) -> bool:
        """Return True on rank 0, which writes the files and prints for all."""
        return self.rank == 0

    @property
    def ranks_flag(self) -> str:
        """The flag --ranks for a command that resumes a run of several ranks on one machine; else empty."""
        return f" --ranks {self.ranks}" if 1 < self.ranks == self.local_ranks else ""

    def broadcast_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Copy rank 0's tensors into those of the other ranks, in place."""
        if self.ranks > 1:
            for tensor in tensors:
                distributed.broadcast(tensor, 0)

    def broadcast_value(self, value: Result | None) -> Result:
        """Return rank 0's value on every rank; the values of the others are ignored."""
        if self.ranks == 1:
            return cast(Result, value)
        data = to_byte_tensor(encode(value)) if self.is_rank_zero else None
        length = torch.tensor([data.numel() if data is not None else 0])
        distributed.broadcast(length, 0)
        if data is None:
            data = torch.empty(check_length(int(length)), dtype=torch.uint8)
        distributed.broadcast(data, 0)
        return cast(Result, value if self.is_rank_zero else decode(data.numpy().data))

    def gather(self, value: Result) -> list[Result]:
        """Return every rank's value, in the order of the ranks."""
        if self.ranks == 1:
            return [value]
        data = to_byte_tensor(encode(value))
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.ranks)]
        distributed.all_gather(lengths, torch.tensor([data.numel()]))
        longest = max(check_length(int(length)) for length in lengths)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: data.numel()] = data
        received = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.ranks)]
        distributed.all_gather(received, padded)
        messages = zip(received, lengths, strict=True)
        return [decode(message.numpy().data[: int(length)]) for message, length in messages]

    def run_on_rank_zero(self, action: Callable[[], Result]) -> Result:
        """Run the action on rank 0 and return its result on every rank.

        If it raises a ViaductError, or an OSError that `explain_os_error` explains, every rank raises an error, and
        rank 0 prints the reason. After any other error the other ranks lose their connection, because rank 0 ends.
        """
        if self.ranks == 1:
            return action()
        if self.is_rank_zero:
            return self._run_and_broadcast(action)
        answer: tuple[Result, bool, str | None] = self.broadcast_value(None)
        result, is_lost_rank, reason = answer
        if reason is not None:
            error = LostRank(reason) if is_lost_rank else ViaductError(reason)
            error.is_silent = True  # rank 0 prints it
            raise error
        return result

    def _run_and_broadcast(self, action: Callable[[], Result]) -> Result:
        """Run the action on rank 0; send its result, whether it raised a LostRank, and the reason of its error."""
        try:
            result = action()
        except (ViaductError, OSError) as failure:
            error = failure if isinstance(failure, ViaductError) else explain_os_error(failure, sys.argv[1:])
            if error is None:
                raise
            self.broadcast_value((None, isinstance(error, LostRank), error.message))
            raise error from None
        self.broadcast_value((result, False, None))
        return result


def to_byte_tensor(message: bytes) -> Tensor:
    return torch.frombuffer(bytearray(message), dtype=torch.uint8)


def check_length(length: int) -> int:
    """Return the length that another rank announces for its message; raise LostRank if it is not plausible."""
    if not 0 < length <= MAX_MESSAGE_BYTES:
        raise LostRank(f"another rank announces a message of {length:,} bytes.")
    return length


ALONE = Group()
# Process groups that this process has left are kept until it ends. When DistributedDataParallel's C++ code drops the
# last reference to a group, it holds the GIL and waits for threads that may need the GIL, which can hang a rank.
LEFT_GROUPS: list[Any] = []


def read_group(variables: Mapping[str, str] = os.environ) -> Group:
    """Return this process's rank and the number of ranks by torchrun's variables; ALONE without RANK or WORLD_SIZE."""
    if "RANK" not in variables or "WORLD_SIZE" not in variables:
        return ALONE
    missing = [name for name in ADDRESS_VARIABLES if not variables.get(name)]
    if missing:
        raise BadValue(
            f"RANK={variables['RANK']} makes this a rank of a job, which needs {' and '.join(missing)}, too.",
            "`viaduct train --ranks N` and `viaduct launch` set them; to train alone, unset RANK and WORLD_SIZE.",
        )
    rank, ranks = read_number(variables, "RANK"), read_number(variables, "WORLD_SIZE")
    local_rank = read_number(variables, "LOCAL_RANK", rank)
    local_ranks = read_number(variables, "LOCAL_WORLD_SIZE", ranks)
    read_number(variables, "MASTER_PORT")
    if not 0 <= rank < ranks:
        raise BadValue(f"RANK is {rank}, but WORLD_SIZE is {ranks}.", "Ranks are counted from 0.")
    return Group(rank, ranks, local_rank, local_ranks)


def read_number(variables: Mapping[str, str], name: str, default: int = 0) -> int:
    """Return a variable that must be a whole number; raise BadValue if it is not."""
    text = variables.get(name, str(default))
    if not text.isdecimal():
        raise BadValue(f"{name} is {text!r}; it must be a whole number.")
    return int(text)


@contextmanager
def join_ranks(device: str, hang_seconds: float) -> Iterator[Group]:
    """Join the other ranks, if a launcher has started this process; leave them if the block ends without an error."""
    group = read_group()
    if group.local_rank is None:
        yield group
        return
    with explain_rank_errors(group):
        device_module, torch_device = devices.pick(device, group.local_rank)
        share_cores(torch_device.type, group)
        backend = device_module.get_collective_backend()
        backends = backend if torch_device.type == "cpu" else f"cpu:gloo,{torch_device.type}:{backend}"
        join_rendezvous(group, backends, hang_seconds + GRACE_S)
        if torch_device.type != "cpu":
            check_rank_count(group, torch_device, backend)
        yield group
        leave_ranks()


def check_rank_count(group: Group, torch_device: torch.device, backend: str) -> None:
    """Sum a 1 over the ranks' devices, so that a backend that does not work fails before the first step."""
    count = torch.ones(1, device=torch_device)
    distributed.all_reduce(count)
    if int(count.item()) != group.ranks:
        raise LostRank(f"rank {group.rank}: {backend} counts {int(count.item())} ranks, not {group.ranks}.")


def leave_ranks() -> None:
    """Leave the process group once all ranks have reached this point and read what they were sent."""
    with suppress(RuntimeError):  # this rank is done, whether or not another one has gone meanwhile
        distributed.barrier()
    LEFT_GROUPS.append(distributed.group.WORLD)
    distributed.destroy_process_group()


def share_cores(device: str, group: Group) -> None:
    """Divide the cores among the ranks of a machine if they train on the CPU, unless OMP_NUM_THREADS is set."""
    if device == "cpu" and group.local_ranks > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, count_cores() // group.local_ranks))


def join_rendezvous(group: Group, backend: str, seconds: float) -> None:
    """Join the process group; an error names the rendezvous address."""
    address = ":".join(os.environ[name] for name in ADDRESS_VARIABLES)
    attempt, timeout = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), timedelta(seconds=seconds)
    # Keys have a prefix for each start of the ranks, because the rendezvous store outlives a restart.
    prefix = f"viaduct/{name_job_prefix()}/start_{attempt}"
    rank, ranks = group.rank, group.ranks
    try:
        store, *_ = next(rendezvous("env://", timeout=timeout))
        prefixed = distributed.PrefixStore(prefix, store)  # type: ignore[attr-defined]
        distributed.init_process_group(backend, store=prefixed, timeout=timeout, rank=rank, world_size=ranks)
    except distributed.DistNetworkError as error:
        raise BadValue(
            f"rank {rank} of {ranks} cannot reach the rendezvous address {address}: {summarise_error(error)}",
            "MASTER_ADDR and MASTER_PORT must be those of rank 0's machine, and its port must be open and free.",
        ) from None
    except RuntimeError as error:
        reason = summarise_error(error)
        raise LostRank(f"rank {rank} of {ranks} could not join the other ranks at {address}: {reason}") from None
    # Give gloo's threads time to end: one that waits for the GIL when Python ends would abort the process (SIGABRT).
    atexit.register(time.sleep, 0.2)


def name_job_prefix() -> str:
    """Return the prefix of the store's keys for this job, derived from the job's secret."""
    return derive_key_prefix(os.environ.get(SECRET_VARIABLE, ""), "ranks")


@contextmanager
def explain_rank_errors(group: Group) -> Iterator[None]:
    """Turn a lost connection into LostRank, and an OSError that can be explained into an error for the user.

    On all ranks but rank 0 the rank is put before the text of an error for the user, unless rank 0 prints the error.
    """
    try:
        yield
    except Diverged as error:
        error.is_silent = not group.is_rank_zero  # all ranks find the same loss
        raise
    except LostRank:
        raise
    except (ViaductError, OSError) as error:
        explained = error if isinstance(error, ViaductError) else explain_os_error(error, sys.argv[1:])
        if explained is not None and not group.is_rank_zero and not explained.is_silent:
            explained.args = (f"rank {group.rank}: {explained}",)
        if explained is None or explained is error:
            raise
        raise explained from None
    except RuntimeError as error:
        if not is_lost_connection(error):
            raise
        raise LostRank(f"rank {group.rank} lost another rank of the run: {summarise_error(error)}") from None


def is_lost_connection(error: RuntimeError) -> bool:
    """Return True if the error's type or text suggests that another rank is gone."""
    return isinstance(error, distributed.DistError) or any(text in str(error) for text in LOST_CONNECTION_TEXTS)


class Agreement:
    """Requests of single ranks (stop for a signal, save now, end the run) that all ranks act on after the same step.

    Requests are sent while the next step is computed, and take effect after it, so that no rank waits for them. With a
    single rank a request takes effect at once.
    """

    def __init__(self, group: Group, read_signal: Callable[[], int]) -> None:
        self.group, self._read_signal = group, read_signal
        self.wants_save = self.wants_end = False  # requests of this rank
        self.is_save_agreed = self.is_end_agreed = False  # requests that all ranks know of
        self._signal = 0
        self._is_save_stale = False  # True if a checkpoint was written after the requests that are being sent
        self._sent: tuple[Tensor, Any] | None = None  # the requests that are being sent, and the handle to wait for

    def get_signal(self) -> int:
        """Return the number of the signal that all ranks know of; 0 for none."""
        return int(self._read_signal()) if self.group.ranks == 1 else self._signal

    def exchange(self) -> None:
        """Receive the requests of the last step and send the new ones; called after each step and evaluation batch."""
        if self.group.ranks == 1:
            return
        self.finish_exchange()
        values = [int(self._read_signal()), int(self.wants_save), int(self.wants_end)]
        requests = torch.tensor(values, dtype=torch.int32)
        self._sent = requests, distributed.all_reduce(requests, distributed.ReduceOp.MAX, async_op=True)

    def finish_exchange(self) -> None:
        """Wait for the requests that are still being sent."""
        if self._sent is None:
            return
        requests, work = self._sent
        work.wait()
        self._sent = None
        signal, save, end = requests.tolist()
        self._signal = max(self._signal, signal)
        self.is_save_agreed = bool(save) and not self._is_save_stale
        self.is_end_agreed = self.is_end_agreed or bool(end)
        self._is_save_stale = False

    def is_save_due(self, is_late: bool) -> bool:
        """Return True if all ranks save now. `is_late`: a checkpoint is due by this rank's clock; rank 0's decides."""
        if self.group.ranks == 1:
            return is_late
        self.wants_save = is_late and self.group.is_rank_zero
        return self.is_save_agreed

    def mark_saved(self) -> None:
        """Drop requests to save, because a checkpoint was just written."""
        self.wants_save = self.is_save_agreed = False
        self._is_save_stale = self._sent is not None


def wrap_network(
    network: nn.Module,
    settings: Parallel,
    deterministic: bool,
    group: Group,
    rank_specific: tuple[type[nn.Module], ...] = (),
) -> nn.Module:
    """Wrap a network so that its gradients are averaged over the ranks, in buckets during the backward pass.

    The gradients of layers of the classes `rank_specific`, which differ between ranks, are not averaged.

    After the first step torch sorts the buckets by the order in which gradients are ready, and sums over more than two
    ranks then round differently. A resumed run has a first step again, so a deterministic run must not sort:
    find_unused_parameters prevents it.
    """
    if group.ranks == 1:
        return network
    # Batch norm statistics are copied from rank 0 before an evaluation, not in every step.
    options: dict[str, Any] = {BUFFERS_IN_FORWARD: False}
    with freeze_layers(network, rank_specific) as parameters:
        if parameters:
            options |= leave_unsynchronized(network, parameters)
        if not any(parameter.requires_grad for parameter in network.parameters()):
            return network
        wrapped = DistributedDataParallel(
            network,
            **options,
            bucket_cap_mb=settings.bucket_mb,
            find_unused_parameters=settings.find_unused or (deterministic and group.ranks > 2),
            gradient_as_bucket_view=True,
        )
    if settings.compress != "none":
        # A lambda, because torch checks the annotations of a hook.
        wrapped.register_comm_hook(WIRE_DTYPES[settings.compress], lambda dtype, bucket: compress_bucket(dtype, bucket))
    return wrapped


def leave_unsynchronized(network: nn.Module, parameters: list[nn.Parameter]) -> dict[str, Any]:
    """Return arguments that keep DistributedDataParallel from copying rank 0's weights into all ranks at its start.

    It would fail, because the shapes of `parameters` differ between ranks. torch 2.4 has no such argument; it reads the
    names of these parameters from an attribute of the network.
    """
    if "init_sync" in inspect.signature(DistributedDataParallel).parameters:
        return {"init_sync": False}
    excluded = set(map(id, parameters))
    names = [name for name, parameter in network.named_parameters() if id(parameter) in excluded]
    network._ddp_params_and_buffers_to_ignore = names  # type: ignore[assignment]
    return {}


@contextmanager
def freeze_layers(network: nn.Module, kinds: tuple[type[nn.Module], ...]) -> Iterator[list[nn.Parameter]]:
    """Freeze the layers of these classes within the block, so that DistributedDataParallel leaves them out.

    Yield their parameters.
    """
    layers = [layer for layer in network.modules() if isinstance(layer, kinds)]
    trainable = [parameter for layer in layers for parameter in layer.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield [parameter for layer in layers for parameter in layer.parameters()]
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def compress_bucket(dtype: torch.dtype, bucket: Any) -> torch.futures.Future[Tensor]:
    """Average a bucket of gradients over the ranks in a narrower dtype; torch's own hook for bf16 needs NCCL."""
    message = bucket.buffer().to(dtype).div_(distributed.get_world_size())
    work = distributed.all_reduce(message, async_op=True)
    assert work is not None

    def widen(averaged: torch.futures.Future[list[Tensor]]) -> Tensor:
        gradients: Tensor = bucket.buffer()
        return gradients.copy_(averaged.value()[0])

    widened: torch.futures.Future[Tensor] = work.get_future().then(widen)
    return widened
