"""The Python API (docs/api.md). Errors are exceptions (`viaduct.errors`), progress goes to `logging`.

    run = viaduct.train("resnet50_cifar10", data="cifar/", device="cpu")
    loader = viaduct.records("records/", preprocess="official", batch=256)
    drift = viaduct.compare("dump_a/", "dump_b/")
    migrated = viaduct.migrate(source_text, to="npu")
    model = viaduct.fuse(torchvision.models.resnet50().cuda())
    with viaduct.sink(step, steps=100) as run: loss = run(images, labels)

torch is imported only when `train`, `records`, `fuse` or `sink` is called.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from viaduct.errors import BadValue
from viaduct.typed_fields import show_value

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from viaduct.comparison.drift import Drift
    from viaduct.kernels.fused import FuseReport
    from viaduct.migration.findings import Finding
    from viaduct.migration.options import TargetName
    from viaduct.recipes import LoadedRecipe, Recipe
    from viaduct.training.step_sink import StepSink

Network = TypeVar("Network", bound="nn.Module")
MetricKind = Literal["log", "evaluation"]
Resume = Literal["auto", "never", "must"]
LOGGER = logging.getLogger("viaduct")
LOGGER.addHandler(logging.NullHandler())  # otherwise logging prints warnings if the caller has no handler


@dataclass(frozen=True)
class Run:
    """Run directory written by `train`."""

    path: Path
    finished: bool  # False: interrupted; the same call resumes it
    step: int  # last step

    @property
    def model(self) -> Path:
        """Path of the trained weights, written when the run finishes."""
        return self.path / "model.safetensors"

    @property
    def report(self) -> Path:
        """Path of the run's HTML report."""
        return self.path / "report.html"

    @property
    def checkpoints(self) -> list[Path]:
        """Folders of the run's checkpoints, oldest first."""
        from viaduct.run_files import list_step_folders

        return list(list_step_folders(self.path / "checkpoints").values())

    def metrics(self, kind: MetricKind = "evaluation") -> list[dict[str, Any]]:
        """Return the records of log lines (loss, rate, …) or of evaluations (top1, top5, loss, …), earliest first."""
        from viaduct.training.rundir import RunDir

        check_choice("kind", kind, get_args(MetricKind))
        return RunDir(self.path).read_records(kind)


def train(
    recipe: str | Recipe,
    data: str | Path | None = None,
    *,
    device: str = "auto",
    run: str | Path | None = None,
    changes: Mapping[str, object] | None = None,
    resume: Resume = "auto",
) -> Run:
    """Train a recipe in this process, or resume its run; `changes` are fields by path, such as {"data.size": 64}.

    `recipe` is a recipe's name, a recipe file, or a Recipe. `run` is the run's directory, runs/NAME by default. If it
    holds a run, `resume` "auto" and "must" continue it, "never" refuses; if it holds none, "must" refuses. The run of a
    Recipe object cannot be resumed from the command line, which needs a file. Progress goes to the logger `viaduct`.
    """
    from viaduct.recipes._fields import override_fields
    from viaduct.training.networks import apply_source_settings
    from viaduct.training.request import TrainingRequest
    from viaduct.training.rundir import RunDir
    from viaduct.training.session import run_training

    check_type("device", device, str, "a name such as 'cpu' or 'cuda:0'")
    check_choice("resume", resume, get_args(Resume))
    check_changes(changes)
    for name, value in (("data", data), ("run", run)):
        if value is not None:
            check_path(name, value)
    loaded = load_recipe(recipe)
    texts = ((path, str(value)) for path, value in (changes or {}).items())
    loaded = replace(loaded, recipe=override_fields(loaded.recipe, texts))
    # An image size that the caller chose is kept: in a recipe file, in a Recipe, or in `changes`.
    keep_size = loaded.file is not None or not isinstance(recipe, str) or "data.size" in (changes or {})
    loaded = replace(loaded, recipe=apply_source_settings(loaded.recipe, keep_size=keep_size))
    folder = Path(run) if run is not None else Path("runs") / loaded.name
    data_path = None if data is None else Path(data)
    request = TrainingRequest(loaded, RunDir(folder), data_path, device, resume, f"viaduct.train({loaded.name!r})")
    with contextlib.redirect_stdout(LogStream()), contextlib.redirect_stderr(LogStream()):
        outcome = run_training(request)
    # If the run had finished before this call, `outcome.step` is 0; its summary has the number of steps.
    step = outcome.step or int((RunDir(folder).read_summary() or {}).get("steps", 0))
    return Run(folder, outcome.finished, step)


def load_recipe(recipe: str | Recipe) -> LoadedRecipe:
    """Load a recipe by name or path, or wrap a Recipe object."""
    from viaduct.recipes import LoadedRecipe, Recipe, load

    if isinstance(recipe, Recipe):
        return LoadedRecipe(name="recipe", recipe=recipe, docstring="", file=None)
    if not isinstance(recipe, str):
        raise BadValue(f"the recipe is {recipe!r}; it must be a name, a path or a Recipe.")
    return load(recipe)


