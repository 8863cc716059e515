"""Every cause is named when it is there, and not when it is not."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from comparison.scenes import Array, Story
from viaduct.comparison.causes import list_causes
from viaduct.comparison.grids import BFLOAT16, FLOAT16
from viaduct.comparison.tensors import Role


def convolved(x_NCHW: Array, weight: Array, stride: int = 1, pad: tuple[int, int] = (1, 1)) -> Array:
    """The plainest convolution there is: `pad` cells before, as many as needed after."""
    kernel = weight.shape[2]
    extent = -(-x_NCHW.shape[2] // stride)
    x = np.pad(x_NCHW.astype(np.float64), ((0, 0), (0, 0), (pad[0], kernel), (pad[1], kernel)))
    out = np.zeros((len(x), len(weight), extent, extent))
    for row in range(kernel):
        for column in range(kernel):
            seen = x[:, :, row : row + stride * extent : stride, column : column + stride * extent : stride]
            out += np.einsum("nchw,oc->nohw", seen, weight[:, :, row, column].astype(np.float64))
    return out.astype(np.float32)


class Layer:
    """A convolution with its input and weight told; what it gives is up to the test."""

    def __init__(self, stride: int = 1) -> None:
        self.story = Story()
        self.x, self.weight = self.story.normal(3, 8, 12, 12), self.story.normal(16, 8, 3, 3)
        self.stride = stride
        self.story.tell("conv", self.weight, self.weight, "parameter", parameter="weight", op_type="Conv2d")
        self.story.tell("conv", self.x, self.x, "input", op_type="Conv2d")

    def right(self) -> Array:
        return convolved(self.x, self.weight, self.stride)

    def blamed(self, left: Array) -> str | None:
        self.story.tell("conv", left, self.right(), op_type="Conv2d")
        return self.story.cause()


def of_output(left: Array, right: Array) -> str | None:
    story = Story()
    story.tell("op", left, right)
    return story.cause()


@pytest.fixture
def values() -> Array:
    return Story().normal(8, 16, 10, 10)


def test_every_file_is_a_cause_with_a_name() -> None:
    assert {"overflow", "layout", "padding", "dropout", "labels"} <= set(list_causes())
    for name in list_causes():
        module = __import__(f"viaduct.comparison.causes.{name}", fromlist=["NAME"])
        assert module.NAME
        assert module.find_cause.__doc__ or module.__doc__


SHAPES: list[tuple[int, ...]] = [(), (1,), (5,), (0,), (2, 0), (1, 1), (3, 4), (2, 3, 4), (2, 3, 1, 1), (2, 3, 5, 4)]
SHAPES += [(1, 2, 2, 2, 2), (1,) * 9]


@pytest.mark.parametrize("role", get_args(Role))
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool", "complex64"])
def test_no_shape_type_or_role_makes_a_cause_stumble(role: Role, dtype: str) -> None:
    for shape in SHAPES:
        for op_type in ("Conv2d", "BatchNorm2d"):
            story = Story()
            left, right = ((4 * story.normal(*shape)).astype(dtype) for _ in range(2))
            for step in (0, 1):
                story.tell("op", right, right, "parameter", parameter="weight", op_type=op_type, step=step)
                story.tell("op", right, right, "input", op_type=op_type, step=step)
            story.tell("op", left, right, role, op_type=op_type, step=1, parameter="weight")
            story.causes()  # fails where one of them did


def test_a_cause_that_stumbles_is_told_and_the_others_are_heard(values: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(scene: object) -> None:
        raise IndexError("tuple index out of range")

    monkeypatch.setattr("viaduct.comparison.causes.shuffle.find_cause", stumble)
    left = values.copy()
    left[0, 3, 2, 2] = np.inf
    story = Story()
    story.tell("op", left, values)
    explanation = story.explained()
    assert explanation.cause == "overflow"
    assert "shuffle" in explanation.notes[0]
    assert "IndexError" in explanation.notes[0]


def test_noise_from_nowhere_has_no_known_cause(values: Array) -> None:
    noise = np.random.default_rng(7).standard_normal(values.shape).astype(np.float32)
    assert of_output(values + 0.5 * noise, values) is None


def test_infinities_on_the_left_are_an_overflow(values: Array) -> None:
    left = values.copy()
    left[0, 3, 2, 2] = np.inf
    assert of_output(left, values) == "overflow"


def test_values_stuck_at_the_largest_float16_are_an_overflow(values: Array) -> None:
    right = values * 50000
    assert of_output(np.clip(right, -65504, 65504), right) == "overflow"


def test_one_rounding_to_half_precision_is_reduced_precision(values: Array) -> None:
    for grid in (FLOAT16, BFLOAT16):
        assert of_output(grid.round(values.astype(np.float64)).astype(np.float32), values) == "reduced precision"


def test_a_layer_with_rounded_inputs_is_reduced_precision() -> None:
    layer = Layer()
    rounded = [BFLOAT16.round(part.astype(np.float64)) for part in (layer.x, layer.weight)]
    assert layer.blamed(convolved(*rounded)) == "reduced precision"


def test_sums_rounded_on_the_way_are_a_half_precision_reduction(values: Array) -> None:
    story = Story()
    parts = story.normal(256, 8, 64)
    total = np.zeros((8, 64), np.float16)
    for part in parts:
        total = total + part.astype(np.float16)
    story.tell("sum", parts, parts, "input")
    story.tell("sum", total.astype(np.float32), parts.sum(0))
    assert story.cause() == "half-precision reduction"


def test_float32_sums_in_another_order_are_no_mistake() -> None:
    layer = Layer()
    jitter = 1 + 4e-7 * layer.story.draw.standard_normal(layer.right().shape)
    assert layer.blamed((layer.right().astype(np.float64) * jitter).astype(np.float32)) == "different reduction order"


@pytest.mark.parametrize("order", [(0, 1, 3, 2), (1, 0, 2, 3)])
def test_a_weight_on_its_side_is_a_wrong_layout(order: tuple[int, ...]) -> None:
    story = Story()
    weight = story.normal(8, 8, 3, 3)
    story.tell("conv", np.ascontiguousarray(weight.transpose(order)), weight, "parameter", parameter="weight")
    assert story.cause(kind="parameter") == "wrong layout"


def test_a_buffer_read_with_the_wrong_shape_is_a_wrong_layout(values: Array) -> None:
    left = values.transpose(0, 2, 3, 1).reshape(values.shape)
    story = Story()
    story.tell("op", left, values)
    cause = story.causes()[0]
    assert cause.name == "wrong layout"
    assert "NHWC" in cause.evidence


def test_a_layer_that_reads_its_kernel_mirrored_is_a_wrong_layout() -> None:
    layer = Layer()
    assert layer.blamed(convolved(layer.x, layer.weight[:, :, ::-1, ::-1])) == "wrong layout"


def test_a_layer_that_reads_its_kernel_on_its_side_is_a_wrong_layout() -> None:
    layer = Layer(stride=2)
    assert layer.blamed(convolved(layer.x, layer.weight.transpose(0, 1, 3, 2), 2)) == "wrong layout"


def test_red_and_blue_exchanged_are_swapped_channels() -> None:
    story = Story()
    images = story.normal(4, 3, 8, 8)
    story.tell("network", images[:, ::-1], images, "input")
    cause = story.causes(kind="input")[0]
    assert cause.name == "swapped channels"
    assert "RGB against BGR" in cause.evidence


def test_two_channels_of_many_are_swapped_channels_even_beside_dead_ones(values: Array) -> None:
    values[:, [4, 9]] = 0
    order = [0, 2, 1, *range(3, 16)]
    story = Story()
    story.tell("op", values[:, order], values)
    assert story.cause() == "swapped channels"
    assert "1 and 2 exchanged" in story.causes()[0].evidence


def test_examples_in_another_order_are_a_shuffle(values: Array) -> None:
    assert of_output(values[[3, 1, 0, 2, 4, 5, 7, 6]], values) == "shuffle"


def test_padding_moved_by_a_cell_is_found_at_stride_two() -> None:
    layer = Layer(stride=2)
    assert layer.blamed(convolved(layer.x, layer.weight, 2, (0, 0))) == "wrong padding"


def test_differences_along_the_border_only_are_a_wrong_padding(values: Array) -> None:
    left = values.copy()
    left[:, :, 0] += 0.3 * values[:, :, 1]
    left[:, :, :, -1] += 0.3 * values[:, :, :, 1]
    assert of_output(left, values) == "wrong padding"


def test_an_image_moved_by_a_cell_is_a_wrong_padding(values: Array) -> None:
    assert of_output(np.roll(values, 1, 3), values) == "wrong padding"


def norm_story(left_epsilon: float, right_epsilon: float, gammas: bool = True) -> Story:
    story = Story()
    x = (story.normal(4, 16, 6, 6) * np.linspace(0.05, 2, 16)[:, None, None] + 3).astype(np.float32)
    gamma = story.normal(16) if gammas else np.ones(16, np.float32)
    beta = story.normal(16) if gammas else np.zeros(16, np.float32)
    if gammas:
        story.tell("norm", gamma, gamma, "parameter", index=0, parameter="weight", op_type="BatchNorm2d")
        story.tell("norm", beta, beta, "parameter", index=1, parameter="bias", op_type="BatchNorm2d")
    mean, variance = x.mean((0, 2, 3)), x.astype(np.float64).var((0, 2, 3))
    sides = []
    for epsilon in (left_epsilon, right_epsilon):
        slope = gamma / np.sqrt(variance + epsilon)
        sides.append(((x - mean[:, None, None]) * slope[:, None, None] + beta[:, None, None]).astype(np.float32))
    story.tell("norm", x, x, "input", op_type="BatchNorm2d")
    story.tell("norm", *sides, op_type="BatchNorm2d")
    return story


def test_the_epsilons_of_both_norms_are_solved_for() -> None:
    cause = norm_story(1e-3, 1e-5).causes()[0]
    assert cause.name == "batch norm epsilon"
    assert "1.0e-03 on the left, 1.0e-05 on the right" in cause.evidence


def test_an_epsilon_is_found_without_the_parameters_too() -> None:
    assert norm_story(1e-5, 1e-3, gammas=False).cause() == "batch norm epsilon"


def test_running_against_batch_statistics_is_a_matter_of_mode() -> None:
    story = Story()
    x = story.normal(8, 16, 6, 6) * np.linspace(0.5, 3, 16, dtype=np.float32)[:, None, None]
    right = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)
    story.tell("norm", x, x, "input")
    story.tell("norm", x - 0.2, right)
    assert story.cause() == "batch norm mode"


@pytest.mark.parametrize("relu", [False, True])
def test_a_missing_operand_is_found_among_earlier_tensors(relu: bool) -> None:
    story = Story()
    branch, shortcut = story.normal(2, 8, 6, 6), story.normal(2, 8, 6, 6)
    story.tell("block.norm", branch, branch, order=1)
    story.tell("block", shortcut, shortcut, "input", order=2)
    sides = [branch, branch + shortcut]
    story.tell("block", *([np.maximum(side, 0) for side in sides] if relu else sides), order=2)
    cause = story.causes()[0]
    assert cause.name == "missing residual add"
    assert "without block:input:0" in cause.evidence or "without block.norm" in cause.evidence


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_is_told_with_its_share(values: Array, p: float) -> None:
    kept = np.random.default_rng(4).random(values.shape) >= p
    story = Story()
    story.tell("op", (values * kept / (1 - p)).astype(np.float32), values)
    assert story.cause() == "dropout"


def test_drop_path_takes_whole_examples(values: Array) -> None:
    kept = np.array([1, 0, 1, 1, 0, 1, 1, 1]).reshape(-1, 1, 1, 1)
    story = Story()
    story.tell("op", (values * kept / 0.75).astype(np.float32), values)
    assert "drop path" in story.causes()[0].evidence


def test_different_draws_on_both_sides_are_dropout_too(values: Array) -> None:
    draws = [np.random.default_rng(seed).random(values.shape) >= 0.3 for seed in (1, 2)]
    assert of_output(values * draws[0], values * draws[1]) == "dropout"


def test_a_relu_is_not_taken_for_dropout(values: Array) -> None:
    assert of_output(np.maximum(values, 0), values) == "missing operator"


def test_weights_drawn_anew_are_an_initialisation() -> None:
    story = Story()
    for name in ("a", "b"):
        story.tell(name, story.normal(16, 8, 3, 3), story.normal(16, 8, 3, 3), "parameter", parameter="weight")
    assert story.cause(kind="parameter") == "initialisation"


def test_a_weight_of_an_earlier_step_is_stale() -> None:
    story = Story()
    old = story.normal(16, 8)
    new = old + 0.1 * story.normal(16, 8)
    story.tell("fc", old, old, "parameter", step=0, parameter="weight")
    story.tell("fc", old, new, "parameter", step=1, parameter="weight")
    assert story.cause(kind="parameter") == "stale weight"


def test_an_update_of_nothing_is_a_stale_weight() -> None:
    story = Story()
    update = story.normal(16, 8)
    story.tell("fc", np.zeros_like(update), update, "update", parameter="weight")
    assert story.cause(kind="parameter") == "stale weight"


def tell_update(story: Story, left: Array, right: Array, weight: Array, left_gradient: Array, gradient: Array) -> None:
    story.tell("fc", weight, weight, "parameter", parameter="weight")
    story.tell("fc", left_gradient, gradient, "gradient", parameter="weight")
    story.tell("fc", left, right, "update", parameter="weight")


def test_updates_that_differ_by_a_multiple_of_the_weight_have_another_weight_decay() -> None:
    story = Story()
    weight, gradient = story.normal(16, 8), story.normal(16, 8)
    updates = [-0.1 * (gradient + decay * weight) for decay in (1e-4, 5e-4)]
    tell_update(story, *updates, weight, gradient, gradient)
    assert story.cause(kind="parameter") == "weight decay"


def test_updates_of_different_gradients_or_unrelated_to_the_weight_have_no_other_weight_decay() -> None:
    story = Story()
    weight, gradient = story.normal(16, 8), story.normal(16, 8)
    tell_update(story, gradient + 1e-3 * story.normal(16, 8), gradient, weight, gradient, gradient)
    assert story.cause(kind="parameter") is None
    story = Story()
    tell_update(story, gradient + 1e-3 * weight, gradient, weight, gradient + 0.1 * weight, gradient)
    assert story.cause(kind="parameter") != "weight decay"


def test_an_update_is_no_sum_in_half_precision() -> None:
    story = Story()
    update = story.normal(64, 64)
    story.tell("fc", story.normal(64, 64).astype(np.float16), story.normal(64, 64).astype(np.float16), "input")
    story.tell("fc", update * (1 + 0.002 * story.normal(64, 64)), update, "update", parameter="weight")
    assert story.cause(kind="parameter") is None


def test_a_layer_that_computes_with_an_old_copy_has_a_stale_weight() -> None:
    story = Story()
    old, x = story.normal(16, 8), story.normal(32, 8)
    new = old + 0.1 * story.normal(16, 8)
    story.tell("fc", old, old, "parameter", step=0, parameter="weight")
    story.tell("fc", new, new, "parameter", step=1, parameter="weight")
    story.tell("fc", x, x, "input", step=1)
    story.tell("fc", x @ old.T, x @ new.T, step=1)
    assert story.cause() == "stale weight"


def test_labels_off_by_one_are_told_with_the_offset() -> None:
    story = Story()
    labels = story.draw.integers(0, 10, 16)
    story.tell("labels", labels + 1, labels)
    assert story.cause(kind="input") == "label offset"
    assert "+1" in story.causes()[0].evidence


def gradient_of(labels: Array, logits: Array) -> Array:
    share = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    share[np.arange(len(labels)), labels] -= 1
    return (share / len(labels)).astype(np.float32)


def test_labels_off_by_one_are_read_from_the_gradient_of_the_logits() -> None:
    story = Story()
    logits, labels = story.normal(6, 10), story.draw.integers(0, 10, 6)
    story.tell("head", gradient_of((labels - 1) % 10, logits), gradient_of(labels, logits), "grad_output")
    cause = story.causes(kind="input")[0]
    assert cause.name == "label offset"
    assert "-1" in cause.evidence


def test_other_labels_altogether_are_no_offset() -> None:
    story = Story()
    logits = story.normal(6, 10)
    sides = [gradient_of(np.array(labels), logits) for labels in ([1, 2, 3, 4, 5, 6], [3, 9, 1, 1, 7, 0])]
    story.tell("head", *sides, "grad_output")
    assert story.cause(kind="input") == "different labels"


def test_an_operator_that_hands_on_its_input_is_missing(values: Array) -> None:
    story = Story()
    story.tell("op", values, values, "input")
    story.tell("op", values, np.tanh(values))
    assert story.cause() == "missing operator"


def test_a_lost_bias_is_a_missing_operator() -> None:
    story = Story()
    y, bias = story.normal(32, 16), story.normal(16)
    story.tell("fc", bias, bias, "parameter", index=1, parameter="bias")
    story.tell("fc", y, y + bias)
    cause = story.causes()[0]
    assert cause.name == "missing operator"
    assert "without fc:parameter:1" in cause.evidence


def test_one_factor_everywhere_is_a_wrong_scale(values: Array) -> None:
    story = Story()
    story.tell("network", values / 255, values, "input")
    cause = story.causes(kind="input")[0]
    assert cause.name == "wrong scale"
    assert "0.0039" in cause.evidence


def test_images_normalised_otherwise_are_a_wrong_scale(values: Array) -> None:
    left = values * np.linspace(0.5, 2, 16, dtype=np.float32)[:, None, None] + 0.3
    assert of_output(left.astype(np.float32), values) == "wrong scale"


def test_a_norm_in_evaluation_mode_is_not_taken_for_a_missing_one(values: Array) -> None:
    story = Story()
    mean, std = values.mean((0, 2, 3), keepdims=True), values.std((0, 2, 3), keepdims=True)
    story.tell("norm", values, values, "input", op_type="BatchNorm2d")
    story.tell("norm", values, (values - mean) / std, op_type="BatchNorm2d")
    assert story.cause() == "batch norm mode"


def test_noise_is_a_half_precision_reduction_only_where_half_precision_is_in_play() -> None:
    found = []
    for kind in ("float32", "float16"):
        story = Story()
        x, weight, y = story.normal(16, 64), story.normal(32, 64), story.normal(16, 32)
        story.tell("fc", weight, weight, "parameter", parameter="weight")
        story.tell("fc", x.astype(kind), x.astype(kind), "input")
        story.tell("fc", y + 2e-3 * story.normal(16, 32), y)
        found.append(story.cause())
    assert found == [None, "half-precision reduction"]


def test_a_weight_is_never_a_reduction() -> None:
    story = Story()
    x, weight = story.normal(16, 64), story.normal(32, 64)
    story.tell("fc", x.astype(np.float16), x.astype(np.float16), "input")
    story.tell("fc", weight + 1e-3 * story.normal(32, 64), weight, "parameter", parameter="weight")
    assert "half-precision reduction" not in [cause.name for cause in story.causes(kind="parameter")]


def test_a_counter_is_no_label() -> None:
    story = Story()
    story.tell("bn", np.array(7), np.array(0), "parameter", parameter="num_batches_tracked", op_type="BatchNorm2d")
    assert story.cause(kind="parameter") is None


def test_a_norm_with_fresh_running_statistics_is_in_another_mode_and_has_no_huge_epsilon() -> None:
    story = Story()
    x = story.normal(8, 6, 5, 5) * np.linspace(0.24, 0.32, 6, dtype=np.float32)[:, None, None]
    centred = x - x.mean((0, 2, 3), keepdims=True)
    right = centred / np.sqrt(np.square(centred).mean((0, 2, 3), keepdims=True) + 1e-5)
    left = x / np.float32(np.sqrt(1 + 1e-5))
    story.tell("bn", x, x, "input", op_type="BatchNorm2d")
    story.tell("bn", left, right, op_type="BatchNorm2d")
    assert story.cause() == "batch norm mode"
