"""From the start of a process to its first training step, each variant in a process of its own.

    python -m viaduct.benching.starts < order.json

In one process whoever comes later finds libraries loaded and kernels chosen. Each variant starts once to leave on disk
what it compiles, and then in turns with the others, as it does on every day but the first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from threading import Timer
from typing import IO, TYPE_CHECKING

from viaduct.errors import ViaductError

if TYPE_CHECKING:
    from viaduct.benching.measure import Variant

Started = tuple[dict[str, list[dict[str, float]]], dict[str, str]]  # each variant's starts; why some have none
TIMES = 4  # the first is not like the others
MINUTES = 30  # after which nobody waits for a first step


@dataclass(frozen=True)
class Order:
    """What one process is to build, in words that travel."""

    recipe: str
    changes: list[tuple[str, str]]
    device: str
    data: str
    peer: str = ""  # empty: ours
    way: str = ""


@dataclass(frozen=True)
class Start:
    """Seconds: of the whole, seen from outside, and of its parts, seen from within."""

    whole_s: float
    build_s: float
    first_step_s: float

    @property
    def imports_s(self) -> float:
        return self.whole_s - self.build_s - self.first_step_s


class Failed(Exception):
    """Why there was no first step."""


def measure(orders: Iterable[tuple[str, Order]], tell: Callable[[str], None]) -> Started:
    found: dict[str, list[dict[str, float]]] = {}
    failed: dict[str, str] = {}
    for number, (title, order) in product(range(TIMES), orders):
        if title in failed:
            continue
        tell(f"{title}: start {number + 1} of {TIMES}, in a process of its own")
        try:
            start = begin(order)
        except Failed as why:
            failed[title] = str(why)
            tell(f"{title}: {why}")
            continue
        found.setdefault(title, []).append({**asdict(start), "imports_s": start.imports_s})
    return {title: starts for title, starts in found.items() if title not in failed}, failed


def usual(starts: list[dict[str, float]]) -> dict[str, float]:
    """The one in the middle of those that found everything compiled."""
    later = sorted(starts[1:], key=lambda start: start["whole_s"])
    return later[len(later) // 2]


def told(started: Started) -> list[str]:
    """From the start of a process to its first step, when all that is compiled has been compiled before."""
    found, failed = started
    ours = usual(found["viaduct"])["whole_s"] if "viaduct" in found else None
    lines = ["From the start of a process to its first step, with what was compiled before still on disk:"]
    for title, times in found.items():
        own, later = usual(times), sorted(one["whole_s"] for one in times[1:])
        compared = f", {own['whole_s'] / ours:.2f} times ours" if ours and title != "viaduct" else ""
        spread = f"median of {len(later)}, {later[0]:.1f} to {later[-1]:.1f}"
        parts = f"imports {own['imports_s']:.2f}, building {own['build_s']:.2f}, step {own['first_step_s']:.2f}"
        first = f"the first time {times[0]['whole_s']:.1f} s"
        lines.append(f"  {title}: {own['whole_s']:.1f} s ({spread}; {parts}; {first}){compared}")
    return lines + [f"  {title}: {why}" for title, why in failed.items()]


def begin(order: Order) -> Start:
    """Start a process and wait for its first step; what it does after that is not counted."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as talk, started(talk) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(order)))
        process.stdin.close()
        line = process.stdout.readline()
        whole = time.perf_counter() - began
        if not line:
            raise Failed(last_words(process.wait(), talk))
    return Start(whole_s=whole, **json.loads(line))


@contextmanager
def started(talk: IO[str]) -> Iterator[subprocess.Popen[str]]:
    """The process, which does not outlive the block."""
    words = [sys.executable, "-m", __name__]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=talk, text=True)
    limit = Timer(60 * MINUTES, process.kill)
    limit.start()
    try:
        with process:
            yield process
    except BaseException:  # Ctrl-C, too
        process.kill()
        raise
    finally:
        limit.cancel()


def last_words(code: int, talk: IO[str]) -> str:
    talk.seek(0)
    lines = talk.read().strip().splitlines()
    return lines[-1] if lines else f"it ended with code {code} and without a word"


def be_started(order: Order) -> dict[str, float]:
    """In the process itself."""
    import viaduct.benching.ours
    import viaduct.benching.peers  # noqa: F401  # their time is that of imports

    began = time.perf_counter()
    variant, synchronize = build(order)
    built = time.perf_counter()
    variant.first()
    synchronize()
    done = time.perf_counter()
    variant.close()
    return {"build_s": built - began, "first_step_s": done - built}


def build(order: Order) -> tuple[Variant, Callable[[], None]]:
    from viaduct import devices
    from viaduct.benching.ours import Ours, Setting
    from viaduct.benching.peers import Loop, find
    from viaduct.recipes import load
    from viaduct.recipes._fields import override
    from viaduct.training.precision import plan_for

    recipe = load(order.recipe).recipe
    for path, text in order.changes:
        recipe = override(recipe, path, text)
    room, place = devices.pick(order.device)
    if not order.peer:
        setting = Setting(recipe, Path(order.data), room, place, Path(tempfile.gettempdir()))
        return Ours(setting), room.synchronize
    (peer,), _ = find([order.peer], (order.way,), recipe)
    return Loop(peer, recipe, place, plan_for(recipe.precision, room).dtype), room.synchronize


def main() -> None:
    try:
        inside = be_started(Order(**json.loads(sys.stdin.read())))
    except ViaductError as error:
        sys.exit(error.what)
    print(json.dumps(inside), flush=True)


if __name__ == "__main__":
    main()
