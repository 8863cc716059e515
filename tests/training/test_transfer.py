"""Runs that begin with weights from elsewhere, at step 0 or where those weights stopped."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from training.tiny_runs import (
    CLASSES,
    PER_EPOCH,
    RECIPE,
    build_normed_network,
    build_plain_network,
    build_training,
    change_part,
    copy_weights,
    train_recipe,
)
from viaduct import models
from viaduct.errors import BadData, BadRun, BadValue
from viaduct.recipes import Init, Lars, LoadedRecipe, Recipe, RmsProp, Sgd
from viaduct.recipes._fields import to_record
from viaduct.training import session
from viaduct.training.callbacks import Checkpointing
from viaduct.training.freezing import match_patterns
from viaduct.training.rundir import RunDir
from viaduct.training.transfer import load_initial_weights
from viaduct.weights.bundle import Bundle, write_bundle
from viaduct.weights.names import list_tf_layouts
from viaduct.weights.torch_names import list_torchvision_names

STATEFUL = replace(RECIPE, model=build_normed_network, epochs=2)


def small_resnet(classes: int) -> nn.Module:
    """A network with a reference in TensorFlow."""
    return models.build("resnet20_cifar", classes, blocks=(1, 1, 1), filters=(4, 4, 8))


def keep(run: RunDir, recipe: Recipe) -> RunDir:
    """A run with a checkpoint after its last step and the record that makes it one."""
    train_recipe(recipe, run, Checkpointing())
    record = {"name": "mine", "file": None, "recipe": to_record(recipe)}
    (run.path / "recipe.json").write_text(json.dumps(record))
    return run


@pytest.fixture
def recipes_are_mine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's recipe is loaded by name; these tests have none to load."""
    monkeypatch.setattr(RunDir, "load_recipe", lambda run: LoadedRecipe("mine", STATEFUL, "", None))


@pytest.fixture
def donor(tmp_path: Path) -> RunDir:
    (tmp_path / "donor").mkdir()
    return keep(RunDir(tmp_path / "donor"), replace(STATEFUL, steps=PER_EPOCH))


def begun(recipe: Recipe, run: RunDir, source: Path, **init: Any) -> tuple[Any, list[str]]:
    made = build_training(replace(recipe, init=Init(source=str(source), **init)), run)
    return made, load_initial_weights(made.train_step)


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def load_donor(run: RunDir) -> dict[str, Tensor]:
    from viaduct.training.checkpoint import find_newest_intact

    saved, _ = find_newest_intact(run.checkpoints)
    assert saved is not None
    return saved.read_model()


def tf_checkpoint(folder: Path, model: nn.Module, step: int = 7, **slots: float) -> Path:
    """The model as TensorFlow would have saved it; each slot holds one number throughout."""
    (links,) = list_tf_layouts(model).values()
    own, variables = model.state_dict(), dict[str, Tensor]()
    for link in links:
        for name, value in zip(link.variables, link.to_tf(own[link.tensor]), strict=True):
            variables[name] = value
            variables |= {
                f"{name}/{slot}": torch.full_like(value, held) for slot, held in slots.items() if link.trained
            }
    return write_bundle(folder / f"model.ckpt-{step}", {**variables, "global_step": torch.tensor(step)})


def test_a_run_gives_its_weights_and_the_new_one_begins_at_zero(donor: RunDir, run: RunDir) -> None:
    made, lines = begun(STATEFUL, run, donor.path)
    assert equal(copy_weights(made), load_donor(donor))
    assert made.step == 0
    assert not made.optimizer.state
    assert lines == [f"Weights from {donor.path}: 7 of 7 tensors."]


def test_a_damaged_checkpoint_that_is_skipped_is_named(donor: RunDir, run: RunDir) -> None:
    newest = donor.checkpoints / f"step-{PER_EPOCH + 1}"
    shutil.copytree(donor.checkpoints / f"step-{PER_EPOCH}", newest)
    (newest / "model.safetensors").write_bytes(b"cut")
    made, lines = begun(STATEFUL, run, donor.path)
    assert lines[0].startswith(f"Skipping a damaged checkpoint: {newest / 'model.safetensors'} ")
    assert equal(copy_weights(made), load_donor(donor))


