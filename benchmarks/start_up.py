"""Compare the start-up time of commands of this checkout with another checkout, in turns of one run.

    python benchmarks/start_up.py                     this checkout, beside a Python process that does nothing
    python benchmarks/start_up.py --beside ../before  also beside another checkout, such as a git worktree

Each command runs in a new process, one checkout after the other, `--turns` times. The table shows medians, and the
median of the ratios within a turn. The extension modules of the other checkout must be built.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parents[1]
SCRIPT = "import tensorflow as tf\ntf.data.Dataset.range(3).batch(2)\n"
COMMANDS = {
    "import viaduct": ["-c", "import viaduct"],
    "viaduct --help": ["-m", "viaduct", "--help"],
    "viaduct train --list": ["-m", "viaduct", "train", "--list"],
    "viaduct migrate a.py": ["-m", "viaduct", "migrate", "a.py", "--quiet"],
}


def time_command(checkout: Path, arguments: list[str], folder: Path) -> float:
    """Return the seconds of one process with the viaduct of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, check=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout of viaduct")
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    checkouts = [HERE] if options.beside is None else [HERE, options.beside.resolve()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.py").write_text(SCRIPT)
        print(f"{'command':24} {'empty Python':>14} {'this':>10} {'other':>10} {'this / other':>14}")
        for title, arguments in COMMANDS.items():
            for checkout in checkouts:  # reads files into the cache, writes bytecode
                time_command(checkout, arguments, folder)
            empty: list[float] = []
            turns: list[list[float]] = []
            for number in range(options.turns):
                empty.append(time_command(HERE, ["-c", ""], folder))
                order = checkouts if number % 2 else checkouts[::-1]
                seconds = {checkout: time_command(checkout, arguments, folder) for checkout in order}
                turns.append([seconds[checkout] for checkout in checkouts])
            medians = [f"{median(side) * 1000:7.0f} ms" for side in zip(*turns, strict=True)]
            ratio = f"{median(turn[0] / turn[1] for turn in turns):.2f}" if len(checkouts) == 2 else "-"
            other = medians[1] if len(checkouts) == 2 else "-"
            print(f"{title:24} {median(empty) * 1000:11.0f} ms {medians[0]:>10} {other:>10} {ratio:>14}")


if __name__ == "__main__":
    main()
