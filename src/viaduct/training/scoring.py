"""Scores trained weights on the validation images: checkpoints of a run, or other weights with a recipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from viaduct import devices
from viaduct.data.batches import BatchStream, RankShare
from viaduct.data.source import Dataset
from viaduct.data.synthetic import SYNTHETIC, get_stored_data_path
from viaduct.errors import BadValue
from viaduct.recipes import LoadedRecipe, Recipe
from viaduct.recipes._fields import override
from viaduct.training import checkpoint
from viaduct.training.batch_norm import iterate_training_batches, recompute_statistics
from viaduct.training.distributed import ALONE, Group, join_ranks
from viaduct.training.freezing import freeze
from viaduct.training.images import load_images
from viaduct.training.metrics import evaluate
from viaduct.training.networks import build_model, describe_model, place_model
from viaduct.training.optim import build_loss
from viaduct.training.precision import Computation, describe_emulation, plan_precision
from viaduct.training.recipe_code import explain_recipe_errors
from viaduct.training.rundir import RunDir
from viaduct.training.trained_weights import Weights, choose_weights, find_weights, load_weights
from viaduct.weights.exporting import write_safetensors


def score_checkpoints(
    path: Path,
    *,
    data: Path | None,
    device: str,
    precision: str | None,
    step: int | None,
    every: bool,
    file: Path | None = None,
    recompute: int = 0,
    save: Path | None = None,
) -> list[dict[str, Any]]:
    """Return a row of scores for the newest checkpoint of a run, for that of a `step`, or for `every` undamaged one.

    Rows are in the order of steps. `file` is a recipe file that is executed instead of the run's copy. `recompute` is
    the number of training batches from which the running averages of batch norms are recomputed first; with 0 the
    stored averages are used. The weights with recomputed averages are written to `save`. All ranks must see the run's
    directory; only rank 0 gets rows.
    """
    check_saving(recompute, save, every)
    run = RunDir(path)
    record, recipe = run.read_recipe_json(), run.load_recipe(file).recipe
    if precision is not None:
        recipe = override(recipe, "precision.compute", precision)
    with join_ranks(device, recipe.parallel.hang_seconds) as group:
        chosen = group.run_on_rank_zero(lambda: choose_weights(run, recipe, step, every))
        return score_all(chosen, recipe, record, data, device, group, Recomputing(recompute, save))


def score_weights(
    path: Path,
    loaded: LoadedRecipe,
    *,
    data: Path | None,
    device: str,
    every: bool,
    ema: bool | None,
    recompute: int,
    save: Path | None,
) -> list[dict[str, Any]]:
    """Return a row of scores for weights that belong to no run; with `every`, a row for each file of a folder.

    `loaded` has the network and the preprocessing. `ema` selects the averages of the weights (True) or the weights
    (False); None selects the averages if the recipe has them and they are stored.
    """
    check_saving(recompute, save, every)
    recipe = loaded.recipe
    averages = ema if ema is not None else (None if recipe.ema else False)
    with join_ranks(device, recipe.parallel.hang_seconds) as group:
        chosen = group.run_on_rank_zero(lambda: find_weights(path, every))
        return score_all(chosen, recipe, {}, data, device, group, Recomputing(recompute, save), averages)


@dataclass(frozen=True)
class Recomputing:
    """Options of recomputing the running averages of batch norms before a checkpoint is scored."""

    batches: int = 0  # number of training batches; 0: the stored averages are used
    save: Path | None = None  # file for the weights with the new averages


def check_saving(recompute: int, save: Path | None, every: bool) -> None:
    """Raise BadValue if --save cannot be used."""
    if save is None:
        return
    if not recompute:
        raise BadValue("--save without --recompute-batch-norm: there is nothing new to save.")
    if every:
        raise BadValue("--save and --all: one file cannot hold every checkpoint.", "Name one checkpoint with --step.")
    if save.suffix != ".safetensors":
        raise BadValue(f"--save {save} must end in .safetensors.")
    if save.exists():
        raise BadValue(f"--save {save} is there already.", "Give another file.")


def score_all(
    chosen: Sequence[Weights],
    recipe: Recipe,
    record: dict[str, Any],
    data: Path | None,
    device: str,
    group: Group,
    recomputing: Recomputing,
    ema: bool | None = None,
) -> list[dict[str, Any]]:
    """Return a row of scores for each of the chosen weights, on rank 0; the other ranks return none.

    `record` is the run's recipe.json, empty for weights of no run; the data that it names are used unless `data` is
    given.
    """
    device_module, torch_device = devices.pick(device, group.local_rank)
    device_module.set_tf32(recipe.precision.tf32)
    path = data or get_stored_data_path(record)
    if path == SYNTHETIC and group.is_rank_zero:
        print("Measured on noise (--data synthetic): the figures say nothing about the network.", file=sys.stderr)
    images = load_images(recipe.data, path)
    model = place_model(build_model(recipe), torch_device)
    freeze(model, recipe.init.freeze)
    plan = plan_precision(recipe.precision, device_module)
    if (note := describe_emulation(plan, device_module)) and group.is_rank_zero:
        print(note, file=sys.stderr)
    is_compiled = recipe.mode == "graph" and not recomputing.batches
    computation = Computation(model, plan, torch_device, recipe.compile if is_compiled else "off")
    share = RankShare(group.rank, group.ranks, ranks_on_machine=group.local_ranks) if group.ranks > 1 else None
    open_batches = partial(recipe.data.open_batches, device=torch_device, seed=recipe.seed)
    with contextlib.ExitStack() as streams:
        batches = streams.enter_context(open_batches(images.validation, train=False, share=share))
        recompute = None
        if recomputing.batches:
            training = streams.enter_context(open_batches(images.train, train=True))
            recompute = partial(recompute_and_save, computation, training, recomputing, recipe, group)
        rows = [score(saved, recipe, computation, batches, images.names, group, recompute, ema) for saved in chosen]
    if not group.is_rank_zero:
        return []
    stated_epochs = [row["epoch"] for row in rows]
    for row in rows:
        row["epoch"] = find_epoch(row, recipe, images)
        row["data"] = str(path) if path else recipe.data.name
        row["batch_norm_recomputed_from_batches"] = recomputing.batches
    if stated_epochs != [row["epoch"] for row in rows]:
        print(f"Epochs are counted with the recipe's global batch of {recipe.data.global_batch:,}.", file=sys.stderr)
    return rows


def recompute_and_save(
    computation: Computation,
    stream: BatchStream,
    recomputing: Recomputing,
    recipe: Recipe,
    group: Group,
    step: int | None,
) -> None:
    """Recompute the batch norms' running averages; rank 0 writes the weights with them if `save` is given."""
    recompute_statistics(computation, iterate_training_batches(stream), recomputing.batches)
    if recomputing.save is not None and group.is_rank_zero:
        facts = {"model": describe_model(recipe), "classes": recipe.data.classes, "global_step": step or 0}
        metadata = {"format": "pt", **{name: str(fact) for name, fact in facts.items()}}
        write_safetensors(recomputing.save, checkpoint.copy_to_host(computation.master.state_dict()), metadata)
        origin = "" if step is None else f" of step {step:,}"
        print(f"{recomputing.save}: the weights{origin} with recomputed averages.", file=sys.stderr)


