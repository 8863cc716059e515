"""Trying an advice on a recipe; the profiles are made up, but for the last test."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from viaduct.errors import BadRun
from viaduct.profiling.collector import Plan
from viaduct.profiling.record import Advice, Facts, Profile, Step
from viaduct.recipes import load
from viaduct.recipes._fields import override
from viaduct.training import profile_apply
from viaduct.training.profile_apply import AppliedAdvice, apply_advice, choose_advice
from viaduct.training.profiled import RecipeJob

TASTER = load("shapes_taster")
ORDER = RecipeJob(TASTER, Path("prof"), Plan(1, 3, 2))


def make_advice(**changes: str) -> Advice:
    fields = {name.replace("__", "."): value for name, value in changes.items()}
    return Advice("61 %", "more workers", ("20 ms",), 5000.0, "measured", changes=fields, name="loader")


def pretend(monkeypatch: pytest.MonkeyPatch, times_us: Sequence[float]) -> list[RecipeJob]:
    """Let each profile take the next of these times; return what was asked for."""
    asked: list[RecipeJob] = []

    def profile_recipe(job: RecipeJob, ranks: int) -> Profile:
        asked.append(job)
        time = times_us[len(asked) - 1]
        return Profile(Facts("r", "recipe"), steps=[Step(0, 1, 0.0, 1.0, time, 0.0)] if time else [])

    monkeypatch.setattr(profile_apply, "profile_recipe", profile_recipe)
    return asked


def test_advice_without_changes_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pretend(monkeypatch, [])
    assert apply_advice([make_advice()], ORDER) is None
    assert asked == []


def test_what_the_recipe_has_already_is_not_tried() -> None:
    advice = make_advice(data__workers="1", sink="auto")
    assert choose_advice([advice], TASTER.recipe) is None
    unloaded = override(TASTER.recipe, "data.workers", "0")
    assert choose_advice([advice], unloaded) == (advice, {"data.workers": "1"})


def test_a_field_that_the_recipe_does_not_have_is_not_tried() -> None:
    assert choose_advice([make_advice(data__no_such_field="1")], TASTER.recipe) is None


def test_both_variants_take_turns_with_the_users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pretend(monkeypatch, [10.0, 6.0, 6.0, 10.0, 10.0, 6.0])
    advice = [make_advice(), make_advice(data__workers="2")]
    applied = apply_advice(advice, replace(ORDER, settings=[("seed", "3")]))
    assert applied is not None
    settings = [job.settings for job in asked]
    plain, changed = [("seed", "3")], [("seed", "3"), ("data.workers", "2")]
    assert settings == [plain, changed, changed, plain, plain, changed]
    assert {job.plan for job in asked} == {Plan(1, 3, 0)}
    assert applied.is_gain
    assert "data.workers=2: measured gain: 4 µs a step, 40.0% " in applied.describe()


def test_a_change_that_is_slower_or_only_sometimes_faster_is_no_gain() -> None:
    slower = AppliedAdvice(make_advice(), {"sink": "4"}, [10.0, 10.0, 10.0], [11.0, 12.0, 11.0])
    mixed = AppliedAdvice(make_advice(), {"sink": "4"}, [10.0, 10.0, 10.0], [8.0, 12.0, 8.0])
    noise = AppliedAdvice(make_advice(), {"sink": "4"}, [10.0, 10.0, 10.0], [9.9, 9.9, 9.9])
    for applied in (slower, mixed, noise):
        assert not applied.is_gain
        assert "no gain" in applied.describe()


def test_too_few_steps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, [0.0])
    with pytest.raises(BadRun, match="no regular step"):
        apply_advice([make_advice(data__workers="2")], replace(ORDER, plan=Plan(0, 1, 0)))


@pytest.mark.slow
def test_a_recipe_is_really_measured_with_and_without_the_change() -> None:
    applied = apply_advice([make_advice(data__workers="2")], replace(ORDER, plan=Plan(1, 3, 0), device="cpu"))
    assert applied is not None
    assert len(applied.before_us) == len(applied.after_us) == profile_apply.TURNS
    assert min(applied.before_us + applied.after_us) > 0
