"""Choice of the operator that is blamed."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.scenes import Array, Story
from viaduct.comparison.explain import explain


def off(values: Array, by: float = 0.3) -> Array:
    """The same with noise of that relative size."""
    noise = np.random.default_rng(9).standard_normal(values.shape)
    return (values + by * np.std(values) * noise).astype(values.dtype)


def chain(story: Story, *errors: float, inputs: bool = True) -> list[str]:
    """Operators in a row, each with the error of its output; inputs are the outputs before."""
    names = [f"op{number}" for number in range(len(errors))]
    values = [story.normal(4, 8, 6, 6) for _ in range(len(errors) + 1)]
    before = 0.0
    for number, (name, error) in enumerate(zip(names, errors, strict=True)):
        if inputs:
            given = values[number]
            story.tell(name, off(given, before) if before else given, given, "input", order=number)
        made = values[number + 1]
        story.tell(name, off(made, error) if error else made, made, order=number)
        before = error
    return names


def test_the_first_bad_operator_with_good_inputs_is_named_and_the_rest_follow() -> None:
    story = Story()
    chain(story, 0, 0, 0.2, 0.3, 0.5)
    judgement = story.judged()
    assert [origin.op for origin in judgement.origins] == ["op2"]
    follows = {row.tensor_index: row.follows_from for row in judgement.rows if row.result == "bad"}
    assert follows == {
        "op2:output:0": "",
        "op3:input:0": "op2",
        "op3:output:0": "op2",
        "op4:input:0": "op2",
        "op4:output:0": "op2",
    }


def test_inputs_that_could_not_be_compared_are_not_said_to_agree() -> None:
    story = Story()
    x, result = story.normal(4, 8), story.normal(4, 8)
    story.tell("op", None, x, "input", order=0)
    story.tell("op", x, x, "input", index=1, order=0)
    story.tell("op", off(result), result, order=0)
    assert story.judged().origins[0].why.endswith("none of its inputs is bad; 1 of 2 could not be compared")


def test_without_inputs_the_edges_tell_what_an_operator_was_given() -> None:
    story = Story()
    chain(story, 0, 0.2, 0.2, inputs=False)
    assert story.judged({"op1": ["op0"], "op2": ["op1"]}).origins[0].op == "op1"


def test_without_inputs_and_edges_the_first_bad_row_is_named() -> None:
    story = Story()
    chain(story, 0, 0, 0.2, 0.2, inputs=False)
    assert story.judged().origins[0].op == "op2"


def test_a_module_whose_parts_are_all_good_is_itself_the_origin() -> None:
    story = Story()
    x, inner, result = (story.normal(2, 8, 6, 6) for _ in range(3))
    story.tell("block.conv", x, x, "input", order=1)
    story.tell("block.conv", inner, inner, order=1)
    story.tell("block", x, x, "input", order=2)
    story.tell("block", off(result), result, order=2)
    assert story.judged().origins[0].op == "block"


def test_a_module_with_a_bad_part_is_not_blamed_for_it() -> None:
    story = Story()
    x, inner = story.normal(2, 8, 6, 6), story.normal(2, 8, 6, 6)
    story.tell("block.conv", x, x, "input", order=1)
    story.tell("block.conv", off(inner), inner, order=1)
    story.tell("block", x, x, "input", order=2)
    story.tell("block", off(inner), inner, order=2)
    assert [origin.op for origin in story.judged().origins] == ["block.conv"]


def test_what_goes_wrong_between_two_modules_is_put_to_the_module_that_holds_them() -> None:
    story = Story()
    x, first, between, last = (story.normal(2, 8, 6, 6) for _ in range(4))
    story.tell("block.a", x, x, "input", order=1)
    story.tell("block.a", first, first, order=1)
    story.tell("block.b", off(between), between, "input", order=2)
    story.tell("block.b", off(last), last, order=2)
    story.tell("block", x, x, "input", order=3)
    story.tell("block", off(last), last, order=3)
    origin = story.judged().origins[0]
    assert (origin.op, origin.kind) == ("block", "operator")
    assert "just before block.b" in origin.why


def test_a_weight_that_differs_before_anything_ran_is_the_origin() -> None:
    story = Story()
    weight = story.normal(8, 8, 3, 3)
    story.tell("conv", off(weight), weight, "parameter", parameter="weight")
    x, y = story.normal(2, 8, 6, 6), story.normal(2, 8, 6, 6)
    story.tell("conv", x, x, "input", order=5)
    story.tell("conv", off(y), y, order=5)
    judgement = story.judged()
    assert (judgement.origins[0].op, judgement.origins[0].kind) == ("conv", "parameter")
    assert judgement.rows[-1].follows_from == ""  # it is the origin's own output


def test_images_that_differ_point_to_the_input_pipeline() -> None:
    story = Story()
    x, y = story.normal(2, 3, 8, 8), story.normal(2, 8, 8, 8)
    story.tell("stem.conv", off(x), x, "input", order=1)
    story.tell("stem.conv", off(y), y, order=1)
    story.tell("network", off(x), x, "input", order=2)
    story.tell("network", off(y), y, order=2)
    origin = story.judged().origins[0]
    assert (origin.op, origin.kind) == ("network", "input")
    assert "input pipeline" in origin.why


def test_rounding_that_grows_from_layer_to_layer_has_no_origin() -> None:
    story = Story()
    chain(story, *(2e-6 * 1.7**layer for layer in range(14)))
    explanation = story.explained()
    assert any(row.result == "bad" for row in story.rows)
    assert explanation.origin is None
    assert explanation.cause == "accumulated rounding"


def test_a_jump_within_growing_rounding_is_still_an_origin() -> None:
    story = Story()
    chain(story, 2e-6, 4e-6, 8e-6, 2e-2, 4e-2)
    assert story.judged().origins[0].op == "op3"


def test_a_small_error_that_grows_is_traced_to_where_it_was_made() -> None:
    story = Story()
    chain(story, 0, 5e-5, 9e-5, 3e-4, 2e-3)
    origin = story.judged().origins[0]
    assert origin.op == "op1"
    assert "beyond rounding" in origin.why


def test_a_norm_whose_mean_is_nearly_nothing_is_not_blamed() -> None:
    story = Story()
    x = story.normal(16, 32, 8, 8)
    norm = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)
    half = (norm.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)  # bfloat16, cut off
    assert abs(float(half.mean()) - float(norm.mean())) > 2 * abs(float(norm.mean()))  # the means are apart
    story.tell("norm", (half.view(np.uint32) >> 16).astype(np.uint16), norm, dtypes=("bfloat16", "float32"))
    assert story.judged().origins == ()


def test_two_faults_on_different_branches_are_both_origins() -> None:
    story = Story()
    x, left, right, joined = (story.normal(2, 8, 6, 6) for _ in range(4))
    for order, (name, made) in enumerate({"a": left, "b": right}.items()):
        story.tell(name, x, x, "input", order=order)
        story.tell(name, off(made), made, order=order)
    story.tell("join", off(left), left, "input", order=2)
    story.tell("join", off(joined), joined, order=2)
    judgement = story.judged({"join": ["a", "b"]})
    assert [origin.op for origin in judgement.origins] == ["a", "b"]
    assert judgement.rows[-1].follows_from == "a"


def test_a_good_forward_pass_with_a_bad_gradient_points_to_the_loss() -> None:
    story = Story()
    x, logits, gradient = story.normal(4, 16), story.normal(4, 10), story.normal(4, 10)
    story.tell("head", x, x, "input", order=1)
    story.tell("head", logits, logits, order=1)
    story.tell("head", off(gradient), gradient, "grad_output", order=5)
    story.tell("conv", off(x), x, "grad_output", order=6)
    origin = story.judged().origins[0]
    assert (origin.op, origin.kind) == ("head", "input")
    assert "labels or loss" in origin.why


def test_an_operator_that_hands_on_a_bad_gradient_is_named() -> None:
    story = Story()
    gradients = [story.normal(4, 16) for _ in range(3)]
    story.tell("head", gradients[0], gradients[0], "grad_output", order=5)
    story.tell("head", gradients[1], gradients[1], "grad_input", order=5)
    story.tell("conv", gradients[1], gradients[1], "grad_output", order=6)
    story.tell("conv", off(gradients[2]), gradients[2], "grad_input", order=6)
    assert story.judged().origins[0].op == "conv"


def test_the_first_step_that_is_bad_explains_the_later_ones() -> None:
    story = Story()
    weight = story.normal(8, 8)
    story.tell("a", weight, weight, "parameter", step=0, parameter="weight")
    story.tell("a", off(weight, 0.1), weight, "parameter", step=1, parameter="weight")
    story.tell("b", off(weight, 0.1), weight, "parameter", step=2, parameter="weight")
    judgement = story.judged()
    assert [(origin.op, origin.step) for origin in judgement.origins] == [("a", 1)]
    assert judgement.rows[2].follows_from == "a"


def test_a_refused_input_counts_neither_as_good_nor_as_bad() -> None:
    story = Story()
    x, y = story.normal(2, 8), story.normal(2, 8)
    story.tell("op", None, x, "input", order=1)
    story.tell("op", off(y), y, order=1)
    judgement = story.judged()
    assert judgement.origins[0].op == "op"
    assert judgement.rows[0].result == "refused"


def test_of_an_operator_whose_output_was_not_dumped_the_reader_s_input_tells() -> None:
    story = Story()
    x, y, z = story.normal(2, 8, 6, 6), story.normal(2, 8, 6, 6), story.normal(2, 8, 6, 6)
    story.tell("a", x, x, "input", order=1)
    story.tell("b", off(y), y, "input", order=2)
    story.tell("c", off(z), z, "input", order=3)
    assert story.judged({"b": ["a"], "c": ["b"]}).origins[0].op == "a"


def test_an_inserted_operator_without_a_partner_is_named_when_what_it_feeds_is_bad() -> None:
    story = Story()
    x, y = story.normal(2, 8, 6, 6), story.normal(2, 8, 6, 6)
    story.tell("norm", x, x, order=1)
    story.tell("dropout", x, None, order=2)
    story.tell("relu", off(x), x, "input", order=3)
    story.tell("relu", off(y), y, order=3)
    assert story.judged({"dropout": ["norm"], "relu": ["dropout"]}).origins[0].op == "dropout"


def test_a_weight_s_gradient_that_cancels_is_no_origin() -> None:
    story = Story()
    given, handed, gradient = story.normal(4, 16), story.normal(4, 16), story.normal(16)
    story.tell("norm", off(given, 1e-5), given, "grad_output", order=5)
    story.tell("norm", off(handed, 1e-5), handed, "grad_input", order=5)
    story.tell("norm", off(gradient, 3e-4), gradient, "gradient", order=6, parameter="weight")
    assert story.judged().origins == ()
    story.tell("norm", off(gradient, 0.2), gradient, "gradient", index=1, order=6, parameter="bias")
    assert story.judged().origins[0].op == "norm"


def test_gradients_that_drift_slowly_have_no_origin() -> None:
    story = Story()
    values = [story.normal(4, 16) for _ in range(9)]
    for layer in range(8):
        error = 2e-5 * 1.5**layer
        story.tell(f"op{layer}", off(values[layer], error), values[layer], "grad_output", order=layer)
        story.tell(f"op{layer}", off(values[layer + 1], 1.5 * error), values[layer + 1], "grad_input", order=layer)
    assert any(row.result == "bad" for row in story.rows)
    assert story.judged().origins == ()


def test_a_gradient_that_goes_wrong_between_two_operators_is_not_put_to_the_loss() -> None:
    story = Story()
    first, second = story.normal(4, 16), story.normal(4, 16)
    story.tell("head", first, first, "grad_output", order=5)
    story.tell("head", second, second, "grad_input", order=5)
    story.tell("conv", off(second), second, "grad_output", order=6)
    origin = story.judged().origins[0]
    assert (origin.op, origin.kind) == ("conv", "operator")
    assert "loss" not in origin.why


@pytest.mark.parametrize(("forward", "origins"), [(8e-5, 0), (0.0, 1)])
def test_a_relu_s_kink_explains_a_gradient_only_where_the_forward_pass_differs(forward: float, origins: int) -> None:
    story = Story()
    before, out, first, second = (story.normal(64, 64) for _ in range(4))
    story.tell("norm", off(before, forward), before, "output", order=1)
    story.tell("head", off(out, forward), out, "output", order=2)
    story.tell("head", first, first, "grad_output", order=5)
    story.tell("head", second, second, "grad_input", order=5)
    story.tell("norm", off(second, 5.5e-3), second, "grad_output", order=6)
    judgement = story.judged({"head": ["norm"]})
    assert len(judgement.origins) == origins
    assert (judgement.growth is None) == bool(origins)


@pytest.mark.parametrize(("wrong", "apart"), [(10, True), (1, False)])
def test_weights_that_training_has_carried_apart_are_not_blamed_but_a_single_one_is(wrong: int, apart: bool) -> None:
    story = Story()
    for weight in range(10):
        values = story.normal(16)
        story.tell(f"op{weight}", values, values, "parameter", parameter="weight", step=0)
        other = off(values, 0.05) if weight < wrong else values
        story.tell(f"op{weight}", other, values, "parameter", parameter="weight", step=5)
    judgement = story.judged()
    assert (judgement.weight_drift is not None) == apart
    assert bool(judgement.origins) != apart
    if apart:
        said = explain(judgement, {})
        assert "drift apart over steps 0 to 5" in said.headline
        assert "--dump-steps 0-5" in said.causes[0].advice


def drifting(story: Story, step: int = 0) -> None:
    """Rounding that grows until it is bad, in one step."""
    error = 5e-7
    for number in range(14):
        x, y = story.normal(4, 8, 6, 6), story.normal(4, 8, 6, 6)
        story.tell(f"op{number}", off(x, error), x, "input", order=number, step=step)
        error *= 1.8
        story.tell(f"op{number}", off(y, error), y, order=number, step=step)


def test_after_a_step_that_only_drifts_no_later_step_is_blamed() -> None:
    story = Story()
    drifting(story)
    weight = story.normal(8, 8)
    story.tell("op0", off(weight), weight, "parameter", step=1, parameter="weight")
    judgement = story.judged()
    assert any(row.result == "bad" for row in judgement.rows if row.stored.step == 0)
    assert judgement.origins == ()
    assert judgement.growth is not None
    assert not any(row.follows_from for row in judgement.rows)


@pytest.mark.parametrize(
    ("gradient", "said"),
    [("both", "its gradient and the weight itself agree"), ("right", "no gradient on the left"), ("", "not dumped")],
)
def test_of_a_bad_update_it_is_told_what_is_known_of_its_gradient(gradient: str, said: str) -> None:
    story = Story()
    weight, slope = story.normal(8, 8), story.normal(8, 8)
    story.tell("fc", weight, weight, "parameter", parameter="weight")
    if gradient:
        story.tell("fc", slope if gradient == "both" else None, slope, "gradient", parameter="weight")
    story.tell("fc", np.zeros_like(slope), slope, "update", parameter="weight")
    origin = story.judged().origins[0]
    assert (origin.op, origin.kind) == ("fc", "parameter")
    assert said in origin.why


def test_labels_that_differ_point_to_what_enters_the_loss_and_not_to_the_network() -> None:
    story = Story()
    x, y = story.normal(4, 3), story.normal(4, 5)
    labels = np.array([0, 3, 1, 2])
    for order, op in ((1, "fc"), (2, "network")):
        story.tell(op, x, x, "input", order=order)
        story.tell(op, y, y, order=order)
    story.tell("CrossEntropyLoss", y, y, "input", order=3, op_type="CrossEntropyLoss")
    story.tell("CrossEntropyLoss", labels + 1, labels, "input", index=1, order=3, op_type="CrossEntropyLoss")
    explanation = story.explained({"fc": [], "network": ["fc"], "CrossEntropyLoss": ["fc"]})
    assert explanation.origin is not None
    assert (explanation.origin.op, explanation.origin.kind) == ("CrossEntropyLoss", "input")
    assert "input pipeline" in explanation.origin.why
    assert explanation.cause == "label offset"
