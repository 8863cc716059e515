"""Tunable kernels: their defaults, and that none is forgotten by the tests of the kernels."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("triton", reason="Triton is not installed")
from kernels import (
    test_halves_kernels,
    test_inference,
    test_norm_kernels,
    test_pooling_kernels,
    test_stem_kernels,
    test_terms_kernels,
)
from kernels.check_tunable import CPU, find_wrong_points, measure_errors, record_networks
from kernels.interpreter import Interpret
from kernels.tunable.test_grouped import signature_of
from viaduct.kernels.tunable import grouped, grouped_implementation, list_tunables, make_space, vendor


@pytest.mark.process
def test_what_a_network_launches_has_spaces_and_cases(interpret: Interpret) -> None:
    """The signatures that a step records are those that the spaces and cases are made for."""
    launched = interpret(record_networks)
    assert {"scale_shift", "stem_convolution", "sum_terms_pooled", "merge_gradients"} <= {key[0] for key in launched}
    for key in launched:
        assert make_space(key, CPU).default
    for key in random.sample(launched, 12):
        assert find_wrong_points(interpret(measure_errors, key, CPU, 0, random.Random())) == {}, key


def test_defaults_are_the_sizes_that_were_fixed_before() -> None:
    def default(kernel: str, *signature: int | str) -> tuple[object, ...]:
        return tuple(make_space((kernel, (*signature, "bfloat16")), CPU).default.values())

    assert default("stem_convolution", 64, 112, 112) == (128, 4, 2, 3)
    assert default("stem_inference", 64, 112, 112) == (128, 4, 1, 3)
    assert default("stem_pool", 64, 112, 112)[:2] == (16, 4)
    assert default("stem_sums", 200_704)[:3] == (32, 4, 8)
    assert default("stem_input", 64, 112, 112)[:2] == (8, 2)
    assert default("stem_weight", 64, 112, 112) == (64, 4, 1, 3)
    assert default("sum_terms", 1000, 200) == (8, 256, 4)
    assert default("pooling_forward", 8, 64, 28, 28, 3, 2, 0, 0) == (2, 4, 64, 2)
    assert default("batch_norm_gradient_sums", 100_000, 256, 2) == (32, 64, 8, 4, 64)
    layers = {per_group: signature_of(256, 28, per_group, 1)[:-1] for per_group in (4, 8)}
    assert default("grouped_convolution", *layers[4]) == (64, 2, 8, 0, 0)
    assert default("grouped_convolution", *layers[8]) == (64, 3, 8, 0, 0)
    assert default("grouped_input_gradient", *layers[8]) == (32, 3, 8, 0, 0)
    assert default("grouped_weight_gradient", *layers[8]) == (64, 2, 8, 0, 0)


def test_no_kernel_is_forgotten() -> None:
    modules = (test_halves_kernels, test_inference, test_norm_kernels, test_pooling_kernels, test_stem_kernels)
    asked = {kernel for module in (*modules, test_terms_kernels) for kernel in module.KERNELS}
    in_cpp = {tunable.kernel for tunable in grouped.TUNABLES}  # tests/gpu asks for them
    without_triton = {tunable.kernel for module in (grouped_implementation, vendor) for tunable in module.TUNABLES}
    assert asked | in_cpp | without_triton == set(list_tunables())
