"""Compare the training rate from JPEG records with the rate on noise that is already on the device.

    python benchmarks/feeding.py --device cuda
    python benchmarks/feeding.py --device cuda --data RECORDS -- --precision bf16 --mode graph --sink 20 --batch 256

Without --data the script generates images of ImageNet's sizes that are as expensive to decode as photographs (1/f
noise, objects with sharp edges, film grain; 106 kB on average) and builds records from them. The two trainings take
turns; each is ended when its last step is logged. A rate is computed from the times of the log lines after the
warm-up. The script prints every rate, the rate of the loader alone, and which share of the rate on noise the records
reach. Arguments after -- are passed to `viaduct train`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import simplejpeg
from run_description import describe_run

from viaduct import devices
from viaduct.benching.input_pipeline import measure
from viaduct.data.build import build_records
from viaduct.errors import ViaductError
from viaduct.recipes import load

Plane = npt.NDArray[np.float32]
SIZES = (
    [(375, 500)] * 11
    + [(500, 375)] * 4
    + [(333, 500)] * 4
    + [(500, 333), (400, 400), (480, 640), (300, 300), (600, 800)]
)
CLASSES, SHARDS = 20, 8
FLAGS = "--precision bf16 --mode graph --sink 20 --batch 256 --steps 400"
WARM_UP = 3  # log lines


def make_noise_field(rng: np.random.Generator, side: int, power: float) -> Plane:
    """Return noise with the spectrum of photographs, mean 0 and deviation 1."""
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None])
    frequency[0, 0] = 1
    spectrum = (rng.standard_normal(frequency.shape) + 1j * rng.standard_normal(frequency.shape)) / frequency**power
    made = np.fft.irfft2(spectrum, (side, side)).astype(np.float32)
    return np.asarray((made - made.mean()) / made.std(), np.float32)


def draw_image(rng: np.random.Generator, fields: list[Plane]) -> bytes:
    height, width = (int(side - rng.integers(0, 9)) for side in SIZES[rng.integers(len(SIZES))])

    def draw_part() -> Plane:
        plane = fields[rng.integers(len(fields))]
        y, x = rng.integers(plane.shape[0] - height), rng.integers(plane.shape[1] - width)
        return plane[y : y + height, x : x + width]

    luma, red, blue = 118 + 42 * draw_part(), 12 * draw_part(), 12 * draw_part()
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    for _ in range(int(rng.integers(3, 9))):
        angle, *radii = rng.uniform([0, 20, 20], [np.pi, 150, 150])
        y, x = rows - rng.uniform(0, height), columns - rng.uniform(0, width)
        u = (x * np.cos(angle) + y * np.sin(angle)) / radii[0]
        v = (y * np.cos(angle) - x * np.sin(angle)) / radii[1]
        inside = u**2 + v**2 < 1 if rng.random() < 0.5 else (np.abs(u) < 1) & (np.abs(v) < 1)
        luma = np.where(inside, luma * rng.uniform(0.3, 0.9) + rng.uniform(0, 90), luma)
        red, blue = (np.where(inside, plane + rng.uniform(-40, 40), plane) for plane in (red, blue))
    grain = rng.standard_normal((height, width)).astype(np.float32) * rng.gamma(3, 5)
    luma = luma + rng.uniform(0, 14) * draw_part() + grain
    pixels = np.stack([luma + red, luma - 0.3 * (red + blue), luma + blue], axis=2)
    image = np.ascontiguousarray(np.clip(pixels, 0, 255).astype(np.uint8))
    return bytes(simplejpeg.encode_jpeg(image, quality=int(rng.integers(88, 97)), colorsubsampling="420"))


def make_some(folder: Path, first: int, last: int) -> None:
    rng = np.random.default_rng(first)
    fields = [make_noise_field(rng, 1024, power) for power in (1.1, 1.3, 1.5, 1.7)]
    for number in range(first, last):
        class_folder = folder / f"class{number % CLASSES:02d}"
        class_folder.mkdir(parents=True, exist_ok=True)
        (class_folder / f"{number:06d}.jpg").write_bytes(draw_image(rng, fields))


def make_records(folder: Path, count: int, copies: int) -> Path:
    """Make records of `count` images; each file has several names, so that an epoch is long."""
    processes = len(os.sched_getaffinity(0))
    edges = np.linspace(0, count, processes + 1).astype(int).tolist()
    with get_context("spawn").Pool(processes) as pool:
        pool.starmap(make_some, [(folder / "images", *pair) for pair in pairwise(edges)])
    build_records(folder / "images", folder / "once", train_shards=SHARDS, validation_share=0.05)
    records = folder / "records"
    records.mkdir()
    shards = sorted((folder / "once").glob("train-*-of-*")) * copies
    for number, shard in enumerate(shards):
        (records / f"train-{number:05d}-of-{len(shards):05d}").symlink_to(shard)
    for other in (folder / "once").iterdir():
        if not other.name.startswith("train-"):
            (records / other.name).symlink_to(other)
    return records


def train(options: argparse.Namespace, data: str, run: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "viaduct", "train", options.recipe, "--data", data, "--device", options.device]
    command += ["--run", str(run), "--eval-every", "0", *options.flags]
    with tempfile.TemporaryFile("w+") as output, start_command(command, output) as process:
        while process.poll() is None and not read_logs(run)[1]:
            time.sleep(0.2)
        logs, complete = read_logs(run)
        if not complete:
            output.seek(0)
            raise SystemExit(f"{shlex.join(command)}: {output.read().strip()[-2000:]}")
    if len(logs) < WARM_UP + 2:
        raise SystemExit(f"{len(logs)} log lines are too few: more --steps, or a smaller --sink or --log-every.")
    first, last = logs[WARM_UP - 1], logs[-1]
    rate = (last["step"] - first["step"]) * read_recipe(run)["data"]["global_batch"] / (last["time"] - first["time"])
    print(f"{run.name}: {rate:,.0f} images/s", flush=True)
    return {"images_per_s": rate, "log_lines": [line["images_per_s"] for line in logs]}


@contextmanager
def start_command(command: list[str], output: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command, and kill it at the end of the block, before it evaluates."""
    with subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.kill()


