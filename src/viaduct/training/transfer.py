"""Initial weights of a run from elsewhere: a TensorFlow or MindSpore checkpoint, a file of tensors, another run.

The source must have every tensor of the network in the right shape, unless it is excluded by name (`init.exclude`).
Exceptions are batch counters of batch norms, an auxiliary head that only the source or only the network has, and a
classifier for another number of classes (not in checkpoints of TensorFlow and MindSpore). With `init.schedule`
"continue" the run continues at the step of these weights, with the state of their optimizer if it is stored and of the
same kind; with "restart" it begins at step 0. A resumed run does not read these weights again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from viaduct.data.notices import join_first
from viaduct.errors import BadData, BadRun, BadValue
from viaduct.recipes import Recipe
from viaduct.training import checkpoint
from viaduct.training.freezing import freeze, match_patterns
from viaduct.training.networks import build_model
from viaduct.training.optim import build_optimizer
from viaduct.training.parallel import SingleRank
from viaduct.training.rundir import RunDir
from viaduct.training.step import TrainingStep
from viaduct.weights import recognise
from viaduct.weights.checkpoint import FrameworkCheckpoint
from viaduct.weights.exporting import get_slots_path
from viaduct.weights.importing import Slots, read_values
from viaduct.weights.names import list_framework_names
from viaduct.weights.stored import StoredWeights, open_weights
from viaduct.weights.torch_files import find_averages
from viaduct.weights.torch_import import rename_stored
from viaduct.weights.torch_names import describe_differences, list_torchvision_names

AUX, COUNTER = "aux.", "num_batches_tracked"  # in names of tensors: an auxiliary head; a batch norm's counter
# A slot is an optimizer's tensor for a parameter. TensorFlow's slots -> keys of the same tensors in our optimizers'
# state, in the order in which they are tried.
MOMENTUM = ({"Momentum": "momentum_buffer"}, {"LARSOptimizer": "momentum_buffer"})
RMSPROP = ({"RMSProp": "square_average", "RMSProp_1": "momentum_buffer"},)
SLOTS_BY_OPTIMIZER = {"SGD": MOMENTUM, "LarsOptimizer": MOMENTUM, "ThorOptimizer": MOMENTUM, "TfRmsProp": RMSPROP}

State = dict[str, dict[str, Any]]  # optimizer state by the parameter's name


@dataclass
class InitialWeights:
    """Weights to start from, and facts from their source."""

    tensors: dict[str, Tensor]
    excluded: set[str]  # names of tensors, here or in the source, that are left out
    step: int | None  # after which the weights were saved; None: not known
    trained_with: dict[str, str] = field(default_factory=dict)  # settings of their training, such as the global batch
    notes: list[str] = field(default_factory=list)
    warnings: tuple[str, ...] = ()  # about damaged files that were skipped
    # Returns the optimizer's state, and if that is empty, the reason.
    read_state: Callable[[], tuple[State, str]] = lambda: ({}, "")


def load_initial_weights(step: TrainingStep) -> list[str]:
    """Load the initial weights of a run; return lines for the user.

    With `init.schedule` "continue", also set the step that the run has reached, and load the optimizer's state.
    """
    init, computation = step.recipe.init, step.computation
    model_state, source = computation.master.state_dict(), Path(init.source)
    initial = read_initial_weights(source, step.recipe, computation.master, step.optimizer, step.parallel)
    if not initial.tensors:
        message = f"--init-exclude {init.exclude!r} leaves out every tensor of {source}."
        raise BadValue(message, "Exclude less, or leave out --init to begin with new weights.")
    with torch.no_grad():
        for name, value in initial.tensors.items():
            model_state[name].copy_(step.parallel.take_tensor_rows(("model", name), value))
    computation.publish_weights()
    computation.publish_statistics()
    names = [name for name in model_state if not name.endswith(COUNTER)]
    loaded = sum(name in initial.tensors for name in names)
    excluded = f", without {join_first(sorted(initial.excluded))}" if initial.excluded else ""
    lines = [*initial.warnings, f"Weights from {source}: {loaded} of {len(names)} tensors{excluded}."]
    lines += [f"Note: {note}." for note in initial.notes]
    return lines + (continue_from(initial, source, step) if init.schedule == "continue" else [])


def read_initial_weights(
    source: Path, recipe: Recipe, model: nn.Module, optimizer: Optimizer, parallel: SingleRank
) -> InitialWeights:
    """Return the weights at the source; raise an error if they do not fit the network."""
    shapes, exclude = parallel.list_full_shapes(model), recipe.init.exclude
    if parallel.count_missing_parameters():  # the ranks split the classifier
        with torch.device("meta"):
            model = build_model(recipe)  # the whole network, without values
    foreign = list_framework_names(model) if exclude else {}  # names in other frameworks -> ours
    with open_weights(source) as stored:
        if stored.framework_checkpoint is not None:
            excluded = match_patterns(exclude, shapes, "--init-exclude", foreign)
            return read_framework_checkpoint(stored.framework_checkpoint, recipe, model, optimizer, excluded)
        remarks: list[str] = []
        if stored.kind != "run":
            renamed = rename_stored(stored, model)
            remarks = describe_foreign_weights(stored, renamed, model)
            stored = renamed
            foreign |= {theirs: ours for ours, theirs in list_torchvision_names(model).items()} if exclude else {}
        excluded = match_patterns(exclude, {**shapes, **stored.shapes}, "--init-exclude", foreign)
        new_classifier = find_new_classifier(recipe, stored, shapes, excluded)  # names of its tensors
        excluded |= new_classifier
        names, notes = select_tensors(stored, shapes, excluded)
        if new_classifier:
            listed = sorted(new_classifier)
            name = listed[0]
            there, here = stored.shapes[name][0], shapes[name][0]  # numbers of classes
            notes.append(f"the classifier ({', '.join(listed)}) begins anew: {there:,} classes there, {here:,} here")
        tensors = {name: stored.read(name) for name in names}
        refuse_not_finite(tensors, source)
        initial = InitialWeights(
            tensors,
            excluded,
            step=stored.metadata.step,
            trained_with=stored.metadata.training,
            notes=[*notes, *remarks],
            warnings=stored.warnings,
        )
    if stored.kind == "run":
        initial.read_state = lambda: read_run_state(stored.path.parent, optimizer)
    else:
        initial.read_state = lambda: convert_slots(read_slots_file(get_slots_path(source)), optimizer)
    return initial


def describe_foreign_weights(stored: StoredWeights, renamed: StoredWeights, model: nn.Module) -> list[str]:
    """Return notes on how the network differs from that of the other framework, and on averages that are not loaded."""
    notes = describe_differences(model) if renamed is not stored else []
    if stored.kind == "PyTorch file" and (key := find_averages(stored.path)):
        notes.append(
            f"the file has averaged weights, too, under {key!r}; the others were taken "
            f"(`viaduct weights import {shlex.quote(str(stored.path))} --ema` writes the averages)"
        )
    return notes


def refuse_not_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise BadData for weights with NaN or infinite values."""
    bad = [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]
    if bad:
        message = (
            f"{path}: {len(bad):,} of {len(tensors):,} tensors hold values that are not finite: {join_first(bad)}."
        )
        raise BadData(message, "Choose another checkpoint or file.")


