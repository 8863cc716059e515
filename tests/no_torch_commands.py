"""Commands that need no torch, commands whose error names the extra they need, and the files that they are given."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data.record_files import png, write_split
from runs.sample_runs import make_run
from viaduct.data.example import encode_example
from viaduct.data.shards import format_shard_name
from viaduct.data.tfrecord import RecordWriter
from weights.mindspore_files import checkpoint

SCRIPT = "import torch\nnet = torch.nn.Linear(2, 2).cuda()\ntorch.distributed.init_process_group('nccl')\n"
TF1_SCRIPT = "import tensorflow as tf\nwith tf.Session() as session:\n    session.run(tf.constant(1))\n"
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\xff\xd9"

# Command -> exit code and a part of what it prints.
WORKS = {
    "--help": (0, "ranktable"),
    "--version": (0, "viaduct "),
    "train --list": (0, "shapes_taster"),
    "models": (0, "resnet50_v1"),
    "devices": (0, "pip install 'viaduct[train]'"),
    "devices --json": (0, '"devices"'),
    "migrate train.py --to npu": (0, "hccl"),
    "migrate train.py --to mlu --check": (1, "cncl"),
    "migrate train.py --to any --out anywhere --report any.html --json any.json --sarif any.sarif": (0, "anywhere"),
    "migrate tf1.py --to npu --out tf1_npu": (0, "tf1_npu"),
    "migrate project --to npu --in-place": (0, "project"),
    "compare left right --out drift --explain": (1, "likely cause"),
    "compare right right": (0, "within their thresholds"),
    "compare run_a run_b": (0, "curves"),
    "runs": (0, "1 run: 1 finished"),
    "runs show runs/a": (0, "Learning rate"),
    "runs diff runs/a runs/a": (0, "exactly equal, as recorded"),
    "runs lineage runs/a": (0, "fingerprint"),
    "runs page --out runs.html": (0, ""),
    "runs export --to mlflow --out mlruns": (0, ""),
    "ranktable make --servers 10.0.0.1,10.0.0.2 --device-ips auto --out table.json": (0, "16 devices"),
    "ranktable check table.json": (0, "0 errors"),
    "ranktable show table.json": (0, "10.0.0.2"),
    "ranktable env table.json --rank 3": (0, "RANK=3"),
    "launch scripts scripts --ranktable table.json --target npu -- train resnet50_imagenet": (0, "run_8p.sh"),
    "launch plan resnet50_imagenet --servers 2": (0, "efficiency"),
    "data build images --out records": (0, "2 classes"),
    "data index pngs": (0, "4 records"),
    "data check pngs": (0, "validation"),
    "data check pngs --deep": (0, "validation"),
    "data check jpegs": (0, "train"),
    "data show pngs --count 1 --out sheet.png": (0, "sheet.png"),
    "weights show weights.safetensors": (0, "1 tensors"),
    "weights show mindspore.ckpt": (0, "MindSpore checkpoint, 2 tensors"),
    "weights show nearly_ours.safetensors": (0, "to look for one that nearly fits"),
}
# Command -> the extra that its error message names.
REFUSES = {
    "train shapes_taster --run run": "train",
    "evaluate run_a --recipe shapes_taster": "train",
    "predict run_a pngs --recipe shapes_taster": "train",
    "bench shapes_taster": "train",
    "rehearse train.py": "train",
    "rehearse tf1.py": "tf",
    "carry train.py --to npu --out carried": "train",
    "carry tf1.py --to npu --out carried": "tf",
    "dump train.py": "train",
    "dump tf1.py": "tf",
    "launch --ranks 2 -- train shapes_taster --run run": "train",
    "launch --ranks 2 -- python train.py": "train",
    "models resnet50_v1": "train",
    "devices --test": "train",
    "serve run_a": "train",
    "tune run shapes_taster --bank bank": "train",
    "search shapes_taster --space optimizer.lr=0.1..1": "train",
    "export run_a --recipe shapes_taster --to pt2 --out exported.pt2": "train",
    "weights import checkpoint --out imported.safetensors": "train",
    "weights export weights.safetensors --out exported": "train",
    "data bench pngs": "train",
    "data check jpegs --deep": "train",
    "data show jpegs --out jpegs.png": "train",
}


def make_files(folder: Path) -> None:
    """Write the files that the commands are given; some commands also use files that earlier ones wrote."""
    make_run(folder / "runs" / "a")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "tf1.py").write_text(TF1_SCRIPT)
    (folder / "project").mkdir()
    (folder / "project" / "main.py").write_text(SCRIPT)
    draw = np.random.default_rng(0)
    arrays = {name: draw.standard_normal((4, 6)).astype(np.float32) for name in "abc"}
    for side, factor in (("left", 2), ("right", 1)):
        (folder / side).mkdir()
        for name, array in arrays.items():
            np.save(folder / side / f"{name}.npy", array * (factor if name == "b" else 1))
    for run in ("run_a", "run_b"):
        (folder / run).mkdir()
        rows = [f'{{"kind": "log", "step": {step}, "loss": {1 / step}}}\n' for step in range(1, 40)]
        (folder / run / "metrics.jsonl").write_text("".join(rows))
    for number in range(8):
        image = folder / "images" / f"class{number % 2}" / f"{number}.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(png(number))
    write_split(folder / "pngs", "train", [3])
    write_split(folder / "pngs", "validation", [1], first=10)
    for split in ("train", "validation"):
        (folder / "jpegs").mkdir(exist_ok=True)
        with RecordWriter(folder / "jpegs" / format_shard_name(split, 0, 1)) as writer:
            image = {"image/encoded": JPEG + split.encode(), "image/class/label": 1}
            writer.write(encode_example(image))
    theirs = {"end_point.bias": np.zeros(3, np.float32), "step_num": np.array(7)}
    (folder / "mindspore.ckpt").write_bytes(checkpoint(theirs))
    for file, name in (("weights", "a"), ("nearly_ours", "head.bias")):
        header = f'{{"{name}":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}}}'.encode()
        (folder / f"{file}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
