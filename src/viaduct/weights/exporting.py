"""Conversion of TensorFlow and MindSpore checkpoints to safetensors, and of viaduct's weights to all three formats.

The metadata of a safetensors file are model, classes and source; global_step, options of the network's constructor,
global_batch, precision and ema are added if they are known. Optimizer slots are written to a second file,
NAME.slots.safetensors, under `SLOT/PARAMETER`, so that the first file can be passed to `load_state_dict`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as pack
from torch import Tensor, nn

from viaduct.atomic_files import replace_file
from viaduct.data.notices import join_first
from viaduct.errors import BadData, BadValue
from viaduct.models import sources
from viaduct.models.links import Link
from viaduct.weights import mindspore_names, recognise
from viaduct.weights.bundle import write_bundle
from viaduct.weights.checkpoint import FrameworkCheckpoint, explain_write_errors
from viaduct.weights.importing import AVERAGE_SUFFIX, Imported, read_values
from viaduct.weights.locate import has_index
from viaduct.weights.mindspore import write_mindspore
from viaduct.weights.names import find_names, list_tf_layouts
from viaduct.weights.recognise import Guess
from viaduct.weights.stored import STEP, StoredWeights, open_framework_checkpoint

MAX_STEP = (1 << 31) - 1  # MindSpore stores the step as int32


@dataclass(frozen=True)
class Converted:
    """Result of a conversion."""

    model: str  # name of the network
    classes: int
    tensor_count: int  # in the written file, without slots and without the counters that an import adds
    recognised: bool  # True if the network was found by names and shapes, because nothing named it
    imported: Imported | None = None  # result of an import
    step: int | None = None  # of an export: training step of the weights
    notes: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()  # other networks that fit as well, if it was recognised in an import


# Import to safetensors


def import_file(
    source: Path, out: Path, *, model: str = "", classes: int = 0, ema: bool = False, slots: bool = False
) -> Converted:
    """Write a TensorFlow or MindSpore checkpoint as a safetensors file; find network and classes if not given."""
    with open_framework_checkpoint(source) as checkpoint:
        guess = choose_network(model, classes, checkpoint)
        network = build_network(guess, checkpoint.prefix)
        values = read_values(network, checkpoint, ema=ema, slots=slots)
        if slots and not values.imported.slots:
            raise BadData(f"{checkpoint.prefix} has no optimizer slots.", "Leave out --slots.")
        metadata = build_metadata(guess, values.imported.global_step, str(source), ema=ema)
        fitting = [] if model else [other.model for other in checkpoint.guess_networks() if other.is_complete]
    write_safetensors(out, add_counters(network, values.tensors), metadata)
    if slots:
        tensors = {
            f"{slot}/{name}": value for slot, state in values.imported.slots.items() for name, value in state.items()
        }
        write_safetensors(get_slots_path(out), tensors, metadata)
    alternatives = tuple(dict.fromkeys(name for name in fitting if name != guess.model))
    return Converted(
        guess.model, guess.classes, len(values.tensors), not model, values.imported, alternatives=alternatives
    )


def choose_network(model: str, classes: int, checkpoint: FrameworkCheckpoint) -> Guess:
    """Return the requested network and number of classes, or those that the checkpoint implies.

    A requested network is not compared with the checkpoint here.
    """
    guesses = checkpoint.guess_networks()
    if not model:
        if not guesses or not guesses[0].is_complete:
            closest = f"; it comes closest to {guesses[0]}" if guesses else ""
            raise BadData(
                f"{checkpoint.prefix} looks like none of our networks{closest}.",
                "Say which one it should be: --model NAME; `viaduct models` shows them.",
            )
        model = guesses[0].model
    default = Guess(model, guesses[0].classes if guesses else 1001, 0.0)  # 1001: ImageNet in TensorFlow
    guess = next((guess for guess in guesses if guess.model == model), default)
    return Guess(model, classes or guess.classes, guess.share, guess.layout, guess.options)


def add_counters(network: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add num_batches_tracked, 0, for each batch norm without it: only files that PyTorch wrote have this counter."""
    counters = [name for name in network.state_dict() if not recognise.is_weight(name) and name not in tensors]
    needed = [name for name in counters if name.replace("num_batches_tracked", "running_mean") in tensors]
    return {**tensors, **{name: torch.tensor(0) for name in needed}}


