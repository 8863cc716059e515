"""Beginning a run with weights that were trained elsewhere: a TensorFlow or MindSpore checkpoint, a file, another run.

Every tensor of the network must be there in the right shape, or be left out by name (`init.exclude`). Exceptions are
counters of batch norms, an auxiliary head that only one side has, and the classifier of a network of another package.
With `init.schedule` "continue" the run continues at the step of those weights, with the state of their optimizer if it
is stored and of the same kind; with "restart" it begins at step 0. A run that has a checkpoint of its own continues
from that, and does not read these weights again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from viaduct.errors import BadData, BadRun, BadValue
from viaduct.recipes import Recipe
from viaduct.training import checkpoint
from viaduct.training.freezing import freeze, matching
from viaduct.training.rundir import RunDir
from viaduct.weights import recognise
from viaduct.weights.bundle import Bundle
from viaduct.weights.exporting import slots_beside
from viaduct.weights.importing import Checkpoint, Slots, read_values, some
from viaduct.weights.maps import foreign_names
from viaduct.weights.mindspore import MindsporeNames
from viaduct.weights.stored import Stored, open_weights
from viaduct.weights.torch_files import find_averages
from viaduct.weights.torch_import import rename_stored
from viaduct.weights.torch_names import describe_differences, torchvision_names

if TYPE_CHECKING:
    from viaduct.training.loop import Training

AUX, COUNTER = "aux.", "num_batches_tracked"
# TensorFlow's slots, and the names of the same tensors in our optimizers: momentum, or RMSProp's two averages.
MOMENTUM = ({"Momentum": "momentum_buffer"}, {"LARSOptimizer": "momentum_buffer"})
RMSPROP = ({"RMSProp": "square_average", "RMSProp_1": "momentum_buffer"},)
SLOTS_OF = {"SGD": MOMENTUM, "LarsOptimizer": MOMENTUM, "ThorOptimizer": MOMENTUM, "TfRmsProp": RMSPROP}

State = dict[str, dict[str, Any]]  # optimizer state by the parameter's name


@dataclass
class Donor:
    """Weights to start from, with what their source says about them."""

    tensors: dict[str, Tensor]
    excluded: set[str]
    step: int | None
    trained: dict[str, str] = field(default_factory=dict)  # settings of their training, such as the global batch
    notes: list[str] = field(default_factory=list)
    warnings: tuple[str, ...] = ()  # about damaged files that were passed over
    state: Callable[[], tuple[State, str]] = lambda: ({}, "")  # the optimizer's state, or why there is none


def load_initial_weights(training: Training) -> list[str]:
    """Load the first weights of a run, and its first step where it continues; returns lines for the user."""
    init, model = training.recipe.init, training.model
    source = Path(init.source)
    donor = read_donor(source, training)
    if not donor.tensors:
        raise BadValue(
            f"--init-exclude {init.exclude!r} leaves out every tensor of {source}.",
            "Exclude less, or leave out --init to begin with new weights.",
        )
    own = model.state_dict()
    with torch.no_grad():
        for name, value in donor.tensors.items():
            own[name].copy_(training.parallel.take_rows_of(("model", name), value))
    training.computation.publish_weights()
    training.computation.publish_statistics()
    names = [name for name in own if not name.endswith(COUNTER)]
    taken = sum(name in donor.tensors for name in names)
    excluded = describe_excluded(donor.excluded)
    lines = [*donor.warnings, f"Weights from {source}: {taken} of {len(names)} tensors{excluded}."]
    lines += [f"Note: {note}." for note in donor.notes]
    return lines + (continue_from(donor, source, training) if init.schedule == "continue" else [])


def describe_excluded(excluded: set[str]) -> str:
    """Return the excluded tensors in words."""
    return f", without {some(sorted(excluded))}" if excluded else ""


def read_donor(source: Path, training: Training) -> Donor:
    """Return the weights at the source that fit the network."""
    shapes = training.parallel.full_shapes(training.model)
    exclude = training.recipe.init.exclude
    foreign = foreign_names(whole_model(training)) if exclude else {}
    with open_weights(source) as stored:
        if isinstance(stored.reader, Bundle | MindsporeNames):
            return from_foreign_names(stored.reader, training, matching(exclude, shapes, "--init-exclude", foreign))
        remarks: list[str] = []
        if stored.kind != "run":
            renamed = rename_stored(stored, whole_model(training))
            remarks = describe_foreign_weights(stored, renamed, whole_model(training))
            stored = renamed
            foreign |= {name: own for own, name in torchvision_names(whole_model(training)).items()} if exclude else {}
        excluded = matching(exclude, {**shapes, **stored.shapes}, "--init-exclude", foreign)
        classifier = find_new_classifier(training.recipe, stored, shapes, excluded)
        excluded |= classifier
        taken, notes = fitting(stored, shapes, excluded)
        notes += [*describe_new_classifier(classifier, stored, shapes), *remarks]
        tensors = {name: stored.read(name) for name in taken}
        refuse_not_finite(tensors, source)
        donor = Donor(tensors, excluded, stored.facts.step, stored.facts.trained, notes, stored.warnings)
    if stored.kind == "run":
        donor.state = lambda: state_of_run(stored.path.parent, training)
    else:
        donor.state = lambda: state_of_slots(read_slots_file(slots_beside(source)), training)
    return donor


def describe_foreign_weights(stored: Stored, renamed: Stored, model: nn.Module) -> list[str]:
    """Return notes on weights of another origin: what computes differently here, and averages that were not taken."""
    notes = describe_differences(model) if renamed is not stored else []
    if stored.kind == "PyTorch file" and (key := find_averages(stored.path)):
        notes.append(
            f"the file has averaged weights, too, under {key!r}; the others were taken "
            f"(`viaduct weights import {stored.path} --ema` writes the averages)"
        )
    return notes


def refuse_not_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse weights with NaN or infinite values: whatever is computed with them means nothing."""
    bad = [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]
    if bad:
        raise BadData(
            f"{path}: {len(bad):,} of {len(tensors):,} tensors hold values that are not finite: {some(bad)}.",
            "Choose another checkpoint or file.",
        )