def find_new_classifier(
    recipe: Recipe, stored: StoredWeights, shapes: dict[str, tuple[int, ...]], excluded: set[str]
) -> set[str]:
    """Return the tensors whose shape differs from the stored one, if the number of classes explains all; else none."""
    shared = shapes.keys() & stored.shapes.keys() - excluded
    differing = {name for name in shared if stored.shapes[name] != shapes[name]}
    is_classifier = all(
        shapes[name][:1] == (recipe.data.classes,) and stored.shapes[name][1:] == shapes[name][1:] for name in differing
    )
    return differing if is_classifier else set()


def read_framework_checkpoint(
    stored: FrameworkCheckpoint, recipe: Recipe, model: nn.Module, optimizer: Optimizer, excluded: set[str]
) -> InitialWeights:
    """Return the weights of a TensorFlow or MindSpore checkpoint, and the optimizer's state if the run continues."""
    continues = recipe.init.schedule == "continue"
    values = read_values(model, stored, slots=continues, wanted=lambda name: name not in excluded)
    refuse_not_finite(values.tensors, stored.prefix)
    state = convert_slots(values.imported.slots, optimizer) if continues else ({}, "")
    return InitialWeights(
        values.tensors, excluded, values.imported.global_step, notes=values.imported.notes, read_state=lambda: state
    )