def test_a_damaged_state_of_the_optimizer_is_not_continued_from(donor: RunDir, run: RunDir) -> None:
    state = donor.checkpoints / f"step-{PER_EPOCH}" / "state.pt"
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    with pytest.raises(BadRun, match=r"a damaged checkpoint: .*state\.pt.*\n.*--init-schedule restart"):
        begun(STATEFUL, run, donor.path, schedule="continue")


@pytest.mark.parametrize("precision", ["fp32", "O2"])
def test_the_network_computes_with_the_new_weights(precision: str, donor: RunDir, run: RunDir) -> None:
    made, _ = begun(change_part(STATEFUL, "precision", compute=precision), run, donor.path)
    for name, tensor in made.computation.network.state_dict().items():
        torch.testing.assert_close(tensor.float(), load_donor(donor)[name].float(), rtol=1e-2, atol=1e-2)


def test_a_safetensors_file_gives_its_weights(donor: RunDir, run: RunDir, tmp_path: Path) -> None:
    save_file(load_donor(donor), tmp_path / "w.safetensors")
    made, _ = begun(STATEFUL, run, tmp_path / "w.safetensors")
    assert equal(copy_weights(made), load_donor(donor))


def test_excluded_tensors_keep_their_first_values(donor: RunDir, run: RunDir) -> None:
    first = copy_weights(build_training(STATEFUL, run))
    made, lines = begun(STATEFUL, run, donor.path, exclude="5")
    assert torch.equal(copy_weights(made)["5.weight"], first["5.weight"])
    assert torch.equal(copy_weights(made)["0.weight"], load_donor(donor)["0.weight"])
    assert lines == [f"Weights from {donor.path}: 5 of 7 tensors, without 5.bias, 5.weight."]


def test_a_tensorflow_checkpoint_gives_its_weights(run: RunDir, tmp_path: Path) -> None:
    stored = small_resnet(1001)
    prefix = tf_checkpoint(tmp_path, stored)
    recipe = replace(RECIPE, model=small_resnet)
    with pytest.raises(BadData, match="has 1,001 classes, this network 4") as refusal:
        begun(recipe, run, prefix)
    assert "--init-exclude 'head.*'" in str(refusal.value)
    made, _ = begun(recipe, run, prefix, exclude="head.*")
    assert torch.equal(made.model.stem.conv.weight, stored.stem.conv.weight)
    assert made.model.head.out_features == CLASSES


def test_a_tensorflow_checkpoint_with_nan_is_refused(run: RunDir, tmp_path: Path) -> None:
    stored = small_resnet(CLASSES)
    stored.stem.conv.weight.data[0] = math.nan
    with pytest.raises(BadData, match=r"1 of \d+ tensors hold values that are not finite: stem\.conv\.weight"):
        begun(replace(RECIPE, model=small_resnet), run, tf_checkpoint(tmp_path, stored))


@pytest.mark.parametrize(
    "exclude", ["resnet_model/dense", "resnet_model/dense/*", "resnet_model/dense/kernel,head.bias"]
)
def test_what_to_exclude_may_be_said_in_tensorflows_names(exclude: str, run: RunDir, tmp_path: Path) -> None:
    model = small_resnet(CLASSES + 7)
    (links,) = list_tf_layouts(model).values()
    state = model.state_dict()
    write_bundle(tmp_path / "model.ckpt-3", {link.variables[0]: link.to_tf(state[link.tensor])[0] for link in links})
    save_file(dict(state), tmp_path / "ours.safetensors")
    for source in ("model.ckpt-3", "ours.safetensors"):
        recipe = replace(STATEFUL, model=small_resnet)
        begin, lines = begun(recipe, run, tmp_path / source, exclude=exclude)
        assert "without head.bias, head.weight" in lines[0]
        assert torch.equal(begin.model.state_dict()["stem.conv.weight"], state["stem.conv.weight"])


