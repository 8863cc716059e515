"""Weights that go out and come back: the same bits, under TensorFlow's names on the way."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from data.mutations import mutate
from viaduct import models
from viaduct.errors import BadData, BadValue, UnknownName, ViaductError
from viaduct.weights import import_tf_checkpoint
from viaduct.weights.bundle import Bundle, write_bundle
from viaduct.weights.exporting import (
    build_metadata,
    export_mindspore,
    export_safetensors,
    export_tf_checkpoint,
    import_file,
    parse_step,
)
from viaduct.weights.importing import AVERAGE_SUFFIX
from viaduct.weights.recognise import Guess
from viaduct.weights.stored import open_weights
from viaduct.weights.table import read_table, write_table

SIZES: dict[str, dict[str, Any]] = {
    "resnet18_v2": {"blocks": (1, 2), "filters": (4, 8)},
    "resnet50_v15": {"blocks": (1, 2), "filters": (4, 8)},
    "resnext50": {"blocks": (1, 2), "filters": (32, 64), "stem_filters": 8},
    "amoebanet_d": {"cells": 3, "filters": 16, "stem_filters": 4, "image": 67},
}


def random_weights(name: str, classes: int = 5, **options: Any) -> dict[str, Tensor]:
    torch.manual_seed(3)
    with torch.device("meta"):
        shapes = models.build(name, classes, **options).state_dict()
    return {
        key: torch.tensor(0) if key.endswith("num_batches_tracked") else torch.randn(value.shape)
        for key, value in shapes.items()
    }


def write(file: Path, name: str, tensors: dict[str, Tensor], **metadata: Any) -> Path:
    words = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    save_file(tensors, file, {"model": name, **words})
    return file


def export(file: Path, prefix: Path, **more: Any) -> Path:
    with open_weights(file) as stored:
        export_tf_checkpoint(stored, prefix, **more)
    return prefix


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("name", "layout"), [(name, "") for name in SIZES] + [("resnext50", "a")])
def test_exported_weights_are_imported_bit_for_bit(name: str, layout: str, tmp_path: Path) -> None:
    weights = random_weights(name, **SIZES[name])
    file = write(tmp_path / "w.safetensors", name, weights, options=SIZES[name], global_step="42")
    prefix = export(file, tmp_path / "tf" / "model.ckpt-42", layout=layout)
    with Bundle(prefix) as bundle:
        assert bundle.read_integer("global_step") == 42
        assert ("fp32_vars/bottleneck_0_0" in bundle) == (layout == "a")
    model = models.build(name, 5, **SIZES[name])
    import_tf_checkpoint(model, prefix)
    assert same(model.state_dict(), weights)


@pytest.mark.parametrize("name", ["resnet20_cifar", "amoebanet_d"])
def test_a_checkpoint_becomes_a_file_that_says_what_it_is(name: str, tmp_path: Path) -> None:
    options = SIZES.get(name, {})
    weights = random_weights(name, **options)
    prefix = export(write(tmp_path / "w.safetensors", name, weights, options=options), tmp_path / "model.ckpt-9")
    done = import_file(prefix, tmp_path / "back.safetensors")
    assert done.recognised
    assert (done.model, done.classes) == (name, 5)
    assert same(load_file(tmp_path / "back.safetensors"), weights)
    with safe_open(tmp_path / "back.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert {"model": name, "classes": "5", "global_step": "9", "source": str(prefix)}.items() <= metadata.items()
    # ... well enough to be exported again without being told anything
    again = export(tmp_path / "back.safetensors", tmp_path / "again" / "model.ckpt-9")
    assert again.with_name("model.ckpt-9.index").read_bytes() == prefix.with_name("model.ckpt-9.index").read_bytes()


def test_slots_are_written_to_a_separate_file(tmp_path: Path) -> None:
    weights = random_weights("resnet20_cifar")
    prefix = export(write(tmp_path / "w.safetensors", "resnet20_cifar", weights), tmp_path / "model.ckpt-1")
    with pytest.raises(BadData, match="no optimizer slots"):
        import_file(prefix, tmp_path / "x.safetensors", slots=True)
    with Bundle(prefix) as bundle:
        tensors = {name: bundle.read(name) for name in bundle.entries}
    slots = {f"{name}/Momentum": value + 1 for name, value in tensors.items() if name.endswith(("kernel", "gamma"))}
    write_bundle(tmp_path / "model.ckpt-2", {**tensors, **slots})
    import_file(tmp_path / "model.ckpt-2", tmp_path / "x.safetensors", slots=True)
    assert same(load_file(tmp_path / "x.safetensors"), weights)
    beside = load_file(tmp_path / "x.slots.safetensors")
    assert torch.equal(beside["Momentum/head.weight"], weights["head.weight"] + 1)
    assert "Momentum/head.bias" not in beside


def test_averages_are_exported_and_imported(tmp_path: Path) -> None:
    weights = random_weights("resnet20_cifar")
    averaged = {name: value + 1 for name, value in weights.items()}
    path = write(tmp_path / "w.safetensors", "resnet20_cifar", weights)
    other = write(tmp_path / "e.safetensors", "resnet20_cifar", averaged)
    with open_weights(path) as stored, open_weights(other) as averages:
        export_tf_checkpoint(stored, tmp_path / "model.ckpt-3", averages=averages)
    with Bundle(tmp_path / "model.ckpt-3") as bundle:
        assert "resnet_model/batch_normalization/moving_mean" + AVERAGE_SUFFIX in bundle
    import_file(tmp_path / "model.ckpt-3", tmp_path / "back.safetensors", ema=True)
    back = load_file(tmp_path / "back.safetensors")
    assert torch.equal(back["head.weight"], averaged["head.weight"])
    assert torch.equal(back["stem.norm.running_var"], averaged["stem.norm.running_var"])


def test_a_network_without_a_name_must_be_the_only_one_possible(tmp_path: Path) -> None:
    save_file(random_weights("resnet20_cifar_v2"), tmp_path / "plain.safetensors")
    with open_weights(tmp_path / "plain.safetensors") as stored:
        assert export_safetensors(stored, tmp_path / "out.safetensors").model == "resnet20_cifar_v2"
    save_file(random_weights("resnet20_cifar"), tmp_path / "plain.safetensors")
    with open_weights(tmp_path / "plain.safetensors") as stored:
        with pytest.raises(BadValue, match=r"does not say which network[^\0]*resnet20_cifar, resnet20_quick"):
            export_tf_checkpoint(stored, tmp_path / "model.ckpt")
        assert export_tf_checkpoint(stored, tmp_path / "model.ckpt", model="resnet20_cifar").tensor_count == 113
        with pytest.raises(UnknownName, match="resnet2O_cifar"):
            export_tf_checkpoint(stored, tmp_path / "model.ckpt", model="resnet2O_cifar")


def test_a_step_of_zero_is_stored_and_an_unknown_one_is_not() -> None:
    guess = Guess("resnet20_cifar", 10, 1.0)
    metadata = build_metadata(guess, 0, "a.ckpt", ema=False)
    assert metadata["global_step"] == "0"
    assert "ema" not in metadata
    assert "global_step" not in build_metadata(guess, None, "a.ckpt")


def test_weights_of_another_network_are_not_exported(tmp_path: Path) -> None:
    file = write(tmp_path / "w.safetensors", "resnet32_cifar", random_weights("resnet20_cifar"))
    with pytest.raises(BadData, match="does not hold resnet32_cifar with 5 classes"):
        export(file, tmp_path / "model.ckpt")
    own = write(tmp_path / "own.safetensors", "resnet20_cifar", random_weights("resnet20_cifar"))
    with open_weights(own) as stored, pytest.raises(BadData, match="does not hold resnet32_cifar with 5 classes"):
        export_safetensors(stored, tmp_path / "out.safetensors", model="resnet32_cifar")
    book = write(tmp_path / "b.safetensors", "resnet20_cifar", random_weights("resnet20_cifar"))
    with pytest.raises(BadValue, match=r"no layout .a. in TensorFlow"):
        export(book, tmp_path / "model.ckpt", layout="a")


@pytest.mark.parametrize("model", ["", "resnet20_cifar"])
def test_weights_with_tensors_that_the_network_lacks_are_not_exported(model: str, tmp_path: Path) -> None:
    weights = {**random_weights("resnet20_cifar"), "extra.weight": torch.zeros(3)}
    file = write(tmp_path / "w.safetensors", "resnet20_cifar", weights)
    with pytest.raises(BadData, match=r"that network has no extra\.weight"):
        export(file, tmp_path / "model.ckpt", model=model)
    with open_weights(file) as stored, pytest.raises(BadData, match=r"that network has no extra\.weight"):
        export_mindspore(stored, tmp_path / "out.ckpt", model=model)


@pytest.mark.parametrize("options", [{"cells": "six"}, {"cells": -3}, {"width": 2}, {"filters": 3.5}])
def test_options_that_build_nothing_are_an_error(options: dict[str, Any], tmp_path: Path) -> None:
    weights = {"head.bias": torch.zeros(5)}
    file = write(tmp_path / "w.safetensors", "amoebanet_d", weights, options=options)
    with pytest.raises((BadData, BadValue, UnknownName)):
        export(file, tmp_path / "model.ckpt")


def test_a_step_can_be_read_from_the_name() -> None:
    assert parse_step(Path("a/model.ckpt-601000")) == 601000
    assert parse_step(Path("a/model.ckpt")) is None


def test_an_unknown_step_is_written_as_zero_and_noted(tmp_path: Path) -> None:
    file = write(tmp_path / "w.safetensors", "resnet20_cifar", random_weights("resnet20_cifar"))
    with open_weights(file) as stored:
        converted = export_tf_checkpoint(stored, tmp_path / "model.ckpt")
    assert (converted.step, converted.notes) == (None, ("the training step is not known; global_step is 0",))
    with Bundle(tmp_path / "model.ckpt") as bundle:
        assert bundle.step == 0


@pytest.mark.lengthy
def test_hostile_entries_end_in_a_file_or_a_named_error(tmp_path: Path) -> None:
    """Shapes, types and sizes that no writer makes, of every variable that the import looks at."""
    options = {"cells": 3, "filters": 16, "stem_filters": 4, "aux": False}
    weights = random_weights("amoebanet_d", **options)
    prefix = export(write(tmp_path / "w.safetensors", "amoebanet_d", weights, options=options), tmp_path / "model.ckpt")
    index = prefix.with_name("model.ckpt.index")
    pairs = [(key, bytes(value)) for key, value in read_table(index.read_bytes())]
    watched = {b"final_layer/FC/biases", b"final_layer/FC/weights", b"cell_0/1x1/weights", b"stem/conv0/weights"}
    indices = [position for position, (key, _) in enumerate(pairs) if key in watched]
    rng, refused = random.Random(8), 0
    for _ in range(150):
        position = rng.choice(indices)
        hurt = [*pairs[:position], (pairs[position][0], mutate(pairs[position][1], rng)), *pairs[position + 1 :]]
        index.write_bytes(write_table(hurt))
        try:
            import_file(prefix, tmp_path / "out.safetensors", model=rng.choice(("", "amoebanet_d")))
        except ViaductError:
            refused += 1
    assert refused > 100
