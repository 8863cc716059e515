"""Tuned operators in a training run.

A tuning bank is a folder that `viaduct tune` writes. It has entries (the fastest measured variant of an operator,
called a choice) and verdicts (whether a training step was measured to be faster with the choices). A new run reads its
choices from a bank and records them in recipe.json. A resumed run takes them from recipe.json, because other variants
would round differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from viaduct.devices.base import summarise_error
from viaduct.errors import BadRun
from viaduct.json_records import Damaged, decode_record
from viaduct.training.layout import preserve_state
from viaduct.training.loop import Training
from viaduct.training.tuned import choose_for_training
from viaduct.training.tuning_worker import find_module_obstacle, make_step_signature
from viaduct.tuning.applying import AppliedChoices, Call, apply_choices, observe_calls
from viaduct.tuning.bank import Bank, BankContents, Choice
from viaduct.tuning.fingerprint import read_fingerprint
from viaduct.tuning.location import BUILT_IN_BANK, Location


def apply_bank(training: Training, location: Location | None, recipe_name: str) -> str | None:
    """Apply a bank's choices to a new run; return a line for the user, or None if there is nothing to say.

    If any choice fits, `training.tuning_record` is set, which recipe.json will have.
    """
    if location is None or training.recipe.evaluation.eval_only:
        return None
    stored = read_banks(training, location)
    step_key = make_step_signature(training, recipe_name).key
    choices = choose_for_training(stored, step_key)
    is_explicit = location.origin != "default"  # the user has named the bank, and is told if it has no effect
    if training.group.ranks > 1:
        not_used = f"Bank {location.describe()}: not used, because choices are measured with one rank."
        return not_used if choices or is_explicit else None
    applied = apply_to_training(training, choices, step_key) if choices else None
    if applied is None or not applied.choices:
        mismatch = find_module_obstacle(training) or "no choice fits an operator of this run"
        reason = mismatch if choices else explain_no_choices(stored, location)
        return f"Bank {location.describe()}: nothing is applied; {reason}." if is_explicit else None
    training.tuning_record = {
        "bank": str(location.path.resolve()),
        "choices": {operator: dict(choice) for operator, choice in applied.choices.items()},
    }
    return f"Bank {location.describe()}: {applied.describe()}."


def restore_choices(training: Training, record: Mapping[str, Any], location: Location | None, name: str) -> str | None:
    """Apply the choices in `record`, the recipe.json of a resumed run; return a line for the user, or None.

    `location` is the bank that this session would use for a new run; `name` is the name of the recipe.
    """
    recorded = record.get("tuning")  # None: the run was begun without choices
    if recorded is None:
        if location is None or location.origin == "default":
            return None
        return f"Bank {location.describe()}: not used, because this run was begun without tuned operators."
    try:
        choices: Mapping[str, Choice] = decode_record(Mapping[str, Choice], recorded.get("choices"), "choices")
    except Damaged as error:
        file = training.run.path / "recipe.json"
        raise BadRun(f"{file} is damaged: its field 'tuning' cannot be read ({error}).") from None
    training.tuning_record = dict(recorded)
    if training.group.ranks > 1:
        return (
            "This run was begun on one rank with tuned operators; several ranks use defaults, which round differently."
        )
    applied = apply_to_training(training, choices, make_step_signature(training, name).key)
    unused = len(choices) - len(applied.choices)
    if not unused:
        return f"Tuned as when the run was begun, {applied.describe()}."
    reason = find_module_obstacle(training) or "they fit no operator of this session"
    rest = f"{unused} of the {len(choices)} choices that the run was begun with are not used: {reason}"
    return f"Tuned with {applied.describe()}. {rest}."


def read_banks(training: Training, location: Location) -> BankContents:
    """Return the entries and verdicts for this device in viaduct's own bank and in the user's, which has precedence."""
    fingerprint = read_fingerprint(training.torch_device.type)
    built_in = Bank(BUILT_IN_BANK).read(fingerprint)
    custom = location.bank.read(fingerprint)
    entries, verdicts = {**built_in.entries, **custom.entries}, {**built_in.verdicts, **custom.verdicts}
    return replace(custom, entries=entries, verdicts=verdicts)


def explain_no_choices(stored: BankContents, location: Location) -> str:
    """Return the reason why a bank has no choice for a run."""
    if stored.entries:
        entries = f"{len(stored.entries)} entries for this device, shipped ones included,"
        return f"none of {entries} is known to make this step faster (`viaduct tune show`)"
    others = location.bank.list_other_fingerprints(stored.fingerprint)
    if not others:
        return "it is empty (`viaduct tune run` fills it)"
    differences = "; ".join(", ".join(stored.fingerprint.list_differences(other)) for other in others[:3])
    return f"its entries are of another device or version ({differences})"


def apply_to_training(training: Training, choices: Mapping[str, Choice], step_key: str) -> AppliedChoices:
    """Apply the choices that fit to a training that has taken no step in this process."""
    obstacle = find_module_obstacle(training)
    calls = [] if obstacle else find_calls(training)
    has_own_kernels = bool(training.computation.fused_count)
    return apply_choices(calls, training.optimizer, choices, step_key, uses_own_kernels=has_own_kernels)


def find_calls(training: Training) -> list[Call]:
    """Return the calls of convolutions and linear layers in one forward pass of blank images.

    If the pass fails, print a note and return none. The network's statistics and modes, and the random state on the
    CPU, are restored.
    """
    recipe = training.recipe
    count = len(training.parallel.positions) // recipe.accumulate  # images of one accumulated part
    images = torch.zeros(count, 3, recipe.data.size, recipe.data.size, device=training.torch_device)
    images = images.contiguous(memory_format=torch.channels_last)
    computation = training.computation
    with preserve_state(computation.network):
        computation.network.train()
        try:
            return observe_calls(computation.network, lambda: computation.compute_outputs(images))
        except Exception as error:  # a user's network may fail on blank images
            reason = f"a forward pass of blank images fails ({summarise_error(error)})"
            training.print_note(f"Convolutions and linear layers keep their default: {reason}.")
            return []