def test_scopes_of_tensorflow_are_beginnings_of_names() -> None:
    names = ["stem.conv.weight", "stages.0.0.conv1.weight", "head.weight"]
    foreign = {
        "m/conv2d/kernel": names[0],
        "m/conv2d_1/kernel": names[1],
        "m/dense/kernel": names[2],
        "end_point.weight": names[2],
    }
    assert match_patterns("m/conv2d", names, "--x", foreign) == set(names[:2])
    assert match_patterns("m/conv2d/", names, "--x", foreign) == {names[0]}
    assert match_patterns("end_point", names, "--x", foreign) == {names[2]}
    with pytest.raises(BadValue, match="m/batch"):
        match_patterns("m/batch", names, "--x", foreign)


def test_a_classifier_of_another_number_of_classes_begins_anew_and_that_is_reported(
    run: RunDir, tmp_path: Path
) -> None:
    donated = small_resnet(10).state_dict()
    save_file(donated, tmp_path / "w.safetensors")
    made, lines = begun(replace(RECIPE, model=small_resnet), run, tmp_path / "w.safetensors")
    assert lines[0].endswith("tensors, without head.bias, head.weight.")
    assert lines[1] == "Note: the classifier (head.bias, head.weight) begins anew: 10 classes there, 4 here."
    assert torch.equal(copy_weights(made)["stem.conv.weight"], donated["stem.conv.weight"])
    assert copy_weights(made)["head.bias"].shape == (4,)


def small_bottlenecks(classes: int) -> nn.Module:
    """A network that torchvision has under other names."""
    return models.build("resnet50_v15", classes, blocks=(1, 1, 1, 1), filters=(4, 4, 4, 4))


@pytest.mark.parametrize("exclude", ["", "head.*", "fc.*", "head,fc"])
def test_torchvisions_names_of_the_classifier_are_understood(exclude: str, run: RunDir, tmp_path: Path) -> None:
    theirs = list_torchvision_names(small_bottlenecks(7))
    torch.save({theirs[name]: value for name, value in small_bottlenecks(7).state_dict().items()}, tmp_path / "w.pth")
    _, lines = begun(replace(RECIPE, model=small_bottlenecks), run, tmp_path / "w.pth", exclude=exclude)
    assert lines[0].endswith("tensors, without head.bias, head.weight.")


def test_excluding_everything_is_refused(donor: RunDir, run: RunDir) -> None:
    with pytest.raises(BadValue, match=r"--init-exclude '\*' leaves out every tensor"):
        begun(STATEFUL, run, donor.path, exclude="*")


@pytest.mark.lengthy
def test_weights_of_another_network_are_refused_and_recognised(run: RunDir, tmp_path: Path) -> None:
    save_file(models.build("resnet20_cifar_v2", 4).state_dict(), tmp_path / "w.safetensors")
    made = build_training(replace(RECIPE, model=small_resnet, init=Init(str(tmp_path / "w.safetensors"))), run)
    before = copy_weights(made)
    with pytest.raises(BadData, match="does not hold this network") as refusal:
        load_initial_weights(made.train_step)
    for fragment in ("missing there, ", "not in this network, ", "looks like resnet20_cifar_v2", "--init-exclude"):
        assert fragment in str(refusal.value)
    assert equal(copy_weights(made), before)


def test_layers_that_would_be_dropped_in_silence_are_named(run: RunDir, tmp_path: Path) -> None:
    save_file({**small_resnet(4).state_dict(), "neck.weight": torch.zeros(2)}, tmp_path / "w.safetensors")
    with pytest.raises(BadData, match=r"not in this network, 1: neck\.weight"):
        begun(replace(RECIPE, model=small_resnet), run, tmp_path / "w.safetensors")
    _, lines = begun(replace(RECIPE, model=small_resnet), run, tmp_path / "w.safetensors", exclude="neck")
    assert lines[0].endswith("tensors, without neck.weight.")


def test_a_pattern_that_means_nothing_is_an_error(donor: RunDir, run: RunDir) -> None:
    with pytest.raises(BadValue, match=r"--init-exclude 'heda\.\*' matches no name"):
        begun(STATEFUL, run, donor.path, exclude="heda.*")


@pytest.mark.usefixtures("recipes_are_mine")
def test_continuing_a_run_elsewhere_ends_where_it_would_have_ended(donor: RunDir, run: RunDir, tmp_path: Path) -> None:
    uninterrupted = train_recipe(STATEFUL, RunDir(tmp_path))
    made, lines = begun(STATEFUL, run, donor.path, schedule="continue")
    assert made.step == PER_EPOCH
    assert f"Continuing at step {PER_EPOCH}, with the optimizer's state of 5 of 5 parameters." in lines
    with made.train_batches, made.validation:
        made.fit()
    assert equal(copy_weights(made), copy_weights(uninterrupted))


