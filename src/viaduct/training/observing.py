"""Writes RUN/events.*, for `tensorboard --logdir`; images and histograms also for the live page (`--tensorboard`).

Images and histograms are recorded in one step per interval (`--tensorboard-every`); that step is not replayed from a
captured graph. They go into the event file, RUN/histograms.jsonl and RUN/images/step-N.png. Gradients are those that
the optimizer gets: unscaled, averaged over the ranks and clipped.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from viaduct.data.png import encode_png
from viaduct.devices.base import summarise_error
from viaduct.recipes import Recipe
from viaduct.training.callbacks import Callback, LogRecord
from viaduct.training.checkpoint import replace_contents
from viaduct.training.events import EventFile
from viaduct.training.layout import preserve_state

if TYPE_CHECKING:
    from viaduct.training.loop import Training
    from viaduct.training.metrics import Score

BINS = 30  # of a histogram
SHEET_IMAGES, SHEET_COLUMNS = 16, 4  # images of a batch that are recorded together in one image
Pixels = npt.NDArray[np.uint8]
Histogram = dict[str, Any]


class TensorBoard(Callback):
    """Writes curves and, if asked for, images and histograms of some steps, and the network's graph once."""

    def __init__(self, kinds: frozenset[str] = frozenset()) -> None:
        """`kinds` are the records to write besides the curves: some of "images", "histograms" and "graph"."""
        self.kinds = kinds

    def start(self, training: Training) -> None:
        self.file = EventFile(training.run.path, training.step)
        self.histograms_file = training.run.path / "histograms.jsonl"
        self.images_folder = training.run.path / "images"
        if self.histograms_file.is_file():  # a resumed run: drop histograms of steps that are taken again
            lines = self.histograms_file.read_bytes().splitlines()
            kept = [line for line in lines if read_step(line) <= training.step]
            replace_contents(self.histograms_file, b"".join(line + b"\n" for line in kept))
        if "graph" in self.kinds and training.step == 0:
            try:
                self.file.write_graph(describe_graph(training.model, training.recipe.data.size, training.torch_device))
            except Exception as error:  # a user's network may raise anything while it is traced
                training.print_note(f"--tensorboard graph: the network cannot be traced ({summarise_error(error)}).")

    def log(self, training: Training, record: LogRecord) -> None:
        names = ("loss", "total_loss", "top1", "lr", "images_per_s", "loss_scale")
        values = {name: getattr(record, name) for name in names} | {"l2_loss": record.total_loss - record.loss}
        if record.top5 is not None:
            values["top5"] = record.top5
        self.file.write_scalars(record.step, {f"train/{name}": value for name, value in values.items()})

    def evaluation(self, training: Training, score: Score) -> None:
        names = ("loss", "top1", "top5", "precision", "recall", "f1")
        values = {name: getattr(score, name) for name in names} | score.recipe_metrics
        self.file.write_scalars(training.step, {f"validation/{name}": value for name, value in values.items()})

    def gradients(self, training: Training, images: Tensor, labels: Tensor) -> None:
        step = training.step + 1
        if "images" in self.kinds:
            sheet = build_sheet(to_pixels(images[:SHEET_IMAGES], training.recipe))
            encoded = encode_png(sheet)
            self.images_folder.mkdir(exist_ok=True)
            replace_contents(self.images_folder / f"step-{step:08d}.png", encoded)
            self.file.write_image(step, "input", sheet.shape[0], sheet.shape[1], encoded)
        if "histograms" in self.kinds:
            parameters = dict(training.model.named_parameters())
            histograms_by_kind = {
                "parameters": measure_histograms(parameters),
                "gradients": measure_histograms({name: p.grad for name, p in parameters.items() if p.grad is not None}),
            }
            for kind, histograms in histograms_by_kind.items():
                self.file.write_histograms(step, {f"{kind}/{name}": values for name, values in histograms.items()})
            with self.histograms_file.open("a") as file:
                file.write(json.dumps({"step": step, **histograms_by_kind}) + "\n")