def select_tensors(
    stored: StoredWeights, shapes: dict[str, tuple[int, ...]], excluded: set[str]
) -> tuple[list[str], list[str]]:
    """Return the names of the tensors to load, and notes; raise BadData if they do not fit the network.

    An auxiliary head that only the file or only the network has is skipped.
    """
    here = {name: shape for name, shape in shapes.items() if name not in excluded}
    there = {name: shape for name, shape in stored.shapes.items() if name not in excluded}
    notes = []
    if not any(name.startswith(AUX) for name in there) and any(name.startswith(AUX) for name in here):
        here = {name: shape for name, shape in here.items() if not name.startswith(AUX)}
        notes.append("no auxiliary head is stored; that of the network keeps its initial values")
    elif not any(name.startswith(AUX) for name in shapes) and any(name.startswith(AUX) for name in there):
        there = {name: shape for name, shape in there.items() if not name.startswith(AUX)}
        notes.append("the auxiliary head is left out; the network has none")
    refuse_mismatch(stored, here, there)
    return [name for name in here if name in there], notes


def refuse_mismatch(stored: StoredWeights, here: dict[str, tuple[int, ...]], there: dict[str, tuple[int, ...]]) -> None:
    """Raise BadData if tensors are missing, extra or misshaped; if only the number of classes differs, say so."""
    missing = [name for name in here if name not in there and not name.endswith(COUNTER)]
    extra = [name for name in there if name not in here]
    misshaped = [name for name, shape in here.items() if name in there and there[name] != shape]
    # The length of a classifier's bias is its number of classes.
    biases = [name for name in misshaped if recognise.is_head(name) and len(there[name]) == len(here[name]) == 1]
    if not missing and not extra and biases and all(map(recognise.is_head, misshaped)):
        classes = f"{there[biases[0]][0]:,} classes, this network {here[biases[0]][0]:,}"
        raise BadData(f"{stored.path} has {classes}.", suggest_exclusion(misshaped))
    differences = {"missing there": missing, "not in this network": extra, "of another shape": misshaped}
    if any(differences.values()):
        lines = [f"{title}, {len(names):,}: {join_first(names)}" for title, names in differences.items() if names]
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


def describe_likely_network(stored: StoredWeights) -> list[str]:
    """Return a hint with the network that the file names or that its tensors resemble, if there is one."""
    name = stored.metadata.model or next((guess.model for guess in stored.guess_networks() if guess.share > 0.9), "")
    return [f"It looks like {name}."] if name else []


# Continuing the training of the weights


def continue_from(initial: InitialWeights, source: Path, step: TrainingStep) -> list[str]:
    """Continue at the step at which the weights were saved, with their optimizer state; return lines for the user."""
    if initial.step is None:
        raise BadData(f"{source} does not say after which step it was saved.", "Begin with --init-schedule restart.")
    if initial.step >= step.progress.steps:
        message = f"{source} was saved after step {initial.step:,}; this run ends after {step.progress.steps:,}."
        raise BadValue(message, "Give more --steps or --epochs, or begin again: --init-schedule restart.")
    step.progress.step = step.progress.evaluated_at = initial.step  # not evaluated before the first step
    state, reason = initial.read_state()
    state = {name: slots for name, slots in state.items() if name not in initial.excluded}
    loaded = load_state(step.computation.master, step.optimizer, step.parallel, state)
    fresh = f"with a fresh optimizer ({reason or 'the stored state belongs to none of the loaded parameters'})"
    total = len(list_trained(step.computation.master, step.optimizer))
    optimizer = f"with the optimizer's state of {loaded} of {total} parameters" if loaded else fresh
    return [f"Continuing at step {initial.step:,}, {optimizer}.", *list_warnings(initial, source, step.recipe)]


