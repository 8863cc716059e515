from profiling.advice.made_profiles import FixedTimes, advise, make_profile, multiply
from viaduct.profiling.figures import MatrixProduct
from viaduct.profiling.record import Advice, Ceilings, Operator, Profile

LOW = multiply(4000.0, "bfloat16", "layers", calls=8)


def find(profile: Profile, microbenchmarks: FixedTimes | None = None) -> Advice | None:
    return next((advice for advice in advise(profile, microbenchmarks) if advice.name == "fp32_island"), None)


def test_a_network_in_float32_has_no_island() -> None:
    assert find(make_profile(operators=[multiply(9000.0)]), FixedTimes((200.0, 100.0))) is None


def test_one_low_precision_layer_in_a_float32_network_is_not_the_network() -> None:
    operators = [multiply(8000.0, "float32", calls=8), multiply(500.0, "bfloat16")]
    assert find(make_profile(operators=operators), FixedTimes((200.0, 100.0))) is None


def test_layer_norms_in_float32_are_normal() -> None:
    norm = Operator("aten::native_layer_norm", 8, 3000.0, 3000.0, phase="forward", dtypes="float32", flops=1e6)
    assert find(make_profile(operators=[LOW, norm]), FixedTimes((200.0, 100.0))) is None


def test_a_small_classifier_in_float32_is_no_fault() -> None:
    assert find(make_profile(operators=[LOW, multiply(300.0, module="head")]), FixedTimes((200.0, 100.0))) is None


def test_a_layer_that_is_no_faster_in_low_precision_is_no_fault() -> None:
    assert find(make_profile(operators=[LOW, multiply(3000.0)]), FixedTimes((100.0, 99.0))) is None


def test_float32_inputs_of_an_operator_that_autocast_converts_inside_are_no_fault() -> None:
    linear = Operator("aten::linear", 8, 5000.0, 900.0, phase="forward", shapes="[256, 512], [1024, 512]")
    outer = Operator(**{**vars(linear), "dtypes": "float32, float32"})
    assert find(make_profile(operators=[LOW, outer]), FixedTimes((200.0, 100.0))) is None


def test_the_layer_is_named_and_its_gain_measured() -> None:
    microbenchmarks = FixedTimes((400.0, 100.0))
    advice = find(make_profile(operators=[LOW, multiply(4000.0, module="blocks.3.wide")]), microbenchmarks)
    assert advice is not None
    assert "blocks.3.wide takes 40% of a step" in advice.title
    assert advice.gain_us == 3000.0
    assert microbenchmarks.asked == [(MatrixProduct(256, 512, 1024, "float32"), "bfloat16")]


def test_without_a_measurement_the_ceilings_give_the_gain() -> None:
    operators = [LOW, multiply(4000.0, module="wide")]
    advice = find(make_profile(operators=operators, ceilings=Ceilings(1e10, {"float32": 1e11, "bfloat16": 2e11})))
    assert advice is not None
    assert advice.gain_us == 2000.0
    assert "peak FLOP/s" in advice.gain_basis


def test_without_either_no_gain_is_claimed() -> None:
    advice = find(make_profile(operators=[LOW, multiply(4000.0, module="wide")]))
    assert advice is not None
    assert advice.gain_us is None
    assert "not measured" in advice.gain_basis


def test_no_more_is_promised_than_forward_and_backward_take() -> None:
    operators = [LOW, multiply(90_000.0, module="wide")]  # recorded on a machine that was busy
    advice = find(make_profile(operators=operators), FixedTimes((400.0, 100.0)))
    assert advice is not None
    assert advice.gain_us == 9000.0 * 3 / 4
    assert "recorded time" in advice.gain_basis


def test_both_low_precisions_of_a_mixed_network_are_named() -> None:
    half = multiply(500.0, "float16", "other", calls=2)
    advice = find(make_profile(operators=[LOW, half, multiply(4000.0, module="wide")]))
    assert advice is not None
    assert "10 in bfloat16 and float16 take 4.5 ms" in advice.evidence[0]