def find_new_classifier(
    recipe: Recipe, stored: Stored, shapes: dict[str, tuple[int, ...]], excluded: set[str]
) -> set[str]:
    """Return the tensors of a classifier of another number of classes, which begin anew."""
    wrong = {name for name, shape in shapes.items() if name in stored.shapes and stored.shapes[name] != shape}
    wrong -= excluded
    fits = all(shapes[name][0] == recipe.data.classes and stored.shapes[name][1:] == shapes[name][1:] for name in wrong)
    return wrong if fits else set()


def describe_new_classifier(names: set[str], stored: Stored, shapes: dict[str, tuple[int, ...]]) -> list[str]:
    if not names:
        return []
    first = min(names)
    there, here = stored.shapes[first][0], shapes[first][0]
    return [f"the classifier ({', '.join(sorted(names))}) begins anew: {there:,} classes there, {here:,} here"]


def from_foreign_names(checkpoint: Checkpoint, training: Training, excluded: set[str]) -> Donor:
    wanted = training.recipe.init.schedule == "continue"
    values = read_values(whole_model(training), checkpoint, slots=wanted, wanted=lambda name: name not in excluded)
    state = state_of_slots(values.done.slots, training) if wanted else ({}, "")
    return Donor(values.tensors, excluded, values.done.global_step, notes=values.done.notes, state=lambda: state)


def whole_model(training: Training) -> nn.Module:
    """Return the network with its full classifier; without values (on the meta device) if the ranks split it."""
    from viaduct.training.networks import build_model

    if training.parallel.has_full_model():
        return training.model
    with torch.device("meta"):
        return build_model(training.recipe)


