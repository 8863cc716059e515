"""Time from the start of a process to its first training step, with a separate process for each variant.

    python -m viaduct.benching.starts < request.json

In a shared process later variants would find libraries loaded and kernels selected. The first start of each variant
fills the compile caches on disk. The following starts, in turns with the other variants, measure the usual case.
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

# Two dictionaries by the title of a variant: its starts, each as `measure_start` returns it; and for a variant that
# failed the reason.
StartResults = tuple[dict[str, list[dict[str, float]]], dict[str, str]]
STARTS_PER_VARIANT = 4  # the first one fills the compile caches and is not part of the median
MAX_START_MINUTES = 30  # then the process is killed


@dataclass(frozen=True)
class StartRequest:
    """Variant that a child process builds, sent to it as JSON."""

    recipe: str
    changes: list[tuple[str, str]]  # field of the recipe, and its new value as text
    device: str
    data: str
    peer: str = ""  # empty for ours
    mode: str = ""


class StartFailed(Exception):
    """Reason why a process did not reach its first step."""


def measure_starts(requests: Iterable[tuple[str, StartRequest]], notify: Callable[[str], None]) -> StartResults:
    """Start every variant STARTS_PER_VARIANT times, in turns; a variant that fails once is not started again."""
    found: dict[str, list[dict[str, float]]] = {}
    failed: dict[str, str] = {}
    for number, (title, request) in product(range(STARTS_PER_VARIANT), requests):
        if title in failed:
            continue
        notify(f"{title}: start {number + 1} of {STARTS_PER_VARIANT}, in a process of its own")
        try:
            found.setdefault(title, []).append(measure_start(request))
        except StartFailed as why:
            failed[title] = str(why)
            notify(f"{title}: {why}")
    return {title: starts for title, starts in found.items() if title not in failed}, failed


def select_median_start(starts: list[dict[str, float]]) -> dict[str, float]:
    """Return the median start without the first one, which compiles."""
    later = sorted(starts[1:], key=lambda start: start["whole_s"])
    return later[len(later) // 2]


def format_starts(results: StartResults) -> list[str]:
    """Return the lines that describe each variant's median start, with warm compile caches."""
    found, failed = results
    ours = select_median_start(found["viaduct"])["whole_s"] if "viaduct" in found else None
    lines = ["From the start of a process to its first step, with what was compiled before still on disk:"]
    for title, times in found.items():
        own, later = select_median_start(times), sorted(start["whole_s"] for start in times[1:])
        compared = f", {own['whole_s'] / ours:.2f} times ours" if ours and title != "viaduct" else ""
        spread = f"median of {len(later)}, {later[0]:.1f} to {later[-1]:.1f}"
        parts = f"imports {own['imports_s']:.2f}, building {own['build_s']:.2f}, step {own['first_step_s']:.2f}"
        first_start = f"the first time {times[0]['whole_s']:.1f} s"
        lines.append(f"  {title}: {own['whole_s']:.1f} s ({spread}; {parts}; {first_start}){compared}")
    return lines + [f"  {title}: {why}" for title, why in failed.items()]


def measure_start(request: StartRequest) -> dict[str, float]:
    """Start a process and wait for its first step; its later work is not counted.

    Return the seconds until then, and their parts: `build_s` and `first_step_s` by the child's clock, the rest is for
    imports.
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
            lines = stderr_file.read().strip().splitlines()  # the last one usually is the error message
            raise StartFailed(lines[-1] if lines else f"it ended with code {code} and without a message")
    parts = json.loads(line)
    return {"whole_s": total_seconds, **parts, "imports_s": total_seconds - parts["build_s"] - parts["first_step_s"]}


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


def run_child(request: StartRequest) -> dict[str, float]:
    """Build the variant in the child process, run its first step, and return the seconds of both."""
    import viaduct.benching.ours
    import viaduct.benching.peers  # noqa: F401  # imported here so that their time counts as imports

    began = time.perf_counter()
    variant, synchronize = build(request)
    built = time.perf_counter()
    variant.run_first_step()
    synchronize()
    stepped = time.perf_counter()
    variant.close()
    return {"build_s": built - began, "first_step_s": stepped - built}


def build(request: StartRequest) -> tuple[Variant, Callable[[], None]]:
    """Return the requested variant and the function that waits for its device."""
    from viaduct import devices
    from viaduct.benching.ours import Ours, Setting
    from viaduct.benching.peers import Loop, find
    from viaduct.recipes import load
    from viaduct.recipes._fields import override
    from viaduct.training.precision import plan_precision

    recipe = load(request.recipe).recipe
    for path, text in request.changes:
        recipe = override(recipe, path, text)
    device, torch_device = devices.pick(request.device)
    if not request.peer:
        setting = Setting(recipe, Path(request.data), device, torch_device, Path(tempfile.gettempdir()))
        return Ours(setting), device.synchronize
    (peer,), _ = find([request.peer], (request.mode,), recipe)
    return Loop(peer, recipe, torch_device, plan_precision(recipe.precision, device).dtype), device.synchronize


def main() -> None:
    try:
        seconds = run_child(StartRequest(**json.loads(sys.stdin.read())))
    except ViaductError as error:
        sys.exit(error.what)
    print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