def check_type(name: str, value: object, kind: type | tuple[type, ...], expected: str) -> None:
    """Raise BadValue if the argument called `name` is not an instance of `kind`; a bool does not count as an int."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise BadValue(f"{name} is {show_value(value)}, of type {type(value).__name__}; it must be {expected}.")


def check_path(name: str, value: object) -> None:
    """Raise BadValue if an argument is not a path or is empty."""
    check_type(name, value, (str, os.PathLike), "a path")
    if value == "":
        raise BadValue(f"{name} is empty; it must be a path.", "The current folder is '.'.")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise BadValue if an argument is not one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise BadValue(f"{name} is {show_value(value)}; it must be one of {', '.join(map(repr, choices))}.")


def check_changes(changes: object) -> None:
    """Raise BadValue if `changes` is not a mapping with strings as keys."""
    example = 'For example changes={"steps": 2, "data.size": 64}.'
    if changes is not None and not isinstance(changes, Mapping):
        raise BadValue(f"changes is of type {type(changes).__name__}; it must be a dict of values by path.", example)
    for path in changes or {}:
        if not isinstance(path, str):
            raise BadValue(f"changes has the key {show_value(path)}; a key must be the path of a field.", example)


def check_model(function: str, model: object) -> None:
    """Raise BadValue if `model`, an argument of the function of this name, is not a torch.nn.Module."""
    from torch import nn

    if not isinstance(model, nn.Module):
        raise BadValue(f"{function}: the model is of type {type(model).__name__}; it must be a torch.nn.Module.")


class LogStream(io.TextIOBase):
    """Text stream that sends each complete line to the logger `viaduct`."""

    incomplete_line = ""

    def write(self, text: str) -> int:
        *lines, self.incomplete_line = (self.incomplete_line + text).split("\n")
        for line in filter(None, map(str.rstrip, lines)):
            LOGGER.info("%s", line)
        return len(text)

    def isatty(self) -> bool:
        return False


class RecordLoader:
    """Iterable over batches of images and labels; each iteration over it is the next epoch."""

    def __init__(self, batches: Any) -> None:  # batches of `Records.open_batches`
        self.batches, self.next_epoch, self.is_closed = batches, 0, False

    def __len__(self) -> int:
        return int(self.batches.steps_per_epoch)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Return an iterator over (images, labels) of the next epoch; images are N,3,H,W, normalised, on the device.

        A batch is valid until the next one is requested.
        """
        if self.is_closed:
            raise BadValue("these records are closed.", "Open them again with viaduct.records(…).")
        return self.read_epoch()

    def read_epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        epoch, self.next_epoch = self.next_epoch, self.next_epoch + 1
        for batch in self.batches.epoch(epoch):
            samples = slice(None) if batch.mask is None else batch.mask  # the mask excludes padding
            yield batch.images[samples], batch.labels[samples]

    def close(self) -> None:
        """Stop the threads that prepare batches."""
        self.is_closed = True
        self.batches.close()

    def __enter__(self) -> RecordLoader:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


def records(
    path: str | Path,
    *,
    batch: int,
    preprocess: str = "official",
    size: int = 224,
    classes: int = 1001,
    label_shift: int = 0,
    train: bool = True,
    seed: int = 1,
    workers: int = 0,
    device: str = "cpu",
) -> RecordLoader:
    """Open TFRecord files, MindRecord files or class folders as batches for your own training loop.

    With `train` images are randomly cropped and mirrored, in an order that is a function of seed and epoch; otherwise
    the validation images are read in order. `preprocess` names a reference (`viaduct.data.references.names()`): its
    mean is subtracted from pixels of 0 to 255, and the difference is multiplied by its scale (1 for `official`).
    `label_shift` is added to the stored labels.
    """
    from viaduct import devices
    from viaduct.data.records import Records

    check_path("path", path)
    numbers = {"batch": batch, "size": size, "classes": classes, "label_shift": label_shift}
    for name, value in {**numbers, "seed": seed, "workers": workers}.items():
        check_type(name, value, int, "a whole number")
    for name, text in (("preprocess", preprocess), ("device", device)):
        check_type(name, text, str, "a name")
    check_type("train", train, bool, "True or False")
    source = Records(
        global_batch=batch, size=size, classes=classes, preprocess=preprocess, label_shift=label_shift, workers=workers
    )
    images = source.open_images(Path(path))
    _, torch_device = devices.pick(device)
    split = images.train if train else images.validation
    return RecordLoader(source.open_batches(split, device=torch_device, train=train, seed=seed))


