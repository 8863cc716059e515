"""Weights of any supported kind: a TensorFlow or MindSpore checkpoint, a safetensors or PyTorch file, a run's folder.

    with open_weights("runs/try1") as stored:
        stored.tensor_infos["head.weight"], stored.read("head.weight"), stored.metadata.step

Names and shapes are read from headers, and values one tensor at a time; a PyTorch file is loaded as a whole. For a run
the newest intact checkpoint is opened, or RUN/model.safetensors if the run has no checkpoints. `.ckpt` may be
TensorFlow's, MindSpore's or PyTorch Lightning's: the content decides.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from safetensors import SafetensorError, safe_open

from viaduct.errors import BadData, BadRun
from viaduct.models.catalogue import read_entries
from viaduct.run_files import MANIFEST, compute_sha256, list_step_folders, read_json_object, read_manifest
from viaduct.weights.bundle import Bundle
from viaduct.weights.checkpoint import Entry, FrameworkCheckpoint, count_bytes, get_dtype_name
from viaduct.weights.fingerprints import has_known_names, recognise_exactly
from viaduct.weights.locate import LATEST, explain_nothing_at, is_tf_checkpoint, list_prefixes, suggest_instead
from viaduct.weights.mindspore import MindsporeFile, MindsporeNames, is_mindspore_file
from viaduct.weights.torch_files import TORCH_SUFFIXES, is_torch_file, read_torch_file

if TYPE_CHECKING:
    from torch import Tensor

    from viaduct.weights import recognise

MODEL, EMA = "model.safetensors", "ema.safetensors"
STEP = "global_step"
MAX_OPTION_VALUE, MAX_OPTIONS = 4096, 32  # limits for a network's options, because metadata cannot be trusted

# Names of dtypes in safetensors files -> torch's names; names of other dtypes are shown in lower case.
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}

Kind = Literal["TensorFlow checkpoint", "MindSpore checkpoint", "safetensors file", "PyTorch file", "run"]


@dataclass(frozen=True)
class Metadata:
    """Metadata of weights; None or empty if a file does not state them."""

    model: str | None = None
    classes: int | None = None
    step: int | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of the network's constructor
    training: dict[str, str] = field(default_factory=dict)  # global_batch and precision, if known


@dataclass(frozen=True)
class StoredWeights:
    """Weights opened for reading."""

    path: Path
    kind: Kind
    tensor_infos: Mapping[str, Entry]  # type and shape by name
    read: Callable[[str], Tensor]  # returns the tensor of a name
    metadata: Metadata
    warnings: tuple[str, ...] = ()  # for the user, about damage that did not prevent opening
    framework_checkpoint: FrameworkCheckpoint | None = None  # if the names are of TensorFlow or MindSpore

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: info.shape for name, info in self.tensor_infos.items()}

    def find_likely_models(self) -> list[tuple[str, int, float]]:
        """Return the networks that these weights may be of: name, classes, and the share of tensors that match.

        These are the exact matches (fingerprints.py) or, if there are none, the networks with a share above 0.9. A file
        in which no name is one of viaduct's networks matches none.
        """
        exact = recognise_exactly(self.kind, self.shapes)
        if exact or not has_known_names(self.kind, self.shapes):
            return [(model, classes, 1.0) for model, classes in exact]
        return [(guess.model, guess.classes, guess.share) for guess in self.guess_networks() if guess.share > 0.9]

    def guess_networks(self) -> list[recognise.Guess]:
        """Return the networks that fit these weights best."""
        from viaduct.weights import recognise

        if self.framework_checkpoint is not None:
            return self.framework_checkpoint.guess_networks()
        return recognise.recognise_torch(self.shapes)


@contextmanager
def open_weights(path: Path, ema: bool = False) -> Iterator[StoredWeights]:
    """Open weights of any kind; raise `BadData` or `BadRun` if there are none, or damage is found on opening.

    Checksums are compared here only for the checkpoints of a run.

    `ema` selects the averaged weights of a run or a PyTorch file, and is ignored for other kinds: the caller has to
    select them among a TensorFlow checkpoint's variables, and a safetensors file has only one set of weights.
    """
    is_other_file = path.is_file() and not is_tf_checkpoint(path)  # a file that is not part of a TensorFlow checkpoint
    if (path / "recipe.json").is_file() or (path / MANIFEST).is_file():
        folder, warnings = choose_checkpoint(path)
        with open_safetensors(choose_file(folder, ema), read_run_facts(folder), "run") as stored:
            yield replace(stored, warnings=warnings)
    elif path.is_file() and path.suffix == ".safetensors":
        with open_safetensors(path, None, "safetensors file") as stored:
            has_mindspore_names = any(name.endswith(".moving_mean") for name in stored.tensor_infos)  # of batch norms
            yield read_as_mindspore(stored) if has_mindspore_names else stored
    elif is_other_file and is_mindspore_file(path):
        with MindsporeFile(path) as file:
            facts = Metadata(step=file.step)
            yield StoredWeights(path, "MindSpore checkpoint", file.entries, file.read, facts, framework_checkpoint=file)
    elif is_other_file and (path.suffix in TORCH_SUFFIXES or is_torch_file(path)):
        yield open_torch_file(path, ema)
    elif not path.exists() and not is_tf_checkpoint(path):
        message = f"there are no weights at {path}: no run, no file, and no {path}.index of a TensorFlow checkpoint."
        raise explain_nothing_at(path, message)
    elif is_other_file:
        message = (
            f"{path} holds no weights that can be read: no .safetensors, PyTorch or MindSpore file, "
            f"and {path}.index is not there."
        )
        raise BadData(message, *suggest_instead(path))
    elif path.is_dir() and not (path / LATEST).is_file() and not list_prefixes(path):
        raise explain_no_weights(path)
    else:
        with Bundle(path) as bundle:
            entries, facts = bundle.entries, Metadata(step=bundle.step)
            warnings = tuple(f"Warning: {shortage}." for shortage in bundle.describe_shortages())
            yield StoredWeights(bundle.prefix, "TensorFlow checkpoint", entries, bundle.read, facts, warnings, bundle)


@contextmanager
def open_framework_checkpoint(path: Path) -> Iterator[FrameworkCheckpoint]:
    """Open a TensorFlow checkpoint, or weights with MindSpore's names; raise `BadData` for others."""
    has_mindspore_format = path.is_file() and not is_tf_checkpoint(path) and is_mindspore_file(path)
    if has_mindspore_format or (path.is_file() and path.suffix == ".safetensors"):
        with open_weights(path) as stored:
            if stored.framework_checkpoint is not None:
                yield stored.framework_checkpoint
                return
    with Bundle(path) as bundle:
        yield bundle


