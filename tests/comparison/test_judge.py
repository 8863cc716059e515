"""Choice of the origin, the first operator with a bad output and no bad input."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.comparison_builder import ComparisonBuilder, add_chain, add_noise
from viaduct.comparison.explain import explain


def test_the_first_bad_operator_with_good_inputs_is_named_and_the_rest_follow() -> None:
    builder = ComparisonBuilder()
    add_chain(builder, 0, 0, 0.2, 0.3, 0.5)
    judgement = builder.judge()
    assert [origin.op for origin in judgement.origins] == ["op2"]
    follows = {row.tensor_index: row.follows_from for row in judgement.rows if row.result == "bad"}
    assert follows == {
        "op2:output:0": "",
        "op3:input:0": "op2",
        "op3:output:0": "op2",
        "op4:input:0": "op2",
        "op4:output:0": "op2",
    }


def test_inputs_that_could_not_be_compared_are_not_reported_to_agree() -> None:
    builder = ComparisonBuilder()
    x, result = builder.normal(4, 8), builder.normal(4, 8)
    builder.add("op", None, x, "input", order=0)
    builder.add("op", x, x, "input", index=1, order=0)
    builder.add("op", add_noise(result), result, order=0)
    assert builder.judge().origins[0].why.endswith("none of its inputs is bad; 1 of 2 could not be compared")


def test_modules_within_a_call_that_could_not_be_compared_are_not_reported_to_agree() -> None:
    builder = ComparisonBuilder()
    x, inner, result = (builder.normal(2, 8, 6, 6) for _ in range(3))
    builder.add("block.conv", None, inner, order=1)
    builder.add("block", x, x, "input", order=2)
    builder.add("block", add_noise(result), result, order=2)
    why = builder.judge().origins[0].why
    assert why.endswith("of a module within it is bad; 1 of 2 could not be compared")


@pytest.mark.parametrize("edges", [None, {"second": ["unknown"]}])
def test_a_bad_input_in_the_middle_is_the_networks_only_if_the_dump_shows_what_feeds_it(
    edges: dict[str, list[str]] | None,
) -> None:
    builder = ComparisonBuilder()
    x, first, between, last = (builder.normal(2, 8, 6, 6) for _ in range(4))
    builder.add("first", x, x, "input", order=1)
    builder.add("first", first, first, order=1)
    builder.add("second", add_noise(between), between, "input", order=2)
    builder.add("second", add_noise(last), last, order=2)
    origin = builder.judge(edges).origins[0]
    assert origin.op == "second"
    assert (origin.kind, origin.are_inputs_known) == (("operator", False) if edges is None else ("input", True))
    assert ("input pipeline" in origin.why) is (edges is not None)


def test_without_inputs_the_edges_tell_what_an_operator_was_given() -> None:
    builder = ComparisonBuilder()
    add_chain(builder, 0, 0.2, 0.2, inputs=False)
    assert builder.judge({"op1": ["op0"], "op2": ["op1"]}).origins[0].op == "op1"


def test_without_inputs_and_edges_the_first_bad_row_is_named() -> None:
    builder = ComparisonBuilder()
    add_chain(builder, 0, 0, 0.2, 0.2, inputs=False)
    assert builder.judge().origins[0].op == "op2"


def test_a_module_whose_parts_are_all_good_is_itself_the_origin() -> None:
    builder = ComparisonBuilder()
    x, inner, result = (builder.normal(2, 8, 6, 6) for _ in range(3))
    builder.add("block.conv", x, x, "input", order=1)
    builder.add("block.conv", inner, inner, order=1)
    builder.add("block", x, x, "input", order=2)
    builder.add("block", add_noise(result), result, order=2)
    assert builder.judge().origins[0].op == "block"


def test_a_module_with_a_bad_inner_module_is_not_the_origin() -> None:
    builder = ComparisonBuilder()
    x, inner = builder.normal(2, 8, 6, 6), builder.normal(2, 8, 6, 6)
    builder.add("block.conv", x, x, "input", order=1)
    builder.add("block.conv", add_noise(inner), inner, order=1)
    builder.add("block", x, x, "input", order=2)
    builder.add("block", add_noise(inner), inner, order=2)
    assert [origin.op for origin in builder.judge().origins] == ["block.conv"]


def test_the_origin_between_two_modules_is_the_module_around_them() -> None:
    builder = ComparisonBuilder()
    x, first, between, last = (builder.normal(2, 8, 6, 6) for _ in range(4))
    builder.add("block.a", x, x, "input", order=1)
    builder.add("block.a", first, first, order=1)
    builder.add("block.b", add_noise(between), between, "input", order=2)
    builder.add("block.b", add_noise(last), last, order=2)
    builder.add("block", x, x, "input", order=3)
    builder.add("block", add_noise(last), last, order=3)
    origin = builder.judge().origins[0]
    assert (origin.op, origin.kind) == ("block", "operator")
    assert "just before block.b" in origin.why


def test_a_weight_that_differs_before_anything_ran_is_the_origin() -> None:
    builder = ComparisonBuilder()
    weight = builder.normal(8, 8, 3, 3)
    builder.add("conv", add_noise(weight), weight, "parameter", parameter="weight")
    x, y = builder.normal(2, 8, 6, 6), builder.normal(2, 8, 6, 6)
    builder.add("conv", x, x, "input", order=5)
    builder.add("conv", add_noise(y), y, order=5)
    judgement = builder.judge()
    assert (judgement.origins[0].op, judgement.origins[0].kind) == ("conv", "parameter")
    assert judgement.rows[-1].follows_from == ""  # it is the origin's own output


def test_images_that_differ_point_to_the_input_pipeline() -> None:
    builder = ComparisonBuilder()
    x, y = builder.normal(2, 3, 8, 8), builder.normal(2, 8, 8, 8)
    builder.add("stem.conv", add_noise(x), x, "input", order=1)
    builder.add("stem.conv", add_noise(y), y, order=1)
    builder.add("network", add_noise(x), x, "input", order=2)
    builder.add("network", add_noise(y), y, order=2)
    origin = builder.judge().origins[0]
    assert (origin.op, origin.kind) == ("network", "input")
    assert "input pipeline" in origin.why


def test_rounding_that_grows_from_layer_to_layer_has_no_origin() -> None:
    builder = ComparisonBuilder()
    add_chain(builder, *(2e-6 * 1.7**layer for layer in range(14)))
    explanation = builder.explain()
    assert any(row.result == "bad" for row in builder.rows)
    assert explanation.origin is None
    assert explanation.cause == "accumulated rounding"


def test_a_jump_within_growing_rounding_is_still_an_origin() -> None:
    builder = ComparisonBuilder()
    add_chain(builder, 2e-6, 4e-6, 8e-6, 2e-2, 4e-2)
    assert builder.judge().origins[0].op == "op3"


def test_a_small_error_that_grows_is_traced_to_where_it_was_made() -> None:
    builder = ComparisonBuilder()
    add_chain(builder, 0, 5e-5, 9e-5, 3e-4, 2e-3)
    origin = builder.judge().origins[0]
    assert origin.op == "op1"
    assert "beyond rounding" in origin.why


def test_a_norm_with_a_mean_near_zero_is_not_the_origin() -> None:
    builder = ComparisonBuilder()
    x = builder.normal(16, 32, 8, 8)
    norm = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)
    half = (norm.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)  # bfloat16, cut off
    assert abs(float(half.mean()) - float(norm.mean())) > 2 * abs(float(norm.mean()))  # the means are apart
    builder.add("norm", (half.view(np.uint32) >> 16).astype(np.uint16), norm, dtypes=("bfloat16", "float32"))
    assert builder.judge().origins == ()


def test_two_faults_on_different_branches_are_both_origins() -> None:
    builder = ComparisonBuilder()
    x, left, right, joined = (builder.normal(2, 8, 6, 6) for _ in range(4))
    for order, (name, made) in enumerate({"a": left, "b": right}.items()):
        builder.add(name, x, x, "input", order=order)
        builder.add(name, add_noise(made), made, order=order)
    builder.add("join", add_noise(left), left, "input", order=2)
    builder.add("join", add_noise(joined), joined, order=2)
    judgement = builder.judge({"join": ["a", "b"]})
    assert [origin.op for origin in judgement.origins] == ["a", "b"]
    assert judgement.rows[-1].follows_from == "a"


def test_a_good_forward_pass_with_a_bad_gradient_points_to_the_loss() -> None:
    builder = ComparisonBuilder()
    x, logits, gradient = builder.normal(4, 16), builder.normal(4, 10), builder.normal(4, 10)
    builder.add("head", x, x, "input", order=1)
    builder.add("head", logits, logits, order=1)
    builder.add("head", add_noise(gradient), gradient, "grad_output", order=5)
    builder.add("conv", add_noise(x), x, "grad_output", order=6)
    origin = builder.judge().origins[0]
    assert (origin.op, origin.kind) == ("head", "input")
    assert "labels or loss" in origin.why


def test_an_operator_that_returns_a_bad_gradient_is_the_origin() -> None:
    builder = ComparisonBuilder()
    gradients = [builder.normal(4, 16) for _ in range(3)]
    builder.add("head", gradients[0], gradients[0], "grad_output", order=5)
    builder.add("head", gradients[1], gradients[1], "grad_input", order=5)
    builder.add("conv", gradients[1], gradients[1], "grad_output", order=6)
    builder.add("conv", add_noise(gradients[2]), gradients[2], "grad_input", order=6)
    assert builder.judge().origins[0].op == "conv"


def test_the_first_step_that_is_bad_explains_the_later_ones() -> None:
    builder = ComparisonBuilder()
    weight = builder.normal(8, 8)
    builder.add("a", weight, weight, "parameter", step=0, parameter="weight")
    builder.add("a", add_noise(weight, 0.1), weight, "parameter", step=1, parameter="weight")
    builder.add("b", add_noise(weight, 0.1), weight, "parameter", step=2, parameter="weight")
    judgement = builder.judge()
    assert [(origin.op, origin.step) for origin in judgement.origins] == [("a", 1)]
    assert judgement.rows[2].follows_from == "a"


def test_a_refused_input_counts_neither_as_good_nor_as_bad() -> None:
    builder = ComparisonBuilder()
    x, y = builder.normal(2, 8), builder.normal(2, 8)
    builder.add("op", None, x, "input", order=1)
    builder.add("op", add_noise(y), y, order=1)
    judgement = builder.judge()
    assert judgement.origins[0].op == "op"
    assert judgement.rows[0].result == "refused"


def test_an_operator_without_a_dumped_output_is_judged_by_the_next_input() -> None:
    builder = ComparisonBuilder()
    x, y, z = builder.normal(2, 8, 6, 6), builder.normal(2, 8, 6, 6), builder.normal(2, 8, 6, 6)
    builder.add("a", x, x, "input", order=1)
    builder.add("b", add_noise(y), y, "input", order=2)
    builder.add("c", add_noise(z), z, "input", order=3)
    assert builder.judge({"b": ["a"], "c": ["b"]}).origins[0].op == "a"


@pytest.mark.parametrize("is_compared", [True, False])
def test_the_inputs_of_an_operator_without_a_dumped_output_are_known_only_if_compared(is_compared: bool) -> None:
    builder = ComparisonBuilder()
    x, y = builder.normal(2, 8, 6, 6), builder.normal(2, 8, 6, 6)
    builder.add("a", x if is_compared else None, x, "input", order=1)
    builder.add("b", add_noise(y), y, "input", order=2)
    origin = builder.judge({"b": ["a"]}).origins[0]
    assert (origin.op, origin.are_inputs_known) == ("a", is_compared)


def test_an_inserted_operator_is_the_origin_if_what_it_feeds_is_bad() -> None:
    builder = ComparisonBuilder()
    x, y = builder.normal(2, 8, 6, 6), builder.normal(2, 8, 6, 6)
    builder.add("norm", x, x, order=1)
    builder.add("dropout", x, None, order=2)
    builder.add("relu", add_noise(x), x, "input", order=3)
    builder.add("relu", add_noise(y), y, order=3)
    assert builder.judge({"dropout": ["norm"], "relu": ["dropout"]}).origins[0].op == "dropout"


def test_a_weight_s_gradient_that_cancels_is_no_origin() -> None:
    builder = ComparisonBuilder()
    given, handed, gradient = builder.normal(4, 16), builder.normal(4, 16), builder.normal(16)
    builder.add("norm", add_noise(given, 1e-5), given, "grad_output", order=5)
    builder.add("norm", add_noise(handed, 1e-5), handed, "grad_input", order=5)
    builder.add("norm", add_noise(gradient, 3e-4), gradient, "gradient", order=6, parameter="weight")
    assert builder.judge().origins == ()
    builder.add("norm", add_noise(gradient, 0.2), gradient, "gradient", index=1, order=6, parameter="bias")
    assert builder.judge().origins[0].op == "norm"


def test_gradients_that_drift_slowly_have_no_origin() -> None:
    builder = ComparisonBuilder()
    values = [builder.normal(4, 16) for _ in range(9)]
    for layer in range(8):
        error = 2e-5 * 1.5**layer
        builder.add(f"op{layer}", add_noise(values[layer], error), values[layer], "grad_output", order=layer)
        builder.add(
            f"op{layer}", add_noise(values[layer + 1], 1.5 * error), values[layer + 1], "grad_input", order=layer
        )
    assert any(row.result == "bad" for row in builder.rows)
    assert builder.judge().origins == ()


def test_the_origin_between_two_gradients_is_not_the_loss() -> None:
    builder = ComparisonBuilder()
    first, second = builder.normal(4, 16), builder.normal(4, 16)
    builder.add("head", first, first, "grad_output", order=5)
    builder.add("head", second, second, "grad_input", order=5)
    builder.add("conv", add_noise(second), second, "grad_output", order=6)
    origin = builder.judge().origins[0]
    assert (origin.op, origin.kind) == ("conv", "operator")
    assert "loss" not in origin.why
    assert origin.why.endswith("the gradients that it is computed from differ by 0 at most")


@pytest.mark.parametrize(("forward", "origins"), [(8e-5, 0), (0.0, 1)])
def test_a_relu_s_kink_explains_a_gradient_only_where_the_forward_pass_differs(forward: float, origins: int) -> None:
    builder = ComparisonBuilder()
    before, out, first, second = (builder.normal(64, 64) for _ in range(4))
    builder.add("norm", add_noise(before, forward), before, "output", order=1)
    builder.add("head", add_noise(out, forward), out, "output", order=2)
    builder.add("head", first, first, "grad_output", order=5)
    builder.add("head", second, second, "grad_input", order=5)
    builder.add("norm", add_noise(second, 5.5e-3), second, "grad_output", order=6)
    judgement = builder.judge({"head": ["norm"]})
    assert len(judgement.origins) == origins
    assert (judgement.error_range is None) == bool(origins)


@pytest.mark.parametrize(("wrong", "apart"), [(10, True), (1, False)])
def test_many_weights_that_drifted_apart_have_no_origin_but_a_single_one_has(wrong: int, apart: bool) -> None:
    builder = ComparisonBuilder()
    for weight in range(10):
        values = builder.normal(16)
        builder.add(f"op{weight}", values, values, "parameter", parameter="weight", step=0)
        other = add_noise(values, 0.05) if weight < wrong else values
        builder.add(f"op{weight}", other, values, "parameter", parameter="weight", step=5)
    judgement = builder.judge()
    assert (judgement.weight_drift is not None) == apart
    assert bool(judgement.origins) != apart
    if apart:
        output = explain(judgement, {})
        assert "drift apart over steps 0 to 5" in output.headline
        assert "--dump-steps 0-5" in output.causes[0].advice


def drifting(builder: ComparisonBuilder, step: int = 0) -> None:
    """Rounding that grows until it is bad, in one step."""
    error = 5e-7
    for number in range(14):
        x, y = builder.normal(4, 8, 6, 6), builder.normal(4, 8, 6, 6)
        builder.add(f"op{number}", add_noise(x, error), x, "input", order=number, step=step)
        error *= 1.8
        builder.add(f"op{number}", add_noise(y, error), y, order=number, step=step)


def test_after_a_step_that_only_drifts_no_later_step_has_an_origin() -> None:
    builder = ComparisonBuilder()
    drifting(builder)
    weight = builder.normal(8, 8)
    builder.add("op0", add_noise(weight), weight, "parameter", step=1, parameter="weight")
    judgement = builder.judge()
    assert any(row.result == "bad" for row in judgement.rows if row.tensor.step == 0)
    assert judgement.origins == ()
    assert judgement.error_range is not None
    assert not any(row.follows_from for row in judgement.rows)


@pytest.mark.parametrize(
    ("gradient", "message"),
    [("both", "weight itself agrees; its gradient agrees"), ("right", "no gradient on the left"), ("", "not dumped")],
)
def test_the_reason_of_a_bad_update_says_what_is_known_of_its_gradient(gradient: str, message: str) -> None:
    builder = ComparisonBuilder()
    weight, slope = builder.normal(8, 8), builder.normal(8, 8)
    builder.add("fc", weight, weight, "parameter", parameter="weight")
    if gradient:
        builder.add("fc", slope if gradient == "both" else None, slope, "gradient", parameter="weight")
    builder.add("fc", np.zeros_like(slope), slope, "update", parameter="weight")
    origin = builder.judge().origins[0]
    assert (origin.op, origin.kind) == ("fc", "parameter")
    assert message in origin.why


@pytest.mark.parametrize("weight", ["refused", "not dumped"])
def test_a_weight_that_was_not_compared_is_not_reported_to_agree_with_its_update(weight: str) -> None:
    builder = ComparisonBuilder()
    slope = builder.normal(8, 8)
    if weight == "refused":
        builder.add("fc", None, slope, "parameter", parameter="weight")
    builder.add("fc", slope, slope, "gradient", parameter="weight")
    builder.add("fc", np.zeros_like(slope), slope, "update", parameter="weight")
    expected = "not compared" if weight == "refused" else weight
    assert f"the weight itself was {expected}; its gradient agrees" in builder.judge().origins[0].why


@pytest.mark.parametrize("role", ["grad_input", "gradient"])
def test_a_gradient_that_was_given_but_not_compared_is_not_known_to_be_good(role: str) -> None:
    builder = ComparisonBuilder()
    x, slope = builder.normal(4, 8), builder.normal(4, 8)
    builder.add("fc", x, x, order=1)
    builder.add("fc", None, slope, "grad_output", order=2)
    builder.add("fc", add_noise(slope), slope, role, order=2)  # type: ignore[arg-type]
    origin = builder.judge().origins[0]
    assert (origin.op, origin.are_inputs_known) == ("fc", False)


def test_labels_that_differ_point_to_what_enters_the_loss_and_not_to_the_network() -> None:
    builder = ComparisonBuilder()
    x, y = builder.normal(4, 3), builder.normal(4, 5)
    labels = np.array([0, 3, 1, 2])
    for order, op in ((1, "fc"), (2, "network")):
        builder.add(op, x, x, "input", order=order)
        builder.add(op, y, y, order=order)
    builder.add("CrossEntropyLoss", y, y, "input", order=3, op_type="CrossEntropyLoss")
    builder.add("CrossEntropyLoss", labels + 1, labels, "input", index=1, order=3, op_type="CrossEntropyLoss")
    explanation = builder.explain({"fc": [], "network": ["fc"], "CrossEntropyLoss": ["fc"]})
    assert explanation.origin is not None
    assert (explanation.origin.op, explanation.origin.kind) == ("CrossEntropyLoss", "input")
    assert "input pipeline" in explanation.origin.why
    assert explanation.cause == "label offset"
