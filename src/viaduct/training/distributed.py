"""Ranks: the processes of one run, each on a device of its own, joined by torch.distributed.

A rank is told by torchrun's variables who it is: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. Without
them a run is alone, and everything here is a matter of course. Tensors travel by the device's own backend; what the
hosts have to say to one another, by gloo.
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
from viaduct.cluster.secret import VARIABLE, corner_of
from viaduct.devices.base import first_line
from viaduct.errors import BadValue, Diverged, LostRank, ViaductError
from viaduct.path_errors import explain_os_error
from viaduct.recipes import Parallel
from viaduct.training.messages import decode, encode

Answer = TypeVar("Answer")
ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
GRACE = 60.0  # seconds that a message may take beyond `hang_seconds`, so that the watchdog speaks first
# What the backends say when the other side is gone; gloo raises nothing more exact than RuntimeError.
SIGNS = ("gloo", "NCCL", "HCCL", "CNCL", "onnection closed by peer", "onnection reset by peer", "Timed out waiting")
# torch 2.13 has renamed it.
BUFFERS_IN_FORWARD = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)
LONGEST_MESSAGE = 1 << 36  # bytes: weights, averages and optimizer state of the largest network, many times over
SENT_AS = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Group:
    """The ranks of a run, seen from one of them."""

    rank: int = 0
    ranks: int = 1
    local_rank: int | None = None  # None: not started by torchrun
    local_ranks: int = 1

    @property
    def first(self) -> bool:
        """Whether this rank writes the files and speaks for all."""
        return self.rank == 0

    def add_up(self, tensor: Tensor) -> None:
        """In place: the sum over the ranks."""
        if self.ranks > 1:
            distributed.all_reduce(tensor)

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """In place: rank 0's values."""
        if self.ranks > 1:
            for tensor in tensors:
                distributed.broadcast(tensor, 0)

    def from_first(self, value: Answer | None) -> Answer:
        """Rank 0's value; what the others give is not looked at."""
        if self.ranks == 1:
            return cast(Answer, value)
        data = as_bytes(encode(value)) if self.first else None
        length = torch.tensor([data.numel() if data is not None else 0])
        distributed.broadcast(length, 0)
        if data is None:
            data = torch.empty(checked_length(int(length)), dtype=torch.uint8)
        distributed.broadcast(data, 0)
        return cast(Answer, value if self.first else decode(data.numpy().data))

    def gather(self, value: Answer) -> list[Answer]:
        """Every rank's value, in the order of the ranks."""
        if self.ranks == 1:
            return [value]
        data = as_bytes(encode(value))
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.ranks)]
        distributed.all_gather(lengths, torch.tensor([data.numel()]))
        longest = max(checked_length(int(length)) for length in lengths)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: data.numel()] = data
        held = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.ranks)]
        distributed.all_gather(held, padded)
        parts = zip(held, lengths, strict=True)
        return [decode(part.numpy().data[: int(length)]) for part, length in parts]

    def first_does(self, action: Callable[[], Answer]) -> Answer:
        """What rank 0 makes of it, for everybody; if that fails, all stop, and rank 0 says why."""
        if self.ranks == 1:
            return action()
        if self.first:
            return self._do(action)
        answer, lost, what = self.from_first(cast("tuple[Answer, bool, str | None] | None", None))
        if what is not None:
            error = LostRank(what) if lost else ViaductError(what)
            error.told = True
            raise error
        return answer

    def _do(self, action: Callable[[], Answer]) -> Answer:
        try:
            answer = action()
        except (ViaductError, OSError) as failure:
            error = failure if isinstance(failure, ViaductError) else explain_os_error(failure, sys.argv[1:])
            if error is None:
                raise
            self.from_first((None, isinstance(error, LostRank), error.what))
            raise error from None
        self.from_first((answer, False, None))
        return answer


def as_bytes(message: bytes) -> Tensor:
    return torch.frombuffer(bytearray(message), dtype=torch.uint8)


def checked_length(length: int) -> int:
    """Of a message that another rank announces."""
    if not 0 < length <= LONGEST_MESSAGE:
        raise LostRank(f"another rank announces a message of {length:,} bytes.")
    return length


ALONE = Group()
# Groups that were left, until the process ends. Where DistributedDataParallel's C++ side lets go of one last, it waits,
# with Python locked, for threads that may still be waiting for Python: now and then a rank hung there in the end.
PARTED: list[Any] = []