def fitting(stored: Stored, shapes: dict[str, tuple[int, ...]], excluded: set[str]) -> tuple[list[str], list[str]]:
    """Return the names of the tensors to load, and notes; an auxiliary head that only one side has is skipped.

    Raise BadData if the tensors are not those of this network.
    """
    here = {name: shape for name, shape in shapes.items() if name not in excluded}
    there = {name: shape for name, shape in stored.shapes.items() if name not in excluded}
    notes = []
    if not any(name.startswith(AUX) for name in there) and any(name.startswith(AUX) for name in here):
        here = {name: shape for name, shape in here.items() if not name.startswith(AUX)}
        notes.append("there is no auxiliary head; the network's keeps its initial values")
    elif not any(name.startswith(AUX) for name in shapes) and any(name.startswith(AUX) for name in there):
        there = {name: shape for name, shape in there.items() if not name.startswith(AUX)}
        notes.append("the auxiliary head is left out; the network has none")
    refuse_what_does_not_fit(stored, here, there)
    return [name for name in here if name in there], notes


def refuse_what_does_not_fit(
    stored: Stored, here: dict[str, tuple[int, ...]], there: dict[str, tuple[int, ...]]
) -> None:
    missing = [name for name in here if name not in there and not name.endswith(COUNTER)]
    extra = [name for name in there if name not in here]
    misshaped = [name for name, shape in here.items() if name in there and there[name] != shape]
    biases = [name for name in misshaped if recognise.is_head(name) and len(there[name]) == len(here[name]) == 1]
    if not missing and not extra and biases and all(map(recognise.is_head, misshaped)):
        classes = there[biases[0]][0], here[biases[0]][0]
        raise BadData(
            f"{stored.path} has {classes[0]:,} classes, this network {classes[1]:,}.", suggest_exclusion(misshaped)
        )
    if missing or extra or misshaped:
        kinds = {"missing there": missing, "not in this network": extra, "of another shape": misshaped}
        lines = [f"{title}, {len(names):,}: {some(names)}" for title, names in kinds.items() if names]
        raise BadData(
            f"{stored.path} does not hold this network.",
            *lines,
            *describe_likely_network(stored),
            suggest_exclusion(missing + misshaped),
        )


def suggest_exclusion(names: list[str]) -> str:
    """Return the hint to exclude these tensors."""
    modules = list(dict.fromkeys(name.rpartition(".")[0] + ".*" for name in names))
    if not modules or len(modules) > 3:
        return "Leave tensors out with --init-exclude, for instance --init-exclude 'head.*'."
    return f"To begin without them: --init-exclude '{','.join(modules)}'"


def describe_likely_network(stored: Stored) -> list[str]:
    name = stored.facts.model or next((guess.model for guess in stored.guesses() if guess.share > 0.9), "")
    return [f"It looks like {name}."] if name else []


# Going on where the weights stopped


def continue_from(donor: Donor, source: Path, training: Training) -> list[str]:
    """Continue at the step at which the weights were saved, with their optimizer state."""
    if donor.step is None:
        raise BadData(f"{source} does not say after which step it was saved.", "Begin with --init-schedule restart.")
    if donor.step >= training.steps:
        raise BadValue(
            f"{source} was saved after step {donor.step:,}; this run ends after {training.steps:,}.",
            "Give more --steps or --epochs, or begin again: --init-schedule restart.",
        )
    training.progress.step = training.progress.evaluated_at = donor.step
    state, reason = donor.state()
    taken = load_state(training, {name: kept for name, kept in state.items() if name not in donor.excluded})
    optimizer = f"with the optimizer's state of {taken} parameters" if taken else f"with a fresh optimizer ({reason})"
    return [f"Continuing at step {donor.step:,}, {optimizer}.", *list_warnings(donor, source, training.recipe)]


def list_warnings(donor: Donor, source: Path, recipe: Recipe) -> list[str]:
    """Return a warning for global batch and precision if they differ from the weights' training (seed 004).

    If nothing is known of that training, return one warning that says so.
    """
    now = {"global_batch": str(recipe.data.global_batch), "precision": recipe.precision.compute}
    lines = [
        f"Warning: {source} was trained with {name.replace('_', ' ')} {before}, this run has {now[name]}; "
        "the schedule goes on as if it were the same, and training may not go on as it should."
        for name, before in donor.trained.items()
        if name in now and before != now[name]
    ]
    if not donor.trained:
        same = "continue with the same global batch, ranks and precision, or training may not go on as it should"
        lines = [f"Warning: {source} does not say how it was trained; {same}."]
    return lines


