"""The options of an export, checked before torch is imported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from viaduct.errors import BadValue
from viaduct.path_errors import refuse_impossible, refuse_replacing_special_file

FormatName = Literal["onnx", "pt2", "safetensors", "savedmodel", "frozen-pb"]
Input = Literal["pixels", "tensor", "image-bytes"]
Precision = Literal["fp32", "fp16"]

SUFFIXES = {"onnx": ".onnx", "pt2": ".pt2", "safetensors": ".safetensors", "savedmodel": "", "frozen-pb": ".pb"}
INPUTS: dict[str, tuple[Input, ...]] = {  # the first is the default
    "onnx": ("pixels", "tensor", "image-bytes"),
    "pt2": ("pixels", "tensor"),
    "safetensors": (),
    "savedmodel": ("tensor", "image-bytes"),
    "frozen-pb": ("tensor", "image-bytes"),
}
WEIGHTS_ONLY = "A .safetensors file holds the weights as they were trained, and no graph."


@dataclass(frozen=True)
class ExportRequest:
    """Options of one export."""

    form: FormatName  # the format, --to
    out: Path
    input: Input  # what the graph takes
    batch: int | None = None  # fixed batch size; None: any
    precision: Precision = "fp32"  # of the network's weights and layers
    fold: bool = False  # True: batch norms are folded into convolutions
    opset: int | None = None  # version of ONNX's operators; None: the newest that the exporter and onnx support
    check: bool = True  # True: the file is run and compared with PyTorch
    check_images: Path | None = None  # images for the check: a folder or file; None: validation images or shapes
    check_count: int = 64  # largest number of images for the check
    license: str = ""  # for the model card
    force: bool = False  # True: existing files at `out` are replaced

    @property
    def cards(self) -> tuple[Path, Path]:
        """Paths of the model card: JSON and Markdown."""
        return self.out.with_name(self.out.name + ".json"), self.out.with_name(self.out.name + ".md")


def choose_input(form: FormatName, requested: Input | None) -> Input:
    """Return the kind of input of the graph: the requested one, or the format's default."""
    possible = INPUTS[form]
    if not possible:
        if requested is not None:
            raise BadValue(f"--input {requested} does not go with --to {form}.", WEIGHTS_ONLY)
        return "tensor"
    if requested is not None and requested not in possible:
        raise BadValue(f"--input {requested} does not go with --to {form}.", f"It takes: {', '.join(possible)}.")
    return requested or possible[0]


def parse_batch(text: str) -> int | None:
    """Return the fixed batch size; None for `dynamic`."""
    if text == "dynamic":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 65536:
        raise BadValue(f"--batch is {text!r}.", "Give `dynamic`, or a number from 1 to 65536.")
    return int(text)


def check_request(request: ExportRequest) -> None:
    """Raise BadValue for options that do not go together, and for output paths that are in use."""
    form, out = request.form, request.out
    if form == "safetensors":
        graph_flags = {"--batch": request.batch, "--precision": request.precision == "fp16", "--fold-bn": request.fold}
        if given := [flag for flag, value in graph_flags.items() if value]:
            raise BadValue(f"{given[0]} does not go with --to safetensors.", WEIGHTS_ONLY)
    if request.opset is not None and form != "onnx":
        raise BadValue(f"--opset is for ONNX, not for --to {form}.", "Leave it out.")
    suffix = SUFFIXES[form]
    if suffix and out.suffix != suffix:
        raise BadValue(f"--out {out} must end in {suffix}, for --to {form}.", f"Try --out {out.with_suffix(suffix)}")
    if not suffix and out.suffix in SUFFIXES.values() and out.suffix:
        raise BadValue(f"--out {out} names a file, and a SavedModel is a folder.", f"Try --out {out.with_suffix('')}")
    for path in (out, *request.cards):
        refuse_impossible("--out", str(path))
        refuse_replacing_special_file(path)
        if path.is_dir() and not (path == out and form == "savedmodel"):
            raise BadValue(f"{path} is a folder.", "Give another --out.")
        if (path.exists() or path.is_symlink()) and not request.force:
            raise BadValue(f"{path} is there already.", "Give another --out, or --force to replace it.")
    if form == "savedmodel" and out.exists() and not out.is_dir():
        raise BadValue(f"{out} is a file, and a SavedModel is a folder.", "Give another --out.")
    if out.is_dir() and not (out / "saved_model.pb").is_file() and any(out.iterdir()):
        raise BadValue(f"{out} is a folder that holds no SavedModel; it is not replaced.", "Give another --out.")
