from profiling.advice.made_profiles import advise, make_profile, make_steps
from viaduct.profiling.record import RECORDING, Advice, Profile


def find(profile: Profile) -> Advice | None:
    return next((advice for advice in advise(profile) if advice.name == "garbage"), None)


def make_table(*pauses_us: float) -> dict[str, object]:
    return {"garbage collection": {"columns": ["rank", "pause_us"], "rows": [[0, pause] for pause in pauses_us]}}


def test_short_pauses_are_no_fault() -> None:
    assert find(make_profile(tables=make_table(*[1100.0] * 4))) is None
    assert find(make_profile()) is None


def test_long_pauses_are_added_up() -> None:
    advice = find(make_profile(tables=make_table(6000.0, 4000.0)))
    assert advice is not None
    assert advice.gain_us == 1000.0
    assert "2 pauses" in advice.evidence[0]


def test_pauses_count_for_all_timed_steps_also_the_interrupted_ones() -> None:
    steps = [*make_steps(10), *make_steps(10, interrupted_by="evaluation"), *make_steps(5, interrupted_by=RECORDING)]
    advice = find(make_profile(steps, tables=make_table(14000.0)))
    assert advice is not None
    assert advice.gain_us == 700.0
    assert "in 20 timed steps" in advice.evidence[0]