def has_torch_names(path: Path) -> bool:
    """Return True for a file of torch.save, by suffix or first bytes, and for safetensors without MindSpore's names."""
    if not path.is_file() or is_tf_checkpoint(path) or is_mindspore_file(path):
        return False
    if path.suffix != ".safetensors":
        return path.suffix in TORCH_SUFFIXES or is_torch_file(path)
    with open_weights(path) as stored:
        return stored.framework_checkpoint is None


def explain_no_weights(folder: Path) -> BadData:
    """Return the error for a folder that is neither a run nor a TensorFlow checkpoint."""
    if (folder / "checkpoints").is_dir():
        example = folder / "checkpoints" / "step-N"
        return BadData(
            f"{folder} looks like a run, but has no recipe.json.", f"Name one of its checkpoints: {example}."
        )
    files = [str(file) for file in sorted(folder.glob("*.safetensors"))[:5]]
    return BadData(
        f"there are no weights in {folder}: no recipe.json of a run, no .index of a TensorFlow checkpoint.",
        *([f"Name a file: {', '.join(files)}."] if files else []),
    )


class SafetensorsReader:
    """Reader of a safetensors file; the first read opens the file and imports torch, and `closer` closes the file."""

    def __init__(self, path: Path, closer: ExitStack) -> None:
        self.path, self.closer = path, closer
        self.file: Any = None

    def read(self, name: str) -> Tensor:
        try:
            if self.file is None:
                self.file = self.closer.enter_context(safe_open(self.path, framework="pt"))
            tensor: Tensor = self.file.get_tensor(name)
            return tensor
        except SafetensorError as error:
            raise BadData(f"{self.path}: {name} cannot be read: {error}") from None


