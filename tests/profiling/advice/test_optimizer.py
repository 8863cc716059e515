from profiling.advice.made_profiles import FixedTrials, make_profile, make_steps, multiply
from viaduct.profiling.advice import advise
from viaduct.profiling.record import Advice, Operator, Profile

UPDATE = Operator(
    "aten::addcdiv_", 2, 900.0, 900.0, phase="update", shapes="[512, 1024], [512, 1024]", location="t.py:9"
)
STEPS = make_steps(compute_us=6900.0, update_us=3000.0)


def find(profile: Profile, trials: FixedTrials | None = None) -> Advice | None:
    return next((advice for advice in advise(profile, trials) if advice.name == "optimizer"), None)


def test_nothing_is_advised_without_a_measurement() -> None:
    profile = make_profile(STEPS, operators=[multiply(6500.0), UPDATE])
    assert find(profile) is None
    assert find(profile, FixedTrials(None)) is None


def test_a_fused_update_that_is_no_faster_is_not_advised() -> None:
    assert find(make_profile(STEPS, operators=[multiply(6500.0), UPDATE]), FixedTrials((100.0, 95.0))) is None


def test_the_gain_is_the_measured_share_of_the_tail() -> None:
    trials = FixedTrials((300.0, 100.0))
    advice = find(make_profile(STEPS, operators=[multiply(6500.0), UPDATE]), trials)
    assert advice is not None
    assert trials.asked == [("Adam", [512 * 1024, 512 * 1024])]
    assert round(advice.gain_us or 0) == 2000
    assert advice.locations == ("t.py:9",)