def list_warnings(initial: InitialWeights, source: Path, recipe: Recipe) -> list[str]:
    """Return a warning for each recorded setting of the weights that differs here, or one if none is recorded."""
    now = {"global_batch": str(recipe.data.global_batch), "precision": recipe.precision.compute}
    lines = [
        f"Warning: {source} was trained with {name.replace('_', ' ')} {before}, this run has {now[name]}; "
        "the schedule goes on as if it were the same, and training may not go on as it should."
        for name, before in initial.trained_with.items()
        if name in now and before != now[name]
    ]
    if not initial.trained_with:
        advice = "continue with the same global batch, ranks and precision, or training may not go on as it should"
        lines = [f"Warning: {source} does not say how it was trained; {advice}."]
    return lines


def load_state(model: nn.Module, optimizer: Optimizer, parallel: SingleRank, state: State) -> int:
    """Load optimizer state by parameter name; return the number of parameters for which a state was loaded."""
    record = optimizer.state_dict()
    record["state"] = {}
    for index, (name, parameter) in enumerate(list_trained(model, optimizer)):
        slots = {
            key: parallel.take_tensor_rows(("optimizer", index, key), value) if isinstance(value, Tensor) else value
            for key, value in state.get(name, {}).items()
        }
        tensors = [value for value in slots.values() if isinstance(value, Tensor) and value.ndim]
        if slots and all(value.shape == parameter.shape for value in tensors):
            record["state"][index] = {key: match_layout(value, parameter) for key, value in slots.items()}
    optimizer.load_state_dict(record)
    return len(record["state"])


def match_layout(value: Any, parameter: Tensor) -> Any:
    """Return the value in the memory layout of the parameter, which fused optimizers need."""
    if isinstance(value, Tensor) and value.shape == parameter.shape and value.ndim:
        return torch.empty_like(parameter).copy_(value)
    return value


def convert_slots(slots: Slots, optimizer: Optimizer) -> tuple[State, str]:
    """Return TensorFlow's slots as the state of this run's optimizer; if it is empty, also the reason."""
    if not slots:
        return {}, "no optimizer state is stored there"
    kind = type(optimizer).__name__
    for keys_by_slot in SLOTS_BY_OPTIMIZER.get(kind, ()):
        if keys_by_slot.keys() <= slots.keys():
            names = set.intersection(*(set(slots[slot]) for slot in keys_by_slot))
            return {name: {key: slots[slot][name] for slot, key in keys_by_slot.items()} for name in names}, ""
    return {}, f"the state there ({', '.join(slots)}) is of another kind than {kind}"


def read_slots_file(file: Path) -> Slots:
    """Return the slots that `viaduct weights import --slots` has written; empty without that file."""
    slots: Slots = {}
    if file.is_file():
        with open_weights(file) as stored:
            for key in stored.tensor_infos:
                slot, _, name = key.partition("/")
                slots.setdefault(slot, {})[name] = stored.read(key)
    return slots


def read_run_state(folder: Path, optimizer: Optimizer) -> tuple[State, str]:
    """Return the optimizer state of a run's checkpoint by parameter; if it is empty, also the reason.

    `folder` is RUN/checkpoints/step-N, or RUN if it has only its final weights. The state is empty without a
    checkpoint, or if it was written with another kind of optimizer than `optimizer`.
    """
    if not (folder / checkpoint.STATE_FILE).is_file():
        return {}, "the run has only its final weights left, no checkpoint"
    saved = checkpoint.SavedCheckpoint(folder)
    if (damage := saved.find_damage()) is not None:  # before, only the file of the weights was checked
        hint = "Name an older checkpoint of the run, or begin with a fresh optimizer: --init-schedule restart."
        raise BadRun(f"a damaged checkpoint: {damage}.", hint)
    recipe = RunDir(folder.parent.parent).load_recipe().recipe
    model = build_model(recipe)
    freeze(model, recipe.init.freeze)
    earlier = build_optimizer(recipe, model)
    if type(earlier) is not type(optimizer):
        return {}, f"the earlier run's was {type(earlier).__name__}"
    stored = saved.read_training_state()["optimizer"]["state"]
    trained = enumerate(list_trained(model, earlier))
    return {name: stored[index] for index, (name, _) in trained if index in stored}, ""


def list_trained(model: nn.Module, optimizer: Optimizer) -> list[tuple[str, nn.Parameter]]:
    """Return names and parameters of the optimizer, in the order of its state dict."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [(names[id(parameter)], parameter) for group in optimizer.param_groups for parameter in group["params"]]