def load_state(training: Training, state: State) -> int:
    """Load optimizer state by parameter; return how many parameters have got one of their shape."""
    optimizer, take_rows_of = training.optimizer, training.parallel.take_rows_of
    names = {id(value): name for name, value in training.model.named_parameters()}
    record = optimizer.state_dict()
    order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state_by_index = {
        index: {
            key: take_rows_of(("optimizer", index, key), value) if isinstance(value, Tensor) else value
            for key, value in state.get(names[id(parameter)], {}).items()
        }
        for index, parameter in enumerate(order)
    }
    record["state"] = {
        index: {key: match_layout(value, order[index]) for key, value in kept.items()}
        for index, kept in state_by_index.items()
        if fits(kept, order[index])
    }
    optimizer.load_state_dict(record)
    return len(record["state"])


def fits(kept: dict[str, Any], parameter: Tensor) -> bool:
    """Return True if the stored state has the shape of the parameter."""
    tensors = [value for value in kept.values() if isinstance(value, Tensor) and value.ndim]
    return bool(kept) and all(value.shape == parameter.shape for value in tensors)


def match_layout(value: Any, parameter: Tensor) -> Any:
    """Return the value in the memory layout of the parameter (channels last), which fused optimizers rely on."""
    if isinstance(value, Tensor) and value.shape == parameter.shape and value.ndim:
        return torch.empty_like(parameter).copy_(value)
    return value


def state_of_slots(slots: Slots, training: Training) -> tuple[State, str]:
    """Return TensorFlow's slots as the state of this run's optimizer, and why it is empty if it is."""
    if not slots:
        return {}, "no state of one is stored there"
    kind = type(training.optimizer).__name__
    for keys in SLOTS_OF.get(kind, ()):
        if keys.keys() <= slots.keys():
            shared = set.intersection(*(set(slots[slot]) for slot in keys))
            return {name: {key: slots[slot][name] for slot, key in keys.items()} for name in shared}, ""
    return {}, f"the state there ({', '.join(slots)}) is of another kind than {kind}"


def read_slots_file(file: Path) -> Slots:
    """Return the slots that `viaduct weights import --slots` wrote beside the weights; empty without that file."""
    slots: Slots = {}
    if file.is_file():
        with open_weights(file) as stored:
            for key in stored.infos:
                slot, _, name = key.partition("/")
                slots.setdefault(slot, {})[name] = stored.read(key)
    return slots


def state_of_run(folder: Path, training: Training) -> tuple[State, str]:
    """Return the optimizer state of a run's checkpoint by parameter, and why it is empty if it is."""
    from viaduct.training.networks import build_model
    from viaduct.training.optim import build_optimizer

    if not (folder / checkpoint.STATE).is_file():
        return {}, "the run has kept its weights alone"
    saved = checkpoint.Saved(folder)
    refuse_damaged(saved)
    recipe = RunDir(folder.parent.parent).recipe().recipe
    model = build_model(recipe)
    freeze(model, recipe.init.freeze)
    optimizer = build_optimizer(recipe, model)
    if type(optimizer) is not type(training.optimizer):
        return {}, f"the run's was {type(optimizer).__name__}"
    kept = saved.training_state()["optimizer"]["state"]
    return {name: kept[index] for index, name in enumerate(trained_names(model, optimizer)) if index in kept}, ""


def refuse_damaged(saved: checkpoint.Saved) -> None:
    """Raise BadRun if a file of the checkpoint is damaged: here its optimizer state is needed, too."""
    damage = saved.damage()
    if damage is not None:
        hint = "Name an older checkpoint of the run, or begin with a fresh optimizer: --init-schedule restart."
        raise BadRun(f"a damaged checkpoint: {damage}.", hint)


def trained_names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Return the names of the optimizer's parameters in its own order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
