"""The network that weights belong to, by names and shapes."""

from __future__ import annotations

import pytest

from viaduct.weights import mindspore_names, recognise
from viaduct.weights.names import list_name_maps, list_tf_layouts


def test_a_checkpoint_is_recognised_as_the_network_that_computes_the_same() -> None:
    for name, layout in (("resnet50_book", "zoo"), ("resnet50_v1", "mindcv"), ("resnet32_cifar", "own")):
        model = recognise.build_on_meta(name, 1)
        shapes = {
            link.variables[0]: model.state_dict()[link.tensor].shape
            for link in mindspore_names.list_layouts(model)[layout]
        }
        assert [str(guess) for guess in recognise.recognise_mindspore(shapes)] == [f"{name} with 1 classes"]


@pytest.mark.lengthy
def test_every_network_with_a_reference_is_recognised_by_its_variables() -> None:
    for name in [name for names in list_name_maps() for name in recognise.list_networks(names)]:
        model = recognise.build_on_meta(name, 17)
        for layout in list_tf_layouts(model):
            guesses = recognise.recognise_tensorflow(recognise.list_tf_variables(model, layout))
            assert guesses[0].is_complete, name
            assert guesses[0].classes == 17
            assert guesses[0].layout == layout
            assert name in [guess.model for guess in guesses]
            assert len(guesses) == 1 or {guess.model for guess in guesses} == {"resnet20_cifar", "resnet20_quick"}


def test_a_larger_amoebanet_is_recognised_with_its_size() -> None:
    large = recognise.build_on_meta("amoebanet_d", 11, (("cells", 12), ("image", 299)))
    (guess,) = recognise.recognise_tensorflow(recognise.list_tf_variables(large, ""))
    assert guess.is_complete
    assert dict(guess.options) == {"cells": 12, "filters": 256, "stem_filters": 32, "image": 299}


@pytest.mark.parametrize("name", ["cell_999/1x1/weights", "cell_3/x"])
def test_an_absurd_amoebanet_is_not_built(name: str) -> None:
    shapes = {
        name: (1, 1, 4, 4),
        "cell_stem_0/1x1/weights": (1, 1, 1, 1),
        "cell_0/1x1/weights": (1, 1, 1, 1 << 50),
        "stem/conv0/weights": (3, 3, 3, 32),
        "final_layer/FC/biases": (1 << 60,),
    }
    assert recognise.recognise_tensorflow(shapes) == []


def test_weights_of_which_less_than_half_fits_are_no_guess() -> None:
    state = recognise.build_on_meta("resnet20_cifar", 7).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    names = [name for name in shapes if name != "head.bias"]
    few = {name: shapes[name] for name in ["head.bias", *names[: len(names) // 3]]}
    assert recognise.recognise_torch(few) == []
    assert recognise.recognise_torch({}) == []
    assert recognise.recognise_torch({"head.bias": ()}) == []


def test_an_auxiliary_head_counts_only_where_the_file_has_one() -> None:
    expected = {"head.bias": (7,), "aux.head.bias": (7,)}
    assert recognise.compute_share(expected, {"head.bias": (7,)}) == 1
    assert recognise.compute_share(expected, {"head.bias": (7,), "aux.head.bias": (8,)}) == 0.5


def test_of_networks_that_fit_alike_the_largest_is_the_guess() -> None:
    small, large = recognise.Guess("resnet20_cifar", 7, 0.8), recognise.Guess("resnet32_cifar", 7, 0.8)
    better = recognise.Guess("resnet20_cifar_v2", 7, 0.9)
    assert recognise.select_best([small, large]) == [large]
    assert recognise.select_best([small, large, better]) == [better]
    assert recognise.select_best([recognise.Guess("resnet20_cifar", 7, 0.4)]) == []
