"""Facts of a training: they describe one moment and do not change with the run."""

from __future__ import annotations

from dataclasses import replace

from training.tiny_runs import PER_EPOCH, RECIPE, build_training
from viaduct.training.facts import collect_facts
from viaduct.training.rundir import RunDir


def test_facts_stay_as_they_were_while_the_run_goes_on(run: RunDir) -> None:
    made = build_training(replace(RECIPE, epochs=1), run)
    before = collect_facts(made)
    with made.train_batches, made.validation:
        assert made.fit() == "finished"
    after = collect_facts(made)
    assert (before.step, before.score, before.is_complete) == (0, None, False)
    assert (after.step, after.steps, after.is_complete, after.evaluated_at) == (PER_EPOCH, PER_EPOCH, True, PER_EPOCH)
    assert before.seconds["training"] == 0 < after.seconds["training"]


def test_parameters_and_settings_are_those_of_the_run(run: RunDir) -> None:
    made = build_training(RECIPE, run)
    facts = collect_facts(made)
    assert facts.parameters == sum(parameter.numel() for parameter in made.model.parameters())
    assert (facts.ranks, facts.parallel, facts.layout, facts.mode) == (1, "data", "", "eager")
    assert (facts.sink_length, facts.is_sink_captured) == (0, False)
