"""Finds a rank that makes no progress, prints its stack, and ends all ranks so that they are started again.

All ranks pass the same points of a step in the same order and count them (`Pulse`). A thread in each rank publishes its
count in the rendezvous store. A rank that makes no progress for `hang_seconds` compares the counts: the ranks with the
lowest count are those that the others wait for. Each of these prints the stacks of its threads; rank 0 prints their
numbers and the stacks of their main threads. Then all ranks end, so that torchrun's agent can start them again: with
code 75, or with code 1 if Python code cannot run because the GIL is never released. A rank whose launcher was killed
sends itself SIGTERM and ends with a checkpoint.

The first step may compile for minutes; until it has ended, only the timeout of the messages between ranks applies.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from torch import distributed

from viaduct.cluster.environment import LAUNCHER_VARIABLE
from viaduct.errors import LostRank
from viaduct.training.distributed import ADDRESS_VARIABLES, Group, name_job_prefix

WAIT_FOR_STACK_S = 5.0  # in which the ranks that are behind must publish their stacks
STORE_TIMEOUT_S = 10.0  # of a request to the rendezvous store


class Pulse:
    """Progress of a rank: how many points it has passed, the last of them, and when."""

    def __init__(self) -> None:
        self.count, self.point, self.step = 0, "the start", 0
        self.reached_at = time.monotonic()
        self.has_done_step = False  # True once the first step is done

    def reach_point(self, point: str, step: int) -> None:
        """Record that the rank has reached this point of a step."""
        self.count, self.point, self.step = self.count + 1, point, step
        self.reached_at = time.monotonic()


@dataclass(frozen=True)
class Position:
    """The part of a `Pulse` that a rank publishes."""

    count: int
    point: str
    step: int

    def describe(self) -> str:
        return f"{self.point} of step {self.step}"


UNPUBLISHED = Position(0, "the start", 0)


class Watchdog:
    """Within its `with` block: publishes the position of this rank, and ends the process if it makes no progress.

    `report` prints a line.
    """

    def __init__(self, group: Group, pulse: Pulse, hang_seconds: float, report: Callable[[str], None]) -> None:
        self.group, self.pulse, self.hang_seconds, self.report = group, pulse, hang_seconds, report
        self.interval = min(hang_seconds / 8, 5.0)  # seconds between two publications
        self.store = open_store()
        # The launcher's process id; None if another process, such as a script that may end before the run, is the
        # parent.
        self.launcher = os.getppid() if os.environ.get(LAUNCHER_VARIABLE) == str(os.getppid()) else None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="viaduct-watchdog", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *details: object) -> None:
        self._ended.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        """Publish the position, and check launcher and progress, until the watchdog is closed; runs in a thread."""
        while not self._ended.wait(self.interval):
            # If the GIL is never released, this timer is not renewed; its C thread then prints the stacks and exits.
            faulthandler.dump_traceback_later(2 * self.hang_seconds + WAIT_FOR_STACK_S, exit=True)
            if self.launcher is not None and os.getppid() != self.launcher:
                self.launcher = None
                os.kill(os.getpid(), signal.SIGTERM)
            with contextlib.suppress(RuntimeError):  # the messages between ranks report a lost store
                position = Position(self.pulse.count, self.pulse.point, self.pulse.step)
                self.store.set(f"position/{self.group.rank}", json.dumps(asdict(position)))
            if self.pulse.has_done_step and time.monotonic() - self.pulse.reached_at > self.hang_seconds:
                self._end_hung_run()

    def _end_hung_run(self) -> None:
        """Report which ranks are behind, and end this process so that the agent starts all ranks again."""
        try:
            time.sleep(2 * self.interval)  # so that the others have published their positions since the hang began
            positions = self._read_positions()
            behind = find_ranks_behind(positions)
            if self.group.rank in behind:
                self._publish_stack()
            if self.group.is_rank_zero:
                for line in explain_hang(positions, behind, self._read_stacks(behind), self.hang_seconds):
                    self.report(line)
            elif self.group.rank not in behind:
                time.sleep(WAIT_FOR_STACK_S)  # rank 0 prints meanwhile; the agent ends all ranks when one exits
        except RuntimeError as error:
            print(f"rank {self.group.rank}: hangs, and the rendezvous store is lost: {error}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(LostRank.exit_code)

    def _read_positions(self) -> dict[int, Position]:
        keys = {rank: f"position/{rank}" for rank in range(self.group.ranks)}
        published = {rank: self.store.get(key) for rank, key in keys.items() if self.store.check([key])}
        return {rank: Position(**json.loads(published[rank])) if rank in published else UNPUBLISHED for rank in keys}

    def _publish_stack(self) -> None:
        """Publish the stack of the main thread, and print those of all threads."""
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        stack = "".join(traceback.format_stack(main)) if main else "(it cannot be seen)\n"
        self.store.set(f"stack/{self.group.rank}", stack)
        print(f"rank {self.group.rank} hangs at {self.pulse.point} of step {self.pulse.step}:", file=sys.stderr)
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)

    def _read_stacks(self, ranks: list[int]) -> dict[int, str]:
        """Return the stacks that these ranks publish within WAIT_FOR_STACK_S."""
        until = time.monotonic() + WAIT_FOR_STACK_S
        keys = {rank: f"stack/{rank}" for rank in ranks}
        while time.monotonic() < until and not self.store.check(list(keys.values())):
            time.sleep(0.1)
        return {rank: bytes(self.store.get(key)).decode() for rank, key in keys.items() if self.store.check([key])}


def find_ranks_behind(positions: dict[int, Position]) -> list[int]:
    """Return the ranks that have passed the fewest points; none if all have passed the same number."""
    counts = {rank: position.count for rank, position in positions.items()}
    lowest, highest = min(counts.values()), max(counts.values())
    return [rank for rank, count in counts.items() if count == lowest] if lowest < highest else []


def explain_hang(
    positions: dict[int, Position], behind: list[int], stacks: dict[int, str], seconds: float
) -> Iterator[str]:
    """Yield lines that name the ranks behind, with their stacks."""
    for rank in behind:
        silence = "" if rank in stacks else "; its stack did not arrive"
        position = positions[rank].describe()
        yield f"rank {rank} hangs: after {seconds:g} s without progress it has not come past {position}{silence}."
        yield from stacks.get(rank, "").splitlines()
    if not behind:
        position = next(iter(positions.values())).describe()
        yield f"all ranks hang at {position}, for {seconds:g} s: none is behind, so check the network between them."
    else:
        them = "it" if len(behind) == 1 else "them"
        yield f"The other ranks wait for {them}; all {len(positions)} end, so that a launcher can start them again."


def open_store() -> Any:
    """Return a separate connection to the rendezvous store: the first one may be in use when the run hangs."""
    host, port = (os.environ[name] for name in ADDRESS_VARIABLES)
    timeout = timedelta(seconds=STORE_TIMEOUT_S)
    store = distributed.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=timeout)  # type: ignore[attr-defined]
    # Keys of an earlier start of the ranks must not be read.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return distributed.PrefixStore(f"viaduct/{name_job_prefix()}/watchdog/{attempt}", store)  # type: ignore[attr-defined]