@pytest.mark.usefixtures("recipes_are_mine")
def test_continuing_otherwise_than_before_warns(donor: RunDir, run: RunDir) -> None:
    recipe = change_part(change_part(STATEFUL, "data", global_batch=4), "precision", compute="bf16")
    _, lines = begun(recipe, run, donor.path, schedule="continue")
    assert any("trained with global batch 8, this run has 4" in line for line in lines)
    assert any("trained with precision fp32, this run has bf16" in line for line in lines)
    _, lines = begun(STATEFUL, run, donor.path, schedule="continue")
    assert not any("Warning" in line for line in lines)


@pytest.mark.usefixtures("recipes_are_mine")
def test_another_optimizer_begins_afresh(donor: RunDir, run: RunDir) -> None:
    made, lines = begun(replace(STATEFUL, optimizer=RmsProp()), run, donor.path, schedule="continue")
    assert "with a fresh optimizer (the earlier run's was SGD)" in lines[1]
    assert not made.optimizer.state
    _, lines = begun(STATEFUL, run, donor.path, schedule="continue", exclude="*weight,*bias")
    assert "with a fresh optimizer (the stored state belongs to none of the loaded parameters)" in lines[1]


def test_momentum_from_tensorflow_moves_the_weights_it_belongs_to(run: RunDir, tmp_path: Path) -> None:
    stored, slot = small_resnet(CLASSES), small_resnet(CLASSES)
    (links,) = list_tf_layouts(stored).values()
    held = {}
    for link in links:
        for name, value in zip(link.variables, link.to_tf(slot.state_dict()[link.tensor]), strict=True):
            held |= {f"{name}/Momentum": value} if link.trained else {}
    prefix = tf_checkpoint(tmp_path, stored, step=1)
    with Bundle(prefix) as bundle:
        write_bundle(prefix, {**{name: bundle.read(name) for name in bundle.entries}, **held})
    recipe = replace(RECIPE, model=small_resnet, optimizer=Sgd(lr=1.0, momentum=0.5))
    made, _ = begun(recipe, run, prefix, schedule="continue")
    for parameter in made.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    made.optimizer.step()
    for name, parameter in made.model.named_parameters():
        expected = stored.get_parameter(name) - 0.5 * slot.get_parameter(name)
        torch.testing.assert_close(parameter.detach(), expected.detach())


@pytest.mark.parametrize(
    ("optimizer", "slots", "expected"),
    [
        (Sgd(), {"Momentum": 3.0}, {"momentum_buffer": 3.0}),
        (Lars(), {"LARSOptimizer": 3.0}, {"momentum_buffer": 3.0}),
        (RmsProp(), {"RMSProp": 2.0, "RMSProp_1": 3.0}, {"square_average": 2.0, "momentum_buffer": 3.0}),
    ],
)
def test_slots_of_tensorflow_become_the_optimizers_state(
    optimizer: Any, slots: dict[str, float], expected: dict[str, float], run: RunDir, tmp_path: Path
) -> None:
    prefix = tf_checkpoint(tmp_path, small_resnet(CLASSES), **slots)
    recipe = replace(RECIPE, model=small_resnet, optimizer=optimizer)
    made, lines = begun(recipe, run, prefix, schedule="continue")
    assert made.step == 7
    for parameter in made.model.parameters():
        kept = made.optimizer.state[parameter]
        assert {key: float(value.mean()) for key, value in kept.items()} == expected
        # Fused optimizers walk through parameter and state as they lie in memory.
        assert all(value.stride() == parameter.stride() for value in kept.values())
    assert "does not say how it was trained" in lines[-1]
    with made.train_batches, made.validation:
        made.fit()


def test_slots_of_another_kind_are_left_out(run: RunDir, tmp_path: Path) -> None:
    prefix = tf_checkpoint(tmp_path, small_resnet(CLASSES), RMSProp=1.0)
    made, lines = begun(replace(RECIPE, model=small_resnet), run, prefix, schedule="continue")
    assert "the state there (RMSProp) is of another kind than SGD" in lines[1]
    assert not made.optimizer.state


