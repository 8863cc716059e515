"""Step counter of a TensorFlow 1 script, through the stand-in's session observers.

In the rehearsal's record folder, observed/rank-0/ holds steps.jsonl (without inputs and learning rates), losses.npz,
gradients.npz and weights.npz as `observe.py` describes them, and with `plan.inspect` evaluations.jsonl and facts.json.
Arrays are named after the graph's variables. profiling_points.json names the operators with which the forward pass
begins and the backward pass ends.
"""

from __future__ import annotations

import atexit
import json
from pathlib import Path

from viaduct.rehearsal.inspection import describe_ranks, write_facts
from viaduct.rehearsal.observe import EVALUATIONS_FILE, find_rank_folder, save_arrays, write_steps
from viaduct.rehearsal.plan import Plan, current_rank
from viaduct.rehearsal.progress import Progress
from viaduct.rehearsal.step_at import StepEndTracer, parse_step_end
from viaduct.rehearsal.tf1_stage import collectives, inspection, profiling_points, sessions, watch


class GraphStepCounter:
    """Step counter of a graph, the counterpart of `counting.TorchStepCounter`."""

    def __init__(self, plan: Plan, started_by_viaduct: bool) -> None:
        self.plan = plan
        if plan.perturb:
            sessions.observers.append(inspection.Perturbation())
        self.inspection = inspection.GraphInspection() if plan.inspect else None
        self.evaluations = inspection.Evaluations()
        if self.inspection is not None:
            sessions.observers += [self.inspection, self.evaluations]
        self.profiling_points = profiling_points.PointFinder()
        sessions.observers.append(self.profiling_points)
        self.script_watch = watch.start_watching(steps=plan.steps or None)
        if plan.step_at:
            self.script_watch.uses_step_at = True  # steps end where --step-at says, not with the session's updates
            StepEndTracer(parse_step_end(plan.step_at), self.script_watch.on_step_end).start()
        if not started_by_viaduct:
            atexit.register(self.finish, False)

    @property
    def step_count(self) -> int:
        return self.script_watch.steps

    @property
    def stop_requested_at(self) -> float | None:
        return self.script_watch.stop_requested_at

    def finish(self, ran_to_end: bool) -> None:
        """Write the observations; report sessions that a script did not close although it ran to its end."""
        self.script_watch.store_last_variables()
        if ran_to_end:  # a script that was stopped or has failed could not close its sessions
            sessions.report_open_sessions()
        if not self.step_count:
            return
        Progress(self.plan.record_folder, "steps").note(rank=current_rank(), steps=self.step_count)
        if current_rank() == 0:
            self.profiling_points.write(Path(self.plan.record_folder))
        self.write_observations()

    def write_observations(self) -> None:
        """Write losses, gradients, weights and facts of this rank, if a step was taken."""
        if not self.step_count or not self.plan.observe:
            return
        folder = find_rank_folder(self.plan.record_folder, current_rank())
        folder.mkdir(parents=True, exist_ok=True)
        steps = [
            {"step": step, "losses": [] if loss is None else [loss], "lr": [], "at": at}
            for step, (loss, at) in enumerate(zip(self.script_watch.losses, self.script_watch.end_times, strict=True))
        ]
        write_steps(folder, steps)
        save_arrays(folder / "gradients.npz", self.script_watch.first_gradients)
        save_arrays(folder / "weights.npz", self.script_watch.last_variables)
        if self.inspection is not None:
            lines = [json.dumps(fingerprint) + "\n" for fingerprint in self.evaluations.fingerprints]
            (folder / EVALUATIONS_FILE).write_text("".join(lines), encoding="utf-8")
            write_facts(folder, [*self.inspection.facts, describe_ranks(together=collectives.has_exchanged())])