def read_step(line: bytes) -> float:
    """Return the step of a line of histograms; infinity for a line that cannot be read."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):  # damaged; bytes that are not UTF-8 raise a ValueError
        return float("inf")


@torch.no_grad()
def measure_histograms(tensors: Mapping[str, Tensor]) -> dict[str, Histogram]:
    """Return the histogram of each tensor's finite values; one transfer from the device serves all tensors."""
    rows = [compute_histogram(tensor) for tensor in tensors.values()]
    if not rows:
        return {}
    return {name: to_histogram(row) for name, row in zip(tensors, torch.stack(rows).cpu().tolist(), strict=True)}


def compute_histogram(tensor: Tensor) -> Tensor:
    """Return minimum, maximum, count, sum and sum of squares of the finite values, and their counts in BINS bins."""
    values = tensor.detach().float().flatten()
    finite = values.isfinite()
    low = torch.where(finite, values, torch.inf).min()
    high = torch.where(finite, values, -torch.inf).max()
    values = torch.where(finite, values, low)
    width = (high - low).clamp_min(torch.finfo(torch.float32).tiny)
    bins = ((values - low) / width * BINS).nan_to_num(0.0).clamp(0, BINS - 1).long()
    bins = torch.where(finite, bins, BINS)  # values that are not finite have a bin of their own, which is dropped
    counts = torch.bincount(bins, minlength=BINS + 1)[:BINS].double()
    counted = torch.where(finite, values, 0.0).double()
    sums = [low.double(), high.double(), counts.sum(), counted.sum(), counted.square().sum()]
    return torch.cat([torch.stack(sums), counts])


def to_histogram(row: list[float]) -> Histogram:
    """Return the record of a histogram from the numbers of `compute_histogram`."""
    low, high, count, total, squares, *counts = row
    if not count:  # nothing finite
        low = high = 0.0
    bins = [int(number) for number in counts]
    return {"min": low, "max": high, "num": int(count), "sum": total, "sum_squares": squares, "counts": bins}


def to_pixels(images: Tensor, recipe: Recipe) -> Pixels:
    """Undo the normalisation of images; images normalised one by one are stretched to 0-255."""
    values = images.detach().float().cpu()
    if getattr(recipe.data, "normalise", "") == "per_image":
        low, high = values.amin((1, 2, 3), keepdim=True), values.amax((1, 2, 3), keepdim=True)
        values = (values - low) / (high - low).clamp_min(1e-9) * 255
    else:
        mean, scale = (torch.tensor(numbers).view(1, 3, 1, 1) for numbers in recipe.data.get_normalisation())
        values = values / scale + mean
    pixels: Pixels = values.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    return pixels


def build_sheet(pixels: Pixels) -> Pixels:
    """Return one image with all images in rows of SHEET_COLUMNS."""
    count, height, width, _ = pixels.shape
    columns = min(SHEET_COLUMNS, count)
    rows = -(-count // columns)
    sheet = np.zeros((rows * height, columns * width, 3), np.uint8)
    for number, image in enumerate(pixels):
        row, column = divmod(number, columns)
        sheet[row * height : (row + 1) * height, column * width : (column + 1) * width] = image
    return sheet


def describe_graph(model: nn.Module, size: int, device: torch.device) -> list[tuple[str, str, list[str]]]:
    """Return (name, operation, inputs) of each node of the network in evaluation, named by its modules."""
    with preserve_state(model), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # tracing warns about every shape that Python reads
        trace: Any = torch.jit.trace
        graph = trace(model.eval(), torch.zeros(1, 3, size, size, device=device), check_trace=False).inlined_graph
        node_names: dict[str, str] = {}  # of the node that makes a value, by the value's name
        nodes: list[tuple[str, str, list[str]]] = []
        for value in graph.inputs():
            if value.debugName().startswith("self"):
                continue
            node_names[value.debugName()] = "input"
            nodes.append(("input", "Placeholder", []))
        # Constants and attributes (kinds prim::…) are left out.
        operations = [node for node in graph.nodes() if not node.kind().startswith("prim::") or "Tuple" in node.kind()]
        for number, node in enumerate(operations):
            kind = node.kind().removeprefix("aten::").strip("_")
            scope = node.scopeName().split("/")[-1].removeprefix("__module.").replace(".", "/")
            name = "/".join(filter(None, (scope, f"{kind}_{number}")))
            inputs = [node_names[value.debugName()] for value in node.inputs() if value.debugName() in node_names]
            nodes.append((name, kind, inputs))
            for value in node.outputs():
                node_names[value.debugName()] = name
    return nodes