def test_slots_beside_a_file_are_taken(run: RunDir, tmp_path: Path) -> None:
    own = small_resnet(CLASSES)
    save_file(own.state_dict(), tmp_path / "w.safetensors", {"global_step": "6", "global_batch": "8"})
    held = {f"Momentum/{name}": torch.ones_like(parameter.data) for name, parameter in own.named_parameters()}
    save_file(held, tmp_path / "w.slots.safetensors")
    recipe = replace(RECIPE, model=small_resnet)
    _, lines = begun(recipe, run, tmp_path / "w.safetensors", schedule="continue", exclude="head")
    count = len(list(own.parameters()))
    assert f"state of {count - 2} of {count} parameters" in lines[1]
    assert not any("Warning" in line for line in lines)


@pytest.mark.parametrize(
    ("metadata", "reason"), [({}, "does not say after which step"), ({"global_step": "10"}, "ends after 10")]
)
def test_a_step_that_cannot_be_continued_from_is_refused(
    metadata: dict[str, str], reason: str, run: RunDir, tmp_path: Path
) -> None:
    save_file(build_plain_network(CLASSES).state_dict(), tmp_path / "w.safetensors", metadata)
    with pytest.raises((BadData, BadValue), match=reason):
        begun(RECIPE, run, tmp_path / "w.safetensors", schedule="continue")


# In a session


def conduct(recipe: Recipe, run: Path) -> None:
    session.run_training(
        session.TrainingRequest(LoadedRecipe("mine", recipe, "", None), RunDir(run), None, "cpu", "auto", "test")
    )


def test_a_resumed_run_does_not_read_the_weights_again(donor: RunDir, tmp_path: Path) -> None:
    recipe = replace(STATEFUL, init=Init(str(donor.path), exclude="5", freeze="0"))
    run = tmp_path / "tuned"
    conduct(replace(recipe, steps=3), run)
    record = json.loads((run / "recipe.json").read_text())["recipe"]["init"]
    assert record == {"is": "Init", "source": str(donor.path), "exclude": "5", "freeze": "0", "schedule": "restart"}
    with pytest.raises(BadRun, match=r"begun with init\.freeze=0, not "):
        conduct(replace(recipe, steps=6, init=replace(recipe.init, freeze="")), run)
    shutil.rmtree(donor.path)
    conduct(replace(recipe, steps=6), run)
    assert json.loads((run / "summary.json").read_text())["steps"] == 6


def test_weights_that_do_not_fit_leave_no_run_behind(donor: RunDir, tmp_path: Path) -> None:
    with pytest.raises(BadData, match="does not hold this network"):
        conduct(replace(RECIPE, init=Init(str(donor.path))), tmp_path / "tuned")
    assert not (tmp_path / "tuned").exists()


def test_a_run_from_before_there_was_init_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "old"
    conduct(replace(RECIPE, steps=3), run)
    record = json.loads((run / "recipe.json").read_text())
    del record["recipe"]["init"]
    (run / "recipe.json").write_text(json.dumps(record))
    conduct(replace(RECIPE, steps=6), run)
    assert json.loads((run / "summary.json").read_text())["steps"] == 6


def test_the_report_has_the_names_of_the_new_data(donor: RunDir, tmp_path: Path) -> None:
    conduct(replace(STATEFUL, steps=PER_EPOCH, init=Init(str(donor.path), exclude="5")), tmp_path / "tuned")
    assert "grey" in (tmp_path / "tuned" / "report.html").read_text()


def test_averages_beside_the_weights_are_mentioned(run: RunDir, tmp_path: Path) -> None:
    state = build_normed_network(CLASSES).state_dict()
    torch.save({"state_dict": state, "state_dict_ema": state}, tmp_path / "both.pth")
    _, lines = begun(STATEFUL, run, tmp_path / "both.pth")
    assert any("averaged weights, too, under 'state_dict_ema'" in line for line in lines)
    torch.save({"state_dict": state}, tmp_path / "alone.pth")
    _, lines = begun(STATEFUL, run, tmp_path / "alone.pth")
    assert not any("averaged" in line for line in lines)
