"""A rank that stops coming forward is noticed, named and shown where it stands; then the run ends, to be begun again.

All ranks pass the same places in the same order, and count them (`Pulse`). A thread in each rank tells the others how
far it is, through the store at which the ranks met. A rank that has stood still for `hang_seconds` looks who is behind:
the others wait for that one. The rank that is behind writes the stacks of its threads; rank 0 says who it is, and
repeats where it stands. All then exit with code 75, which makes torchrun's agent start them again. Ranks whose launcher
was killed end as if they had been asked to: with a checkpoint.

Looking begins with the end of the first step, which may compile for minutes; until then, the time limit of the messages
between ranks holds.
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

from viaduct.cluster.environment import LAUNCHER
from viaduct.errors import LostRank
from viaduct.training.distributed import ADDRESS, Group, name_job_prefix

WAIT_FOR_STACK = 5.0  # seconds that the others give the rank behind to say where it stands
SECONDS_FOR_STORE = 10.0


class Pulse:
    """Position of a rank: how many points it has passed, and the last of them."""

    def __init__(self) -> None:
        self.count, self.point, self.step = 0, "the start", 0
        self.since = time.monotonic()
        self.steady = False  # the first step is done

    def at(self, point: str, step: int) -> None:
        self.count, self.point, self.step = self.count + 1, point, step
        self.since = time.monotonic()


@dataclass(frozen=True)
class Sign:
    """Position that a rank last published."""

    count: int
    point: str
    step: int

    def words(self) -> str:
        return f"{self.point} of step {self.step}"


NO_SIGN = Sign(0, "the start", 0)


class Watchdog:
    """Watches one rank, with an eye on the others."""

    def __init__(self, group: Group, pulse: Pulse, hang_seconds: float, note: Callable[[str], None]) -> None:
        self.group, self.pulse, self.hang_seconds, self.note = group, pulse, hang_seconds, note
        self.every = min(hang_seconds / 8, 5.0)
        self.store = open_store()
        # Only a launcher that is our parent: a script between us may end before we do, and mean no harm.
        self.launcher = os.getppid() if os.environ.get(LAUNCHER) == str(os.getppid()) else None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="viaduct-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        while not self._ended.wait(self.every):
            # Python is stuck as a whole if this is not renewed: then the stacks are written from outside of it.
            faulthandler.dump_traceback_later(2 * self.hang_seconds + WAIT_FOR_STACK, exit=True)
            if self.launcher is not None and os.getppid() != self.launcher:
                self.launcher = None
                os.kill(os.getpid(), signal.SIGTERM)
            with contextlib.suppress(RuntimeError):  # a store that is gone is for the others to notice
                self._publish()
            if self.pulse.steady and time.monotonic() - self.pulse.since > self.hang_seconds:
                self._give_up()

    def _publish(self) -> None:
        sign = Sign(self.pulse.count, self.pulse.point, self.pulse.step)
        self.store.set(f"sign/{self.group.rank}", json.dumps(asdict(sign)))

    def _give_up(self) -> None:
        try:
            time.sleep(2 * self.every)  # what the others say of themselves may be so old
            signs = self._signs()
            behind = find_ranks_behind(signs)
            if self.group.rank in behind:
                self._show_stack()
            if self.group.first:
                self._explain(signs, behind)
            elif self.group.rank not in behind:
                time.sleep(WAIT_FOR_STACK)  # rank 0 speaks; whoever exits first makes the agent end the others
        except RuntimeError as error:
            print(f"rank {self.group.rank}: hangs, and the meeting place is gone: {error}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(LostRank.exit_code)

    def _signs(self) -> dict[int, Sign]:
        keys = {rank: f"sign/{rank}" for rank in range(self.group.ranks)}
        said = {rank: self.store.get(key) for rank, key in keys.items() if self.store.check([key])}
        return {rank: Sign(**json.loads(said[rank])) if rank in said else NO_SIGN for rank in keys}

    def _show_stack(self) -> None:
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        stack = "".join(traceback.format_stack(main)) if main else "(it cannot be seen)\n"
        self.store.set(f"stack/{self.group.rank}", stack)
        print(f"rank {self.group.rank} hangs at {self.pulse.point} of step {self.pulse.step}:", file=sys.stderr)
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)

    def _explain(self, signs: dict[int, Sign], behind: list[int]) -> None:
        stacks = self._stacks(behind)
        for line in explanation(signs, behind, stacks, self.hang_seconds):
            self.note(line)

    def _stacks(self, ranks: list[int]) -> dict[int, str]:
        """Return where each of these ranks is, as far as it can still say so."""
        until = time.monotonic() + WAIT_FOR_STACK
        keys = {rank: f"stack/{rank}" for rank in ranks}
        while time.monotonic() < until and not self.store.check(list(keys.values())):
            time.sleep(0.1)
        return {rank: bytes(self.store.get(key)).decode() for rank, key in keys.items() if self.store.check([key])}


def find_ranks_behind(signs: dict[int, Sign]) -> list[int]:
    """Return the ranks that have passed fewer points than the others; none if all are equal."""
    counts = {rank: sign.count for rank, sign in signs.items()}
    least, most = min(counts.values()), max(counts.values())
    return [rank for rank, count in counts.items() if count == least] if least < most else []


def explanation(signs: dict[int, Sign], behind: list[int], stacks: dict[int, str], seconds: float) -> Iterator[str]:
    for rank in behind:
        mute = "" if rank in stacks else "; its process does not answer at all"
        yield f"rank {rank} hangs: for {seconds:g} s it has not come past {signs[rank].words()}{mute}."
        yield from stacks.get(rank, "").splitlines()
    if not behind:
        where = next(iter(signs.values())).words()
        yield f"all ranks hang at {where}, for {seconds:g} s: none is behind, so look at the network between them."
    else:
        yield f"The other ranks wait for it; all {len(signs)} end, to be started again."


def open_store() -> Any:
    """Open a separate connection to the rendezvous store: the first one may be in use when the run hangs."""
    host, port = (os.environ[name] for name in ADDRESS)
    timeout = timedelta(seconds=SECONDS_FOR_STORE)
    store = distributed.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=timeout)  # type: ignore[attr-defined]
    # Each start of the ranks has signs of its own.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return distributed.PrefixStore(f"viaduct/{name_job_prefix()}/watchdog/{attempt}", store)  # type: ignore[attr-defined]


@contextlib.contextmanager
def watch_ranks(group: Group, pulse: Pulse, hang_seconds: float, note: Callable[[str], None]) -> Iterator[None]:
    """Watch for ranks that hang while the block runs; a single rank is not watched."""
    if group.ranks == 1:
        yield
        return
    dog = Watchdog(group, pulse, hang_seconds, note)
    dog.start()
    try:
        yield
    finally:
        dog.close()