@contextmanager
def open_safetensors(path: Path, facts: Metadata | None, kind: Kind) -> Iterator[StoredWeights]:
    """Open a safetensors file; `facts` replace the metadata in the file."""
    try:
        opened = safe_open(path, framework="np")
    except (OSError, SafetensorError) as error:
        raise BadData(f"{path} is not a complete safetensors file: {error}") from None
    with opened as file, ExitStack() as closer:
        # An open file has `keys`, but is not a mapping.
        infos = {name: read_info(file.get_slice(name)) for name in file.keys()}  # noqa: SIM118
        facts = facts or parse_metadata(file.metadata() or {})
        yield StoredWeights(path, kind, infos, SafetensorsReader(path, closer).read, facts)


class MindsporeTensors(MindsporeNames):
    """Safetensors file with MindSpore's names."""

    def __init__(self, stored: StoredWeights) -> None:
        self.prefix, self.entries, self.stored = stored.path, stored.tensor_infos, stored

    def read(self, name: str) -> Tensor:
        return self.stored.read(name)

    def read_bytes(self, name: str) -> bytearray:
        try:
            with safe_open(self.prefix, framework="np") as file:
                return bytearray(file.get_tensor(name).tobytes())
        except SafetensorError as error:
            raise BadData(f"{self.prefix}: {name} cannot be read: {error}") from None


def read_as_mindspore(stored: StoredWeights) -> StoredWeights:
    """Return the weights of a safetensors file that has MindSpore's names as those of a MindSpore checkpoint."""
    tensors = MindsporeTensors(stored)
    facts = replace(stored.metadata, step=stored.metadata.step if tensors.step is None else tensors.step)
    return replace(stored, kind="MindSpore checkpoint", metadata=facts, framework_checkpoint=tensors)


def open_torch_file(path: Path, ema: bool) -> StoredWeights:
    """Load a file of torch.save as a whole."""
    tensors, step = read_torch_file(path, ema)
    infos = {name: Entry(get_dtype_name(t), tuple(t.shape), t.nbytes) for name, t in tensors.items()}
    return StoredWeights(path, "PyTorch file", infos, tensors.__getitem__, Metadata(step=step))


def read_info(tensor_slice: Any) -> Entry:
    """Return type, shape and size of a tensor in a safetensors file."""
    shape, dtype = tuple(tensor_slice.get_shape()), str(tensor_slice.get_dtype())
    return Entry(DTYPES.get(dtype, dtype.lower()), shape, math.prod(shape) * count_bytes(dtype))


def parse_metadata(metadata: dict[str, str]) -> Metadata:
    """Parse the metadata that `viaduct weights import` and `export` write; other keys are ignored."""
    return Metadata(
        model=metadata.get("model"),
        classes=parse_number(metadata.get("classes")),
        step=parse_number(metadata.get(STEP)),
        options=parse_options(metadata.get("options", "{}")),
        training={name: metadata[name] for name in ("global_batch", "precision") if name in metadata},
    )


def parse_options(text: str) -> dict[str, Any]:
    """Parse a network's options; return an empty dict if they are malformed or too large."""
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(options, dict):
        return {}
    frozen = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    items = [item for value in frozen.values() for item in (value if isinstance(value, tuple) else (value,))]
    are_small = all(
        isinstance(item, str) or (isinstance(item, int | float) and item <= MAX_OPTION_VALUE) for item in items
    )
    return frozen if are_small and len(items) <= MAX_OPTIONS else {}