def fuse(model: Network, dtype: Literal["bf16", "fp16"] | torch.dtype = "bf16", *, strict: bool = False) -> Network:
    """Make the bottleneck blocks of a model train with viaduct's kernels; change the model in place and return it.

    Blocks of torchvision's, timm's and viaduct's ResNets (also grouped and wide) and RegNets are found by structure.
    Weights and `state_dict` do not change. Evaluation, and a block's pass in another precision than `dtype`, run the
    original code; only viaduct's own stems and AmoebaNet always train in `dtype`. `fused_parts` reports the result. If
    nothing can be fused (no NVIDIA card, no Triton), the model is not changed and the reason is logged; with `strict`
    this raises BadValue.
    """
    from viaduct.kernels.fused import FuseReport, find_obstacle, set_report

    check_model("viaduct.fuse", model)
    check_type("strict", strict, bool, "True or False")
    precision = find_dtype(dtype)
    unfuse(model)
    obstacle = find_obstacle(model, precision)
    if obstacle is not None:
        report = set_report(model, FuseReport(obstacle=obstacle))
    else:
        from viaduct.kernels.fuse import fuse_parts  # imports Triton, which may not be installed

        report = fuse_parts(model, precision)
    if strict and not report.fused:
        raise BadValue(f"viaduct.fuse: {report}.", "Without strict=True the model runs as it is written.")
    for line in str(report).splitlines():
        LOGGER.log(logging.INFO if report.fused else logging.WARNING, "viaduct.fuse: %s", line)
    return model


def find_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return the torch dtype for "bf16" or "fp16"; raise BadValue for a dtype without kernels."""
    import torch

    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
    found = dtypes.get(dtype) if isinstance(dtype, str) else dtype
    if found is None or found not in dtypes.values():
        raise BadValue(f"viaduct.fuse: dtype is {dtype!r}; the kernels compute in torch.bfloat16 or torch.float16.")
    return found


def unfuse(model: Network) -> Network:
    """Undo `fuse`, and return the model."""
    from viaduct.kernels.fused import unfuse as remove_kernels

    check_model("viaduct.unfuse", model)
    return remove_kernels(model)


def fused_parts(model: nn.Module) -> FuseReport:
    """Return the report of the last `fuse` of this model: `fused` names, `unfused` names with reasons, `obstacle`."""
    from viaduct.kernels.fused import FuseReport, read_report

    check_model("viaduct.fused_parts", model)
    return read_report(model) or FuseReport(obstacle="viaduct.fuse was not called with this model")


def sink(step: Callable[..., Any], steps: int = 100) -> StepSink:
    """Return a context manager that captures a training step as a device graph and replays it.

    `step` takes tensors and returns a tensor, a tuple of tensors or None. The host waits for the device after every
    `steps` calls, and at the end. Without graph capture on the device, each call runs the step directly.
    """
    from viaduct.training.step_sink import StepSink

    return StepSink(step, steps)


def compare(left: str | Path, right: str | Path, **options: Any) -> Drift:
    """Compare two dumps. The result has a row for each tensor in `rows`, and the `exit_code` of `viaduct compare`.

    The exit code is 2 if no pair of tensors was compared, 1 if a row is "bad" (beyond a threshold) or "refused" (it
    could not be compared), else 0. Options are those of `viaduct.comparison.drift.Options`.
    """
    from viaduct.comparison.drift import Options
    from viaduct.comparison.drift import compare as compare_dumps

    for name, path in (("left", left), ("right", right)):
        check_path(name, path)
    return compare_dumps(Path(left), Path(right), Options(**options))


@dataclass(frozen=True)
class Migration:
    """Rewritten text of a script, and the findings about it."""

    text: str
    changed: bool
    findings: tuple[Finding, ...]


def migrate(source: str, *, to: TargetName = "npu", name: str = "script.py") -> Migration:
    """Rewrite the text of one script; nothing is executed, and imported files are not read.

    For a project use `viaduct migrate`, which also reads the functions in other files.
    """
    from viaduct.migration.engine import migrate_bytes
    from viaduct.migration.options import Options, TargetName

    check_choice("to", to, get_args(TargetName))
    check_type("name", name, str, "the name of the script")
    if not isinstance(source, str):
        raise BadValue(f"the source is a {type(source).__name__}; it must be the text of a script.")
    if is_script_path(source):
        raise BadValue(
            f"the source {show_value(source)} is the path of a file; it must be the text of a script.",
            f"Read the file first: viaduct.migrate(Path({source!r}).read_text(), to={to!r})",
        )
    try:
        encoded = source.encode()
    except UnicodeEncodeError as error:
        raise BadValue(
            f"{name} has {source[error.start]!r} at character {error.start}, half of a surrogate pair, which a "
            "file in UTF-8 cannot contain.",
            "Read the file as UTF-8, without errors='surrogateescape'.",
        ) from None
    migrated = migrate_bytes(name, encoded, Options(to=to))
    if migrated.unread_reason:
        raise BadValue(f"{name} {migrated.unread_reason}.", *([migrated.remedy] if migrated.remedy else []))
    return Migration(migrated.after.decode(), migrated.changed, migrated.findings)


def is_script_path(source: str) -> bool:
    """Return True if the text is the path of an existing file, given by mistake instead of the content."""
    if not source.endswith((".py", ".ipynb")) or "\n" in source:
        return False
    with contextlib.suppress(OSError, ValueError):  # the text is too long for a path, or contains a NUL byte
        return Path(source).is_file()
    return False
