"""State of a run after a step: taken for a checkpoint, restored from one, or sent from rank 0 to the other ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from viaduct.devices.base import Device
from viaduct.errors import BadRun
from viaduct.training.checkpoint import Snapshot, copy_to_host, load_model
from viaduct.training.progress import Stopwatch
from viaduct.training.random_generators import read_generator_states, restore_generator_states, seed_new_rank
from viaduct.training.step import TrainingStep


class RunState:
    """Takes and restores snapshots of the training step's objects, the stopwatch and the random states."""

    def __init__(self, step: TrainingStep, stopwatch: Stopwatch, device: Device) -> None:
        self.computation, self.model, self.optimizer = step.computation, step.computation.master, step.optimizer
        self.scale, self.ema, self.progress, self.parallel = step.scale, step.ema, step.progress, step.parallel
        self.stopwatch, self.device = stopwatch, device
        self._random_states_of_others: list[dict[str, Any]] = []  # of the ranks 1, 2 … that wrote the checkpoint

    def take_snapshot(self) -> Snapshot:
        """Return a snapshot with full tensors on rank 0. All ranks call it."""
        self.computation.gather_statistics()
        averages = self.ema.build_state_dict(self.model) if self.ema else None
        others = self.parallel.group.gather(read_generator_states(self.device))[1:]
        state = self.read_state() | {"random_of_others": others}
        return self.parallel.gather_full_tensors(Snapshot(self.model.state_dict(), state, averages))

    def read_state(self) -> dict[str, Any]:
        """Return everything but weights and averaged weights, as this rank has it."""
        recipe = self.progress.recipe
        return {
            **self.progress.get_state(),
            "optimizer": self.optimizer.state_dict(),
            "scale": self.scale.get_state(),
            "ema_updates": self.ema.updates if self.ema else 0,
            "random": read_generator_states(self.device),
            "seconds": dict(self.stopwatch.seconds),
            # For readers of the checkpoint; a resumed run computes it from the step.
            "position": {"seed": recipe.seed, "samples": self.progress.step * recipe.data.global_batch},
        }

    def restore(self, snapshot: Snapshot, source: Path) -> None:
        """Continue from a snapshot with full tensors; error messages name `source`, the checkpoint."""
        snapshot = self.parallel.take_rows(snapshot)
        state = snapshot.state
        load_model(self.model, snapshot.model, source)
        try:
            self.optimizer.load_state_dict(state["optimizer"])
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise BadRun(f"{source} does not fit this optimizer: {error}") from None
        self.progress.restore(state)
        self.stopwatch.seconds = state["seconds"]
        self.scale.restore(state["scale"])
        if self.ema and snapshot.averages is not None:
            self.ema.restore(snapshot.averages, state["ema_updates"])
        self.computation.publish_weights()
        self.computation.publish_statistics()
        self.restore_random_states(state)

    def restore_random_states(self, state: dict[str, Any]) -> None:
        """Restore this rank's random states; a rank that did not exist when they were saved gets a seed of its own."""
        self._random_states_of_others = state.get("random_of_others", [])
        states = [state["random"], *self._random_states_of_others]
        rank = self.parallel.group.rank
        if rank < len(states):
            restore_generator_states(states[rank], self.device)
        else:
            seed_new_rank(self.progress.recipe.seed, self.progress.step, rank)

    def broadcast(self, source: Path) -> None:
        """Restore rank 0's state on all other ranks: only rank 0 has read the checkpoint. All ranks call it."""
        group = self.parallel.group
        if group.ranks == 1:
            return
        state = self.read_state() | {"random_of_others": self._random_states_of_others}
        averages = copy_to_host(self.ema.build_state_dict(self.model)) if self.ema else None
        received = self.parallel.broadcast(Snapshot(copy_to_host(self.model.state_dict()), state, averages))
        if not group.is_rank_zero:
            self.restore(received, source)
