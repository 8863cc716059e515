"""Compare images/s of the training input with tf.data, DALI and PyTorch with Pillow, on 500x375 JPEGs of about 54 kB.

    python benchmarks/input_pipeline.py [--peer tf.data,pil] [--runs 3] [--out FILE]

The script makes 2,000 such images from scikit-image's photographs (dev extra), builds records from them, and runs
`viaduct data bench` several times. The table shows medians over the runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import simplejpeg
from run_description import write_record

from viaduct import devices
from viaduct.benching.input_pipeline import measure
from viaduct.data.build import build_records

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from crops_of_photographs import load_photographs

BYTES = 54_000


def encode_jpeg(pixels: np.ndarray) -> bytes:
    """Encode an image at the quality that comes closest to the file size of an ImageNet image."""
    low, high = 30, 98
    while low < high:
        quality = (low + high) // 2
        data = simplejpeg.encode_jpeg(pixels, quality=quality, colorspace="RGB", colorsubsampling="420")
        low, high = (quality + 1, high) if len(data) < BYTES else (low, quality)
    return data


def make_images(folder: Path, count: int) -> None:
    generator = np.random.default_rng(0)
    sources = {name: p for name, p in load_photographs().items() if p.shape[0] >= 400 and p.shape[1] >= 512}
    for number in range(count):
        name, image = list(sources.items())[number % len(sources)]
        y = generator.integers(0, image.shape[0] - 375 + 1)
        x = generator.integers(0, image.shape[1] - 500 + 1)
        path = folder / name / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_jpeg(np.ascontiguousarray(image[y : y + 375, x : x + 500])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", default="tf.data,pil")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--images", "--pictures", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_images(Path(folder, "photos"), options.images)
        build_records(Path(folder, "photos"), Path(folder, "records"), train_shards=8)
        results = [
            measure(Path(folder, "records"), "official", options.peer.split(","), 256, 0, options.seconds, 3)
            for _ in range(options.runs)
        ]
    rows = []
    for number, name in enumerate(row["pipeline"] for row in results[0]["rows"]):
        mine = [result["rows"][number] for result in results]
        ratios = [row["ratio_to_tf_data"] for row in mine]
        ratio = f"{median(ratios):.2f}" if None not in ratios else ""
        rate, memory = median(row["images_per_s"] for row in mine), max(row["memory_mib"] for row in mine)
        rows.append({"pipeline": name, "images/s": f"{rate:,.0f}", "ratio to tf.data": ratio})
        rows[-1]["memory MiB"] = f"{memory:,.0f}"
        print(" ".join(f"{value:>12s}" for value in rows[-1].values()))
    stages = {name: median(result["stages_ms"][name] for result in results) for name in results[0]["stages_ms"]}
    note = "Milliseconds per image in one thread: " + ", ".join(f"{n} {ms:.2f}" for n, ms in stages.items())
    note += f". We decode {results[0]['decoder']}."
    print(note)
    if options.out:
        title = "Training input: 500x375 JPEGs of 54 kB, preprocessing of ResNet official, batch 256"
        write_record(options.out, devices.get("cpu"), title, rows, results, note)


if __name__ == "__main__":
    main()