def build_metadata(guess: Guess, step: int | None, source: str, **more: Any) -> dict[str, str]:
    """Return the metadata of a safetensors file; facts that are None or False are left out."""
    facts = {"model": guess.model, "classes": guess.classes, STEP: step, "source": source, **more}
    strings = {name: str(value) for name, value in facts.items() if value is not None and value is not False}
    if guess.options:
        strings["options"] = json.dumps(dict(guess.options))
    return {"format": "pt", **strings}


def get_slots_path(file: Path) -> Path:
    """Return the path of the optimizer slots that belong to a safetensors file."""
    return file.with_name(f"{file.stem}.slots.safetensors")


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    with explain_write_errors(path), replace_file(path) as file:
        file.write(pack({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata))


# Export of viaduct's weights


def export_safetensors(stored: StoredWeights, out: Path, model: str = "") -> Converted:
    """Write all tensors as one safetensors file under their names.

    If `model` names the network, the tensors are compared with it. Otherwise the metadata name the network that the
    file states, without a comparison, or else the only one that fits.
    """
    guess = identify_network(stored, model)
    if model:
        refuse_another_network(build_network(guess, stored.path), stored, guess)
    tensors = {name: stored.read(name) for name in stored.tensor_infos}
    metadata = build_metadata(guess, stored.metadata.step, str(stored.path), **stored.metadata.training)
    write_safetensors(out, tensors, metadata)
    return describe_export(stored, guess, model, len(tensors), stored.metadata.step)


def export_tf_checkpoint(
    stored: StoredWeights, prefix: Path, *, model: str = "", layout: str = "", averages: StoredWeights | None = None
) -> Converted:
    """Write weights under the names of the reference implementation, for TensorFlow's Saver.

    `averages` are written as the moving averages of the same variables.
    """
    guess = identify_network(stored, model)
    network = build_network(guess, stored.path)
    links = select_links(network, layout, guess.model)
    refuse_another_network(network, stored, guess)
    variables = convert_tensors(stored, links)
    if averages is not None:
        variables |= {name + AVERAGE_SUFFIX: value for name, value in convert_tensors(averages, links).items()}
    step = stored.metadata.step if stored.metadata.step is not None else parse_step(prefix)
    write_bundle(prefix, {**variables, STEP: torch.tensor(step or 0, dtype=torch.int64)})
    notes = ["the training step is not known; global_step is 0"] if step is None else []
    return describe_export(stored, guess, model, len(variables) + 1, step, notes)


def export_mindspore(stored: StoredWeights, out: Path, *, model: str = "", layout: str = "") -> Converted:
    """Write weights under MindSpore's names, for its load_checkpoint."""
    guess = identify_network(stored, model)
    network = build_network(guess, stored.path)
    layouts = mindspore_names.list_layouts(network)
    layout = layout or mindspore_names.choose_export_layout(network)
    if layout not in layouts:
        known = ", ".join(layouts)
        raise BadValue(f"{guess.model} has no layout {layout!r} in MindSpore.", f"It has: --layout {known}.")
    refuse_another_network(network, stored, guess)
    parameters = convert_tensors(stored, layouts[layout])
    step = stored.metadata.step
    if step is not None:  # the optimizer's counter in MindSpore
        parameters[STEP] = torch.tensor([min(step, MAX_STEP)], dtype=torch.int32)
    write_mindspore(out, parameters)
    notes = mindspore_names.describe_differences(network, layout)
    if layout == "own":
        notes = ["MindSpore has no such network; parameters have our names, and its gamma, beta, moving_mean, …"]
    return describe_export(stored, guess, model, len(parameters), step, notes)


def identify_network(stored: StoredWeights, model: str) -> Guess:
    """Return the network named by `model` or by the file, or the only one that fits the tensors.

    A named network is not compared with the tensors here.
    """
    name, options = model or stored.metadata.model, tuple(stored.metadata.options.items())
    if name and sources.is_foreign(name) and stored.metadata.classes:
        return Guess(name, stored.metadata.classes, 1.0, options=options)
    shape = stored.shapes.get("head.bias")
    if shape and name:
        return Guess(name, shape[0], 1.0, options=options)
    guesses = [guess for guess in stored.guess_networks() if guess.is_complete]
    if len(guesses) == 1:
        return guesses[0]
    candidates = [f"It may be {', '.join(guess.model for guess in guesses)}."] if guesses else []
    raise BadValue(f"{stored.path} does not say which network it is of.", *candidates, "Give its name: --model NAME.")


def build_network(guess: Guess, path: Path) -> nn.Module:
    """Build the guessed network on the meta device; raise `BadData`, with the file's `path`, if it has bad options."""
    try:
        return recognise.build_on_meta(guess.model, guess.classes, guess.options)
    except (TypeError, ValueError, RuntimeError) as error:
        options = "".join(f", {name}={value!r}" for name, value in guess.options)
        raise BadData(f"{path}: no {guess} can be built{options}: {str(error).splitlines()[0]}") from None


def describe_export(
    stored: StoredWeights, guess: Guess, model: str, tensor_count: int, step: int | None, notes: Sequence[str] = ()
) -> Converted:
    """Return the result of an export; `model` is the network that the user named, empty if none."""
    is_recognised = not model and not stored.metadata.model
    return Converted(guess.model, guess.classes, tensor_count, is_recognised, step=step, notes=tuple(notes))


def select_links(network: nn.Module, layout: str, name: str) -> list[Link]:
    """Return the links of the requested layout (naming scheme), or of the reference's default layout."""
    layouts = list_tf_layouts(network)
    if layout and layout not in layouts:
        known = ", ".join(layouts)  # empty for a network with a single layout, whose name is empty
        hint = f"It has: --layout {known}." if known else "It has a single layout: leave --layout out."
        raise BadValue(f"{name} has no layout {layout!r} in TensorFlow.", hint)
    names = find_names(network)
    return layouts[layout or (names.default_layout if names else "")]


def refuse_another_network(network: nn.Module, stored: StoredWeights, guess: Guess) -> None:
    """Raise `BadData` if tensors are missing, extra or of another shape; num_batches_tracked is not compared."""
    shapes = stored.shapes
    expected = {name: tuple(t.shape) for name, t in network.state_dict().items() if recognise.is_weight(name)}
    wrong = [name for name, shape in expected.items() if shapes.get(name) != shape]
    if wrong:
        raise BadData(f"{stored.path} does not hold {guess}: missing or of another shape are {join_first(wrong)}.")
    extra = [name for name in shapes if name not in expected and recognise.is_weight(name)]
    if extra:
        raise BadData(f"{stored.path} does not hold {guess}: that network has no {join_first(extra)}.")


def convert_tensors(stored: StoredWeights, links: list[Link]) -> dict[str, Tensor]:
    """Return weights, as float32, under the links' names of variables and in that framework's order of axes."""
    variables: dict[str, Tensor] = {}
    for link in links:
        variables |= zip(link.variables, link.to_tf(stored.read(link.tensor).float()), strict=True)
    return variables


def parse_step(prefix: Path) -> int | None:
    """Return the step in a prefix, such as 601000 of `model.ckpt-601000`; None if there is none."""
    digits = prefix.name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else None


def refuse_overwriting(out: Path, force: bool) -> None:
    """Raise BadValue if there is a file or a TensorFlow checkpoint at `out`, unless `force` is given."""
    if not force and (out.exists() or has_index(out)):
        raise BadValue(f"{out} is there already.", "Give another --out, or --force to replace it.")