def read_logs(run: Path) -> tuple[list[dict[str, Any]], bool]:
    """Return the log lines so far, and True if the last step is among them."""
    if not (run / "metrics.jsonl").is_file():
        return [], False
    written = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    lines = [json.loads(line) for line in written if line.endswith("\n")]
    logs = [line for line in lines if line["kind"] == "log"]
    return logs, bool(logs) and logs[-1]["step"] >= read_recipe(run)["steps"]


def read_recipe(run: Path) -> dict[str, Any]:
    recipe: dict[str, Any] = json.loads((run / "recipe.json").read_text())["recipe"]
    return recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="resnet50_imagenet")
    parser.add_argument("--data", type=Path, help="records of your own")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--images", "--pictures", type=int, default=6000, help="how many to make where there is no --data"
    )
    parser.add_argument("--copies", type=int, default=6, help="number of names under which each file appears")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    parser.add_argument("flags", nargs="*", default=shlex.split(FLAGS), help=f"of viaduct train ({FLAGS})")
    options = parser.parse_args()
    if min(options.rounds, options.images, options.copies) < 1:
        parser.error("--rounds, --images and --copies must be at least 1")
    if any(flag.partition("=")[0] == "--ranks" for flag in options.flags):
        parser.error("--ranks: one process on one device is measured")
    if options.out and not options.out.parent.is_dir():
        parser.error(f"--out {options.out}: there is no folder {options.out.parent}")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        measure_all(options)
    except ViaductError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Interrupted: nothing was written.")


def measure_all(options: argparse.Namespace) -> None:
    source = load(options.recipe).recipe.data
    with tempfile.TemporaryDirectory() as folder:
        work_folder = Path(folder)
        noise = [train(options, "synthetic", work_folder / "noise-1")]  # first: it refuses what is wrong with the flags
        records = (options.data or make_records(work_folder, options.images, options.copies)).resolve()
        alone = measure(records, getattr(source, "preprocess", "official"), [], source.global_batch, 0, 1.0, 3)
        rates = {row["pipeline"]: row["images_per_s"] for row in alone["rows"]}
        print(f"loader alone: {rates['exact']:,.0f} images/s with {alone['workers']} threads", flush=True)
        fed = [train(options, str(records), work_folder / "records-1")]
        for number in range(2, options.rounds + 1):
            noise.append(train(options, "synthetic", work_folder / f"noise-{number}"))
            fed.append(train(options, str(records), work_folder / f"records-{number}"))
        runs = [{"noise": run, "records": other} for run, other in zip(noise, fed, strict=True)]
    shares = [run["records"]["images_per_s"] / run["noise"]["images_per_s"] for run in runs]
    print(f"records reach {100 * median(shares):.1f} % of the rate on noise")
    if options.out:
        options.out.write_text(json.dumps(make_record(options, alone, runs, shares), indent=1) + "\n")


def make_record(
    options: argparse.Namespace, alone: dict[str, Any], runs: list[dict[str, Any]], shares: list[float]
) -> dict[str, Any]:
    run = describe_run(devices.pick(options.device)[0])
    stages = ", ".join(f"{name} {ms:.3f}" for name, ms in alone["stages_ms"].items())
    loader = next(row for row in alone["rows"] if row["pipeline"] == "exact")["images_per_s"]
    rows = [
        {
            "training on": name,
            "images/s, each round": ", ".join(f"{run[kind]['images_per_s']:,.0f}" for run in runs),
            "of the rate on noise": f"{100 * median(shares):.1f} %" if kind == "records" else "",
        }
        for kind, name in (("noise", "noise on the device"), ("records", "JPEG records"))
    ]
    return {
        "kind": "benchmark",
        "title": f"{options.recipe} fed from JPEG records",
        **run,
        "note": f"{run['machine']['cpus']} cores; images of {alone['mean_bytes'] / 1000:.0f} kB on average. "
        f"The loader alone: {loader:,.0f} images/s with {alone['workers']} threads. "
        f"Milliseconds of one thread an image: {stages}.",
        "columns": ["training on", "images/s, each round", "of the rate on noise"],
        "rows": rows,
        "samples": {"shares": shares, "loader": alone, "rounds": runs},
    }


if __name__ == "__main__":
    main()
