"""Compare the speed of `viaduct train RECIPE` without flags with the same command with tuned flags.

    python benchmarks/default_command.py --device cuda
    python benchmarks/default_command.py --device cuda --recipe amoebanet_d_imagenet --batch 64 --rounds 2

Both train on noise that is already on the device, and on JPEG records (--data, else generated as in
benchmarks/feeding.py). They take turns. A rate is computed from the times of the log lines after the warm-up. The
script prints every rate, and which share of the tuned rate the plain command reaches. Arguments after -- are the
tuned flags.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from feeding import make_records, train
from run_description import describe_run

from viaduct import devices
from viaduct.errors import ViaductError

TUNED = "--precision bf16 --mode graph --sink 20"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="resnet50_imagenet")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--data", type=Path, help="records of your own; none: records are made up")
    parser.add_argument("--on", choices=("noise", "records", "both"), default="both", help="what to train on")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--images", "--pictures", type=int, default=6000, help="how many images to make where there is no --data"
    )
    parser.add_argument("--copies", type=int, default=6, help="number of names under which each file appears")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    parser.add_argument("tuned", nargs="*", default=shlex.split(TUNED), help=f"flags of viaduct train ({TUNED})")
    options = parser.parse_args()
    if min(options.rounds, options.images, options.copies, options.batch) < 1:
        parser.error("--rounds, --images, --copies and --batch must be at least 1")
    if options.out and not options.out.parent.is_dir():
        parser.error(f"--out {options.out}: there is no folder {options.out.parent}")
    try:
        measure_all(options)
    except ViaductError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Interrupted: nothing was written.")


def measure_all(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        folder_path = Path(folder)
        rates = {}
        if options.on != "records":
            rates["noise on the device"] = take_turns(options, "synthetic", folder_path / "runs-noise")
        if options.on != "noise":
            records = (options.data or make_records(folder_path, options.images, options.copies)).resolve()
            rates["JPEG records"] = take_turns(options, str(records), folder_path / "runs-records")
    shares = {name: median(a / b for a, b in zip(*pair, strict=True)) for name, pair in rates.items()}
    for name, share in shares.items():
        print(f"{name}: the plain command reaches {100 * share:.1f} % of the tuned one")
    if options.out:
        options.out.write_text(json.dumps(make_record(options, rates, shares), indent=1) + "\n")


def take_turns(options: argparse.Namespace, data: str, folder: Path) -> tuple[list[float], list[float]]:
    """Return the rates (images/s) of the plain and the tuned command, one of each per round."""
    work = ["--batch", str(options.batch), "--steps", str(options.steps)]
    rates: tuple[list[float], list[float]] = ([], [])
    folder.mkdir()
    for number in range(options.rounds):
        for variant, flags, found in (("plain", [], rates[0]), ("tuned", options.tuned, rates[1])):
            case = argparse.Namespace(recipe=options.recipe, device=options.device, flags=[*work, *flags])
            found.append(train(case, data, folder / f"{variant}-{number + 1}")["images_per_s"])
    return rates


def make_record(
    options: argparse.Namespace, rates: dict[str, tuple[list[float], list[float]]], shares: dict[str, float]
) -> dict[str, Any]:
    rows = [
        {
            "training on": name,
            "plain, images/s": ", ".join(f"{rate:,.0f}" for rate in plain),
            "tuned, images/s": ", ".join(f"{rate:,.0f}" for rate in tuned),
            "plain of tuned": f"{100 * shares[name]:.1f} %",
        }
        for name, (plain, tuned) in rates.items()
    ]
    return {
        "kind": "benchmark",
        "title": f"{options.recipe}, batch {options.batch}: the plain command against tuned flags",
        **describe_run(devices.pick(options.device)[0]),
        "note": f"Plain: `viaduct train {options.recipe} --batch {options.batch} --steps {options.steps}`; tuned: the "
        f"same with `{shlex.join(options.tuned)}`.",
        "columns": list(rows[0]),
        "rows": rows,
        "samples": {"images_per_s": rates},
    }


if __name__ == "__main__":
    main()
