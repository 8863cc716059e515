"""Layouts of TensorFlow's tensors and ours."""

from __future__ import annotations

import pytest
import torch

from viaduct.models.links import link_conv, link_dense, link_norm, number_layer

CONV = torch.randn(6, 2, 3, 5)  # out, in, height, width


def test_a_convolution_is_height_width_in_out_there() -> None:
    link = link_conv("conv", "conv/kernel")
    (theirs,) = link.to_tf(CONV)
    assert theirs.shape == link.compute_variable_shape(CONV.shape) == (3, 5, 2, 6)
    assert theirs[1, 4, 0, 3] == CONV[3, 0, 1, 4]
    assert torch.equal(link.to_torch([theirs]), CONV)


def test_groups_that_are_kept_apart_there_are_joined_by_output_channel_in_order() -> None:
    link = link_conv("conv", "group_0", "group_1", "group_2")
    theirs = link.to_tf(CONV)
    assert [tuple(part.shape) for part in theirs] == [link.compute_variable_shape(CONV.shape)] * 3 == [(3, 5, 2, 2)] * 3
    assert torch.equal(theirs[1][0, 0], CONV[2:4, :, 0, 0].T)
    assert torch.equal(link.to_torch(theirs), CONV)
    assert all(part.is_contiguous() for part in (*theirs, link.to_torch(theirs)))


def test_a_dense_kernel_is_transposed_and_a_bias_is_not() -> None:
    kernel, bias = link_dense("head", "dense", bias="biases")
    assert (kernel.tensor, kernel.variables) == ("head.weight", ("dense/kernel",))
    assert (bias.tensor, bias.variables) == ("head.bias", ("dense/biases",))
    value = torch.randn(4, 7)
    assert torch.equal(kernel.to_tf(value)[0], value.T)
    assert torch.equal(bias.to_torch([torch.arange(4.0)]), torch.arange(4.0))


def test_statistics_of_a_norm_are_not_trained_and_its_parameters_are() -> None:
    links = {link.tensor: link for link in link_norm("bn", "batch_normalization")}
    assert {target for target, link in links.items() if not link.trained} == {"bn.running_mean", "bn.running_var"}
    assert links["bn.weight"].variables == ("batch_normalization/gamma",)
    assert links["bn.running_var"].variables == ("batch_normalization/moving_variance",)


@pytest.mark.parametrize(("number", "name"), [(0, "conv2d"), (1, "conv2d_1"), (12, "conv2d_12")])
def test_the_first_layer_of_a_name_has_no_number(number: int, name: str) -> None:
    assert number_layer("conv2d", number) == name