def own_place(variables: Mapping[str, str] = os.environ) -> Group:
    """Where torchrun says that this process stands."""
    if "RANK" not in variables or "WORLD_SIZE" not in variables:
        return ALONE
    missing = [name for name in ADDRESS if not variables.get(name)]
    if missing:
        raise BadValue(
            f"RANK={variables['RANK']} makes this one rank of several, but {' and '.join(missing)} are not set.",
            "`viaduct train --ranks N` and `viaduct launch` set them; to train alone, unset RANK and WORLD_SIZE.",
        )
    rank, ranks = number(variables, "RANK"), number(variables, "WORLD_SIZE")
    local_rank, local_ranks = number(variables, "LOCAL_RANK", rank), number(variables, "LOCAL_WORLD_SIZE", ranks)
    number(variables, "MASTER_PORT")
    if not 0 <= rank < ranks:
        raise BadValue(f"RANK is {rank}, but WORLD_SIZE is {ranks}.", "Ranks are counted from 0.")
    return Group(rank, ranks, local_rank, local_ranks)


def number(variables: Mapping[str, str], name: str, default: int = 0) -> int:
    text = variables.get(name, str(default))
    if not text.isdecimal():
        raise BadValue(f"{name} is {text!r}; it must be a whole number.")
    return int(text)


@contextmanager
def joined(device: str, hang_seconds: float) -> Iterator[Group]:
    """Meet the other ranks, if there are any, and part from them in the end."""
    group = own_place()
    if group.local_rank is None:
        yield group
        return
    with errors_of_ranks(group):
        room, place = devices.pick(device, group.local_rank)
        share_cores(place.type, group)
        backend = room.collective_backend()
        meet(group, backend if place.type == "cpu" else f"cpu:gloo,{place.type}:{backend}", hang_seconds + GRACE)
        if place.type != "cpu":
            check_sum(group, place, backend)
        yield group
        leave()


def check_sum(group: Group, place: torch.device, backend: str) -> None:
    """Count the ranks on their devices, also one alone: a backend that does not work shows before the first step."""
    count = torch.ones(1, device=place)
    distributed.all_reduce(count)
    if int(count.item()) != group.ranks:
        raise LostRank(f"rank {group.rank}: {backend} counts {int(count.item())} ranks, not {group.ranks}.")


def leave() -> None:
    """Nobody leaves while another still reads what it was sent; after that, how the others end is their own affair."""
    with suppress(RuntimeError):
        distributed.barrier()
    PARTED.append(distributed.group.WORLD)
    distributed.destroy_process_group()


def share_cores(device: str, group: Group) -> None:
    """On the CPU ranks that each take all cores would slow one another down many times over."""
    if device == "cpu" and group.local_ranks > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // group.local_ranks))


def meet(group: Group, backend: str, seconds: float) -> None:
    where = ":".join(os.environ[name] for name in ADDRESS)
    try:
        join(group, backend, timedelta(seconds=seconds))
    except distributed.DistNetworkError as error:
        raise BadValue(
            f"rank {group.rank} of {group.ranks} cannot reach the meeting place {where}: {first_line(error)}",
            "MASTER_ADDR and MASTER_PORT must be those of rank 0's machine, and its port must be open and free.",
        ) from None
    except RuntimeError as error:
        raise LostRank(
            f"rank {group.rank} of {group.ranks} waited in vain for the others at {where}: {first_line(error)}"
        ) from None


def join(group: Group, backend: str, timeout: timedelta) -> None:
    """The store at the meeting place outlives a restart: each start has a corner of its own, free of old addresses."""
    store, *_ = next(rendezvous("env://", timeout=timeout))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    corner = distributed.PrefixStore(f"viaduct/{job_corner()}/start_{attempt}", store)  # type: ignore[attr-defined]
    distributed.init_process_group(backend, store=corner, rank=group.rank, world_size=group.ranks, timeout=timeout)
    # A thread of gloo that still waits for Python when Python ends is aborted, and the process with it (SIGABRT).
    atexit.register(time.sleep, 0.2)


def job_corner() -> str:
    """Where the keys of this job's ranks lie; it follows from the job's secret."""
    return corner_of(os.environ.get(VARIABLE, ""), "ranks")


@contextmanager
def errors_of_ranks(group: Group) -> Iterator[None]:
    """A lost connection becomes an error in words; what all ranks meet is told by rank 0, the rest with its rank."""
    try:
        yield
    except Diverged as error:
        error.told = not group.first
        raise
    except LostRank:
        raise
    except ViaductError as error:
        if not group.first and not error.told:
            error.args = (f"rank {group.rank}: {error}",)
        raise
    except OSError as error:
        explained = explain_os_error(error, sys.argv[1:])
        if explained is None:
            raise
        if not group.first:
            explained.args = (f"rank {group.rank}: {explained}",)
        raise explained from None
    except RuntimeError as error:
        if not lost(error):
            raise
        raise LostRank(f"rank {group.rank} lost another rank of the run: {first_line(error)}") from None


def lost(error: RuntimeError) -> bool:
    return isinstance(error, distributed.DistError) or any(sign in str(error) for sign in SIGNS)