def parse_number(text: str | None) -> int | None:
    """Parse a non-negative decimal integer; return None for anything else."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 20 else None


# Runs


def choose_checkpoint(run: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the folder of a run's newest checkpoint with undamaged weights, and a warning for each newer one.

    `run` may also be the folder of a checkpoint, which then must be undamaged. For a run without checkpoints, but with
    a final model, whose checksum is not compared, the folder is the run itself.
    """
    if (run / MANIFEST).is_file():
        if damage := find_damage(run):
            raise BadRun(f"a damaged checkpoint: {damage}.", "Name another checkpoint of the run, or the run itself.")
        return run, ()
    skipped: list[str] = []
    folders = list(list_step_folders(run / "checkpoints").values())
    for folder in reversed(folders):
        damage = find_damage(folder)
        if damage is None:
            return folder, tuple(skipped)
        skipped.append(f"Skipping a damaged checkpoint: {damage}.")
    if folders or not (run / MODEL).is_file():
        raise BadRun(f"{str(run)!r} has no intact checkpoint{'' if folders else ' yet'}.", *skipped)
    return run, ()


def find_damage(folder: Path) -> str | None:
    """Describe the damage of a checkpoint's weights or averages; None if their checksums match the manifest."""
    try:
        files = read_manifest(folder)["files"]
    except BadRun as error:
        return error.message.rstrip(".")
    if MODEL not in files:
        return f"{folder / MANIFEST} does not list {MODEL}"
    expected = {name: files[name]["sha256"] for name in (MODEL, EMA) if name in files}
    for name, checksum in expected.items():
        try:
            if compute_sha256(folder / name) != checksum:
                return f"{folder / name} does not match its checksum"
        except OSError as error:
            return f"{folder / name} cannot be read: {error.strerror}"
    return None


def choose_file(folder: Path, ema: bool) -> Path:
    """Return the path of a checkpoint's weights or averaged weights; raise `BadRun` if it has no averages."""
    if ema and not (folder / EMA).is_file():
        raise BadRun(f"{folder} holds no averaged weights: its recipe has no ema.", "Leave out --ema.")
    return folder / (EMA if ema else MODEL)


def read_run_facts(folder: Path) -> Metadata:
    """Read metadata from the files of a run; `folder` is one of its checkpoints, or the run for its final weights."""
    manifest = read_json_object(folder / MANIFEST) if (folder / MANIFEST).is_file() else {}
    run = folder.parent.parent if manifest else folder
    recipe = get_object(read_json_object(run / "recipe.json"), "recipe") if (run / "recipe.json").is_file() else {}
    model = recipe.get("model", manifest.get("model"))
    data, precision = get_object(recipe, "data"), get_object(recipe, "precision")
    classes = data.get("classes", manifest.get("classes"))
    training = {"global_batch": data.get("global_batch"), "precision": precision.get("compute")}
    summary = read_json_object(run / "summary.json") if (run / "summary.json").is_file() else {}
    step = manifest.get("step", summary.get("steps"))
    return Metadata(
        model=model if isinstance(model, str) else None,
        classes=classes if isinstance(classes, int) else None,
        step=step if isinstance(step, int) else None,
        options=read_network_options(model, recipe),
        training={name: str(value) for name, value in training.items() if value is not None},
    )


def get_object(record: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a nested object of a JSON record; empty if there is none."""
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def read_network_options(model: object, recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a network's constructor, from a run's recipe."""
    entry = read_entries().get(str(model))
    options = {name: value for name, value in get_object(recipe, "network").items() if name != "is"}  # "is": the class
    if entry is not None and entry.needs_image_size:
        options["image"] = get_object(recipe, "data").get("size", entry.input_size)
    return parse_options(json.dumps(options))
