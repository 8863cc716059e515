"""Time from the start of a process to its first training step, with a separate process for each variant.

    python -m viaduct.benching.starts < request.json

In a shared process, later variants would find libraries loaded and kernels selected. The first start of each variant
fills the compile caches on disk. The later starts measure the usual case; they take turns with the other variants.
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
from typing import IO, TYPE_CHECKING, NamedTuple

from viaduct.errors import ViaductError
from viaduct.signals import name_signal

if TYPE_CHECKING:
    from viaduct.benching.measure import Variant

STARTS_PER_VARIANT = 4  # the first one fills the compile caches and is not part of the median
MAX_START_MINUTES = 30  # a process that takes longer is killed


@dataclass(frozen=True)
class StartRequest:
    """Variant that a child process builds, sent to it as JSON."""

    recipe: str  # a recipe's name or file
    changes: list[tuple[str, str]]  # fields of the recipe with their new values as text
    device: str  # as in --device
    data: str  # as in --data: synthetic, or a folder
    peer: str = ""  # one of peers.NAMES; empty for ours
    peer_mode: str = ""  # one of peers.MODES; empty for ours


class StartResults(NamedTuple):
    """Results of all variants, by title."""

    starts: dict[str, list[dict[str, float]]]  # the seconds of each start, as `measure_start` returns them
    failed: dict[str, str]  # the reason of each variant that failed


class StartFailed(Exception):
    """Raised with the reason if a process did not reach its first step."""


def measure_starts(requests: Iterable[tuple[str, StartRequest]], notify: Callable[[str], None]) -> StartResults:
    """Start every variant STARTS_PER_VARIANT times, in turns; a variant that fails once is not started again."""
    starts: dict[str, list[dict[str, float]]] = {}
    failed: dict[str, str] = {}
    for number, (title, request) in product(range(STARTS_PER_VARIANT), requests):
        if title in failed:
            continue
        notify(f"{title}: start {number + 1} of {STARTS_PER_VARIANT}, in a separate process")
        try:
            starts.setdefault(title, []).append(measure_start(request))
        except StartFailed as error:
            failed[title] = str(error)
            notify(f"{title}: {error}")
    return StartResults({title: times for title, times in starts.items() if title not in failed}, failed)


def select_median_start(starts: list[dict[str, float]]) -> dict[str, float]:
    """Return the median start without the first one, which compiles."""
    later = sorted(starts[1:], key=lambda start: start["whole_s"])
    return later[len(later) // 2]


def format_starts(results: StartResults) -> list[str]:
    """Return the lines that describe each variant's median start, with warm compile caches."""
    starts, failed = results
    ours = select_median_start(starts["viaduct"])["whole_s"] if "viaduct" in starts else None
    lines = ["From the start of a process to its first step, with warm compile caches:"]
    for title, times in starts.items():
        start, later = select_median_start(times), sorted(start["whole_s"] for start in times[1:])
        comparison = f", {start['whole_s'] / ours:.2f} times ours" if ours and title != "viaduct" else ""
        spread = f"median of {len(later)}, {later[0]:.1f} to {later[-1]:.1f}"
        parts = f"imports {start['imports_s']:.2f}, building {start['build_s']:.2f}, step {start['first_step_s']:.2f}"
        first_start = f"the first time {times[0]['whole_s']:.1f} s"
        lines.append(f"  {title}: {start['whole_s']:.1f} s ({spread}; {parts}; {first_start}){comparison}")
    return lines + [f"  {title}: {why}" for title, why in failed.items()]


def measure_start(request: StartRequest) -> dict[str, float]:
    """Start a process and return the seconds until the end of its first step (`whole_s`), and their parts.

    The child measures `build_s` and `first_step_s`; the remaining time, mostly that of imports, is `imports_s`.
    """
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as stderr_file, start_process(stderr_file) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(request)))
        process.stdin.close()
        line = process.stdout.readline()
        total_seconds = time.perf_counter() - began
        if not line:
            code = process.wait()
            stderr_file.seek(0)
            raise StartFailed(explain_end(code, total_seconds, stderr_file.read().strip().splitlines()))
    parts = json.loads(line)
    return {"whole_s": total_seconds, **parts, "imports_s": total_seconds - parts["build_s"] - parts["first_step_s"]}


def explain_end(code: int, seconds: float, stderr_lines: list[str]) -> str:
    """Return why a process ended without a first step: the limit of time, a signal, or its last message."""
    last_line = stderr_lines[-1] if stderr_lines else ""
    if seconds >= 60 * MAX_START_MINUTES:
        return f"it had not taken its first step after {MAX_START_MINUTES} minutes and was killed"
    if code < 0:
        last_words = f"its last line was: {last_line}" if last_line else "it printed no message"
        return f"it was ended by {name_signal(-code)}; {last_words}"
    return last_line or f"it ended with exit code {code} and no message"


@contextmanager
def start_process(stderr_file: IO[str]) -> Iterator[subprocess.Popen[str]]:
    """Start the child process; it is killed after MAX_START_MINUTES or when the block raises."""
    command = [sys.executable, "-m", __name__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr_file, text=True)
    limit = Timer(60 * MAX_START_MINUTES, process.kill)
    limit.start()
    try:
        with process:
            yield process
    except BaseException:  # Ctrl-C, too
        process.kill()
        raise
    finally:
        limit.cancel()


def run_child(request: StartRequest, send: Callable[[dict[str, float]], None]) -> None:
    """Build the variant in the child process, run its first step, and send the seconds of both."""
    import viaduct.benching.ours
    import viaduct.benching.peers  # noqa: F401  # imported here so that their time counts as imports

    began = time.perf_counter()
    variant, synchronize = build_variant(request)
    built = time.perf_counter()
    variant.run_first_step()
    synchronize()
    stepped = time.perf_counter()
    send({"build_s": built - began, "first_step_s": stepped - built})  # before closing, which is not part of a start
    variant.close()


def build_variant(request: StartRequest) -> tuple[Variant, Callable[[], None]]:
    """Return the requested variant and the function that waits for its device."""
    from viaduct import devices
    from viaduct.benching.ours import Ours, Setting
    from viaduct.benching.peers import PlainLoop, find_peers
    from viaduct.recipes import load
    from viaduct.recipes._fields import override_fields
    from viaduct.training.precision import plan_precision

    recipe = override_fields(load(request.recipe).recipe, request.changes)
    device, torch_device = devices.pick(request.device)
    if not request.peer:
        scratch = Path(tempfile.gettempdir())  # a first step writes nothing there
        return Ours(Setting(recipe, Path(request.data), device, torch_device, scratch)), device.synchronize
    (peer,), _ = find_peers([request.peer], (request.peer_mode,), recipe)
    return PlainLoop(peer, recipe, torch_device, plan_precision(recipe.precision, device).dtype), device.synchronize


def main() -> None:
    try:
        run_child(StartRequest(**json.loads(sys.stdin.read())), lambda seconds: print(json.dumps(seconds), flush=True))
    except ViaductError as error:
        sys.exit(error.message)


if __name__ == "__main__":
    main()