def score(
    saved: Weights,
    recipe: Recipe,
    computation: Computation,
    batches: BatchStream,
    names: tuple[str, ...],
    group: Group = ALONE,
    recompute: Callable[[int | None], None] | None = None,
    ema: bool | None = None,
) -> dict[str, Any]:
    """Load weights into the network and return their row of scores.

    `recompute(step)` is called before the scoring, to recompute the running averages of batch norms.
    """
    step, epoch = load_weights(saved, recipe, computation.master, group, ema)
    computation.publish_weights()
    computation.publish_statistics()
    computation.train(False)
    if recompute:
        recompute(step)
    loss = build_loss(recipe, training=False)
    with explain_recipe_errors(recipe, step=None):
        result = evaluate(computation, batches, recipe.data.classes, loss, group=group, recipe_metrics=recipe.metrics)
    assert result is not None  # it is None only for an interrupted evaluation
    return {
        "step": step,
        "epoch": epoch,
        **result.to_record(),
        "own_metrics": list(result.recipe_metrics),
        "names": list(names),
        "confusion": result.confusion,
        "checkpoint": str(saved.path),
        "checkpoint_time": saved.saved_at.strftime("%Y-%m-%d %H:%M:%S"),
    }


def find_epoch(row: dict[str, Any], recipe: Recipe, images: Dataset) -> float | None:
    """Return the epoch of a row; without one, compute it from the step and the number of training images.

    Return None if one of these is not known.
    """
    if row["epoch"] is not None or row["step"] is None or not getattr(images, "has_train", True):
        return row["epoch"]  # type: ignore[no-any-return]
    return float(row["step"]) * recipe.data.global_batch / max(1, len(images.train))
