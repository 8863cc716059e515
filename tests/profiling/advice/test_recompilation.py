from profiling.advice.made_profiles import advise, make_profile, make_steps
from viaduct.profiling.record import Advice, Profile


def find(profile: Profile) -> Advice | None:
    return next((advice for advice in advise(profile) if advice.name == "recompilation"), None)


def test_steps_that_compile_nothing_are_no_fault() -> None:
    assert find(make_profile()) is None


def test_one_smaller_batch_is_no_fault() -> None:
    steps = [*make_steps(9), *make_steps(1, compute_us=99_000.0, recompiled=1, compile_us=90_000.0)]
    assert find(make_profile(steps)) is None


def test_graphs_and_time_per_step_are_named_and_the_reason() -> None:
    steps = make_steps(compute_us=49_000.0, recompiled=2, compile_us=40_000.0)
    notes = ("compiled again: train.py:3 forward: tensor 'x' size mismatch at index 0", "something else")
    advice = find(make_profile(steps, facts={"notes": notes}))
    assert advice is not None
    assert "20 graphs in 10 steps: 40 ms of each step" in advice.title
    assert advice.gain_us == 40_000.0
    assert notes[0] in advice.evidence
    assert notes[1] not in advice.evidence