class Agreement:
    """What one rank wants, all do after the same step: stop for a signal, save now, end the run.

    The wishes of a step travel while the next one is computed, and hold after it: no rank waits for the slowest, and
    no host is more than a step ahead of another. Alone, a wish holds at once.
    """

    def __init__(self, group: Group, asked: Callable[[], int]) -> None:
        self.group, self._asked = group, asked
        self.want_save = self.want_end = False
        self.save = self.end = False
        self._signal = 0
        self._stale = False
        self._sent: tuple[Tensor, Any] | None = None

    def signal(self) -> int:
        """The number of the signal that all ranks know of; 0: none."""
        return int(self._asked()) if self.group.ranks == 1 else self._signal

    def exchange(self) -> None:
        """After each step, and each batch of an evaluation: hear the last wishes, and send the new ones."""
        if self.group.ranks == 1:
            return
        self.settle()
        wishes = torch.tensor([int(self._asked()), int(self.want_save), int(self.want_end)], dtype=torch.int32)
        self._sent = wishes, distributed.all_reduce(wishes, distributed.ReduceOp.MAX, async_op=True)

    def settle(self) -> None:
        """Hear what is still on its way."""
        if self._sent is None:
            return
        wishes, work = self._sent
        work.wait()
        self._sent = None
        number, save, end = wishes.tolist()
        self._signal = max(self._signal, number)
        self.save = bool(save) and not self._stale
        self.end = self.end or bool(end)
        self._stale = False

    def time_to_save(self, due: bool) -> bool:
        """Whether to save now, of which rank 0's clock decides."""
        if self.group.ranks == 1:
            return due
        self.want_save = due and self.group.first
        return self.save

    def saved(self) -> None:
        """A wish to save that is on its way was for what has just been done."""
        self.want_save = self.save = False
        self._stale = self._sent is not None


def in_parallel(
    network: nn.Module, part: Parallel, deterministic: bool, group: Group, apart: tuple[type[nn.Module], ...] = ()
) -> nn.Module:
    """The network whose gradients are means over the ranks, sent in buckets while others are still computed.

    After the first step torch sorts the buckets anew, by the order in which gradients come; sums over more than two
    ranks then round differently. A resumed run begins with a first step again: to get the same bits it must not sort.
    Layers that stand `apart` are not the same on all ranks: they have their own gradients.
    """
    if group.ranks == 1:
        return network
    # Statistics are rank 0's: copied before an evaluation, not in every step.
    options: dict[str, Any] = {BUFFERS_IN_FORWARD: False}
    with left_out(network, apart) as parameters:
        if parameters:
            options |= leave_unsynchronized(network, parameters)
        if not any(parameter.requires_grad for parameter in network.parameters()):
            return network
        whole = DistributedDataParallel(
            network,
            **options,
            bucket_cap_mb=part.bucket_mb,
            find_unused_parameters=part.find_unused or (deterministic and group.ranks > 2),
            gradient_as_bucket_view=True,
        )
    if part.compress != "none":
        whole.register_comm_hook(SENT_AS[part.compress], lambda dtype, bucket: send_as(dtype, bucket))
    return whole


def leave_unsynchronized(network: nn.Module, parameters: list[nn.Parameter]) -> dict[str, Any]:
    """Keep parameters of different shapes from being compared and copied; their values come with the run's start.

    Returns what DistributedDataParallel is given for it. torch 2.4 has no such argument, and reads the names of what it
    shall ignore from the network.
    """
    if "init_sync" in inspect.signature(DistributedDataParallel).parameters:
        return {"init_sync": False}
    apart = set(map(id, parameters))
    names = [name for name, parameter in network.named_parameters() if id(parameter) in apart]
    network._ddp_params_and_buffers_to_ignore = names  # type: ignore[assignment]
    return {}


@contextmanager
def left_out(network: nn.Module, kinds: tuple[type[nn.Module], ...]) -> Iterator[list[nn.Parameter]]:
    """Meanwhile the layers of these kinds do not learn: DistributedDataParallel takes what does when it is made."""
    layers = [layer for layer in network.modules() if isinstance(layer, kinds)]
    learning = [parameter for layer in layers for parameter in layer.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield [parameter for layer in layers for parameter in layer.parameters()]
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


def send_as(dtype: torch.dtype, bucket: Any) -> torch.futures.Future[Tensor]:
    """A bucket of gradients travels in fewer bits. torch's own hook for bf16 refuses all backends but NCCL."""
    message = bucket.buffer().to(dtype).div_(distributed.get_world_size())
    work = distributed.all_reduce(message, async_op=True)
    assert work is not None

    def widen(arrived: torch.futures.Future[list[Tensor]]) -> Tensor:
        gradients: Tensor = bucket.buffer()
        return gradients.copy_(arrived.value()[0])

    widened: torch.futures.Future[Tensor] = work.get_future().then(widen)
    return widened
