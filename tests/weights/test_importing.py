"""Checkpoints that TensorFlow saved, brought into our networks: the same logits, or a clear refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from viaduct import models
from viaduct.errors import BadData, BadValue
from viaduct.weights import Imported, import_tf_checkpoint
from viaduct.weights.bundle import Bundle, write_bundle

pytest.importorskip("tensorflow", reason="saves checkpoints with TensorFlow; install viaduct[tf]")
tf = pytest.importorskip("tensorflow.compat.v1")

from weights.reference_checkpoints import SMALL, Reference, save  # noqa: E402

CASES = [
    pytest.param(name, {**options, **({"layout": layout} if layout else {})}, id=f"{name}{layout}")
    for name, options in SMALL.items()
    for layout in (("a", "b") if name == "resnext50" else ("",))
]


def small(name: str, classes: int = 7, **options: Any) -> nn.Module:
    """Our network, shrunken as the reference is."""
    options = {key: value for key, value in {**SMALL[name], **options}.items() if key != "layout"}
    return models.build(name, classes, **options)


def relative_error(model: nn.Module, reference: Reference) -> float:
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(reference.images_NHWC).permute(0, 3, 1, 2)).numpy()
    return float(np.abs(logits - reference.logits).max() / np.abs(reference.logits).max())


def size_for(name: str) -> int:
    return 67 if name == "amoebanet_d" else 33


def save_checkpoint(folder: Path, name: str, **options: Any) -> Reference:
    return save(folder, name, **{"size": size_for(name), **SMALL[name], **options})


def copy_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def is_unchanged(model: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(("name", "options"), CASES)
def test_logits_are_those_of_the_graph_that_saved_them(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    reference = save_checkpoint(tmp_path, name, **options)
    model = small(name, **({"image": 67} if name == "amoebanet_d" else {}))
    done = import_tf_checkpoint(model, reference.prefix)
    assert relative_error(model, reference) < 1e-5
    weights = {key for key in model.state_dict() if not key.endswith("num_batches_tracked")}
    assert set(done.mapped.values()) == weights
    assert done.skipped == ["global_step"]
    assert done.global_step == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet18_v1", {}),
        ("resnet50_v1", {}),
        ("resnet50_v2", {}),
        ("resnet56_cifar", {}),
        ("resnet50_v15", {}),
        ("resnext50", {"layout": "a"}),
        ("resnext50", {"layout": "b"}),
        ("amoebanet_d", {}),
    ],
)
def test_full_size_logits_are_tensorflows(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    size = {"resnet56_cifar": 32, "amoebanet_d": 224}.get(name, 97)
    reference = save(tmp_path, name, classes=1001, size=size, **options)
    model = models.build(name, classes=1001)
    import_tf_checkpoint(model, reference.prefix)
    error = relative_error(model, reference)
    print(f"{name} {options}: {error:.2e}")
    assert error < 1e-5


def with_optimizer(logits: Any) -> Any:
    """A step of momentum with moving averages of all weights, as a training graph has."""
    averages = tf.train.ExponentialMovingAverage(0.5)
    weights = tf.trainable_variables()
    step = tf.train.MomentumOptimizer(0.01, 0.9).minimize(tf.reduce_mean(logits**2), var_list=weights)
    with tf.control_dependencies([step]):
        return averages.apply(weights)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return save_checkpoint(tmp_path_factory.mktemp("trained"), "resnet18_v1", beside=with_optimizer)


def test_slots_and_averages_are_skipped(trained: Reference) -> None:
    model = small("resnet18_v1")
    done = import_tf_checkpoint(model, trained.prefix)
    assert relative_error(model, trained) < 1e-5
    assert "resnet_model/dense/kernel/Momentum" in done.skipped
    assert "resnet_model/dense/kernel/ExponentialMovingAverage" in done.skipped
    assert done.mapped["resnet_model/dense/kernel"] == "head.weight"
    assert done.slots == {}


def test_slots_come_by_the_name_of_their_parameter(trained: Reference) -> None:
    model = small("resnet18_v1")
    done = import_tf_checkpoint(model, trained.prefix, slots=True)
    assert set(done.slots) == {"Momentum"}
    assert set(done.slots["Momentum"]) == {name for name, _ in model.named_parameters()}
    stored = tf.train.load_checkpoint(str(trained.prefix))
    kernel = stored.get_tensor("resnet_model/conv2d_3/kernel/Momentum").transpose(3, 2, 0, 1)
    name = done.mapped["resnet_model/conv2d_3/kernel"]
    np.testing.assert_array_equal(done.slots["Momentum"][name].numpy(), kernel)


def test_moving_averages_replace_the_weights_on_request(trained: Reference) -> None:
    model = small("resnet18_v1")
    done = import_tf_checkpoint(model, trained.prefix, ema=True)
    stored = tf.train.load_checkpoint(str(trained.prefix))
    shadow = stored.get_tensor("resnet_model/dense/kernel/ExponentialMovingAverage")
    np.testing.assert_array_equal(model.get_parameter("head.weight").detach().numpy(), shadow.T)
    assert not np.array_equal(shadow, stored.get_tensor("resnet_model/dense/kernel"))
    assert done.mapped["resnet_model/dense/kernel/ExponentialMovingAverage"] == "head.weight"
    # Statistics have no averages in this checkpoint: they are taken as they are.
    assert done.mapped["resnet_model/batch_normalization/moving_mean"] == "stem.norm.running_mean"


def test_averages_of_statistics_are_used_too(amoebanet: Reference, tmp_path: Path) -> None:
    with Bundle(amoebanet.prefix) as bundle:
        tensors = {name: bundle.read(name) for name in bundle.entries}
    averages = {f"{name}/ExponentialMovingAverage": tensor + 1 for name, tensor in tensors.items()}
    write_bundle(tmp_path / "model.ckpt-1", {**tensors, **averages})
    model = small("amoebanet_d", image=67)
    done = import_tf_checkpoint(model, tmp_path, ema=True)
    assert all(name.endswith("/ExponentialMovingAverage") for name in done.mapped)
    assert torch.equal(model.get_buffer("stem.conv0_bn.running_mean"), tensors["stem/conv0_bn/moving_mean"] + 1)


def test_averages_that_do_not_exist_are_an_error(amoebanet: Reference) -> None:
    with pytest.raises(BadData, match="no exponential moving averages"):
        import_tf_checkpoint(small("amoebanet_d", image=67), amoebanet.prefix, ema=True)


@pytest.fixture(scope="module")
def amoebanet(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return save_checkpoint(tmp_path_factory.mktemp("amoebanet"), "amoebanet_d")


def rewritten(prefix: Path, folder: Path, keep: Callable[[str], bool] = lambda name: True, **changed: Tensor) -> Path:
    """A copy of a checkpoint with less in it, or something else; in a name `__` stands for a slash."""
    with Bundle(prefix) as bundle:
        tensors = {name: bundle.read(name) for name in bundle.entries if keep(name)}
    return write_bundle(
        folder / "changed.ckpt-5", {**tensors, **{name.replace("__", "/"): value for name, value in changed.items()}}
    )


def test_an_auxiliary_head_may_be_absent_as_a_whole(amoebanet: Reference, tmp_path: Path) -> None:
    prefix = rewritten(amoebanet.prefix, tmp_path, lambda name: not name.startswith("aux_"))
    model = small("amoebanet_d", image=67)
    before = model.get_parameter("aux.head.weight").clone()
    done = import_tf_checkpoint(model, prefix)
    assert relative_error(model, amoebanet) < 1e-5
    assert torch.equal(model.get_parameter("aux.head.weight"), before)
    assert "no auxiliary head" in done.notes[0]
    with pytest.raises(BadData, match="aux_1/aux_logits/proj/weights"):
        import_tf_checkpoint(model, prefix, require_aux=True)


def test_an_auxiliary_head_that_the_network_lacks_is_left_out(amoebanet: Reference) -> None:
    done = import_tf_checkpoint(small("amoebanet_d", aux=False), amoebanet.prefix)
    assert "aux_1/aux_logits/FC/weights" in done.skipped
    assert "left out" in done.notes[0]


def test_half_an_auxiliary_head_is_an_error(amoebanet: Reference, tmp_path: Path) -> None:
    prefix = rewritten(amoebanet.prefix, tmp_path, lambda name: name != "aux_1/aux_logits/FC/biases")
    with pytest.raises(BadData, match="lacks 1 of the"):
        import_tf_checkpoint(small("amoebanet_d", image=67), prefix)


def test_a_missing_variable_is_named_and_nothing_changes(trained: Reference, tmp_path: Path) -> None:
    prefix = rewritten(trained.prefix, tmp_path, lambda name: name != "resnet_model/batch_normalization_2/beta")
    model = small("resnet18_v1")
    before = copy_of(model)
    with pytest.raises(BadData, match=r"lacks 1 of the \d+ variables .*: resnet_model/batch_normalization_2/beta\."):
        import_tf_checkpoint(model, prefix)
    assert is_unchanged(model, before)


def test_a_misshaped_variable_is_named_and_nothing_changes(trained: Reference, tmp_path: Path) -> None:
    prefix = rewritten(trained.prefix, tmp_path, resnet_model__conv2d__kernel=torch.zeros(7, 7, 3, 5))
    model = small("resnet18_v1")
    before = copy_of(model)
    with pytest.raises(BadData, match=r"conv2d/kernel is \(7, 7, 3, 5\), here \(7, 7, 3, 4\)"):
        import_tf_checkpoint(model, prefix)
    assert is_unchanged(model, before)


def test_damaged_values_are_found_before_anything_changes(trained: Reference, tmp_path: Path) -> None:
    prefix = rewritten(trained.prefix, tmp_path)
    file = prefix.with_name(prefix.name + ".data-00000-of-00001")
    content = bytearray(file.read_bytes())
    with Bundle(prefix) as bundle:
        content[bundle.entries["resnet_model/dense/kernel"].offset + 6] ^= 1
    file.write_bytes(content)
    model = small("resnet18_v1")
    before = copy_of(model)
    with pytest.raises(BadData, match="checksum"):
        import_tf_checkpoint(model, prefix)
    assert is_unchanged(model, before)


def test_another_number_of_classes_is_reported_with_both_remedies(trained: Reference) -> None:
    with pytest.raises(BadData, match="has 7 classes, this network 10") as refusal:
        import_tf_checkpoint(small("resnet18_v1", classes=10), trained.prefix)
    assert "--classes 7" in str(refusal.value)
    assert "--init-exclude 'head.*'" in str(refusal.value)


def test_a_checkpoint_of_another_network_is_recognised(tmp_path: Path) -> None:
    reference = save(tmp_path, "resnet20_cifar", classes=10, size=32)
    with pytest.raises(BadData, match=r"lacks \d+ of the 267 variables") as refusal:
        import_tf_checkpoint(models.build("resnet50_v15", 9), reference.prefix)
    assert "It looks like resnet20_cifar or resnet20_quick with 10 classes." in str(refusal.value)


@pytest.mark.parametrize("name", ["resnet50_stem3", "resnet50_book"])
def test_a_network_without_a_reference_is_refused(name: str, trained: Reference) -> None:
    with torch.device("meta"):
        model = models.build(name, classes=10)
    with pytest.raises(BadValue, match="has no TensorFlow reference"):
        import_tf_checkpoint(model, trained.prefix)


def test_what_is_no_path_or_no_network_is_named() -> None:
    with pytest.raises(BadValue, match="the checkpoint is None; it must be a path"):
        import_tf_checkpoint(nn.Identity(), None)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="the network is 'resnet50_v1'; it must be a module"):
        import_tf_checkpoint("resnet50_v1", "model.ckpt")  # type: ignore[arg-type]


def test_the_checkpoint_is_found_by_folder_and_index(trained: Reference) -> None:
    for path in (trained.prefix.parent, str(trained.prefix) + ".index"):
        assert isinstance(import_tf_checkpoint(small("resnet18_v1"), path), Imported)
