"""The limits that the PyTorch stage enforces, and what happens when they are switched off."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from rehearsal.torch_stage.networks import make_perceptron
from rehearsal.torch_stage.staged import expect_refusal, on
from viaduct.rehearsal import limits


def cuda_file(path: Path) -> Path:
    """A file whose tensors lie on cuda:0, as a GPU writes it."""
    torch.save({"weight": torch.ones(2)}, path)
    torch.serialization.register_package(1, lambda storage: "cuda:0", lambda storage, location: None)
    torch.save({"weight": torch.ones(2)}, path)
    torch.serialization._package_registry.pop(0)
    return path


@on("npu")
def test_remaining_uses_of_cuda_are_refused(tmp_path: Path) -> None:
    for call in (
        lambda: torch.ones(1).cuda(),
        lambda: torch.nn.Linear(1, 1).cuda(),
        lambda: torch.ones(1).to("cuda"),
        lambda: torch.ones(1, device="cuda:0"),
        lambda: torch.cuda.set_device(0),
        lambda: torch.cuda.synchronize(),
        lambda: torch.cuda.Stream(),
    ):
        with expect_refusal("cuda-left"):
            call()
    for mixed in (
        lambda: torch.autocast("cuda"),
        lambda: torch.autocast(device_type="cuda", dtype=torch.bfloat16),
        lambda: torch.amp.GradScaler(),
        lambda: torch.amp.GradScaler("cuda"),
    ):
        with expect_refusal("cuda-left"):
            mixed()
    with expect_refusal("nccl-left"):
        torch.distributed.init_process_group("nccl", rank=0, world_size=1, init_method=f"file://{tmp_path}/group")
    path = cuda_file(tmp_path / "cuda.pt")
    with expect_refusal("map-location"):
        torch.load(path)
    with expect_refusal("map-location"):
        torch.load(path, map_location="cuda:1")
    assert limits.violations[-1].action == "torch.load is to put tensors of the checkpoint on 'cuda:1'."
    assert torch.load(path, map_location="npu")["weight"].device.type == "npu"


@on("npu")
def test_mixed_precision_of_cuda_is_reported_with_its_line_only_where_it_would_be_on() -> None:
    from torch.cuda.amp import GradScaler, autocast

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of old names
        GradScaler(enabled=False)
        with torch.autocast("cuda", enabled=False), torch.autocast("npu"):
            assert limits.violations == []
        with expect_refusal("cuda-left"):
            autocast()
        with expect_refusal("cuda-left"):
            GradScaler()
    locations = [hit.place for hit in limits.violations]
    assert [location.text for location in locations if location] == ["autocast()", "GradScaler()"]


@on("npu")
def test_a_number_is_a_card_of_the_plug_in_wherever_a_device_is_given() -> None:
    card = torch.device("npu", 1)
    assert torch.device(1) == card
    made = (
        torch.zeros(2, device=1),
        torch.tensor([1.0], device=1),
        torch.randn(2, device=1),
        torch.nn.Linear(2, 2, device=1).weight,
        torch.ones(2).new_zeros(2, device=1),
        torch.zeros_like(torch.ones(2), device=1),
        torch.ones(1).to(1),
        torch.nn.Linear(2, 2).to(1).weight,
        torch.ones(1).npu(1),
    )
    assert {tensor.device for tensor in made} == {card}


@on("npu")
def test_a_default_device_reaches_every_factory() -> None:
    torch.set_default_device("npu:1")
    made = torch.zeros(2), torch.tensor([1.0]), torch.as_tensor([1.0]), torch.nn.Linear(1, 1).weight
    assert {hit.device for hit in made} == {torch.device("npu", 1)}


@on("npu")
def test_an_npu_refuses_data_parallel_capability_and_foreign_compilers() -> None:
    model = torch.nn.Linear(2, 2).npu()
    with expect_refusal("data-parallel"):
        torch.nn.DataParallel(model)
    assert torch.npu.get_device_capability() is None  # no more than a warning: a script may be prepared for it
    assert [(hit.name, hit.mode) for hit in limits.violations][-1] == ("capability", "warn")
    with expect_refusal("capability"):
        print(torch.npu.get_device_properties(0).major)
    with expect_refusal("compile"):
        torch.compile(model)
    assert torch.npu.get_device_properties(0).total_memory > 1 << 30
    compiled = torch.compile(model, backend="npu")
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert torch.equal(compiled(torch.ones(1, 2).npu()), model(torch.ones(1, 2).npu()))


@on("npu", VIADUCT_LIMITS="off")
def test_with_the_limits_off_a_script_continues() -> None:
    x = torch.ones(2, device="npu").double()
    assert x.dtype is torch.float64
    assert torch.ones(1).to(1).device == torch.device("npu", 1)
    assert torch.npu.get_device_capability() is None
    model = torch.nn.DataParallel(torch.nn.Linear(2, 2).npu())
    assert model(torch.ones(4, 2)).shape == (4, 2)
    assert torch.compile(model.module)(torch.ones(1, 2).npu()).device.type == "npu"
    assert limits.violations == []


@on("npu", ASCEND_RT_VISIBLE_DEVICES="1,0")
def test_a_list_of_cards_that_does_not_ascend_is_refused() -> None:
    with expect_refusal("visible-devices"):
        torch.npu.device_count()


@on("npu", ASCEND_RT_VISIBLE_DEVICES="2,5,6")
def test_a_list_of_cards_that_ascends_hides_the_others() -> None:
    assert torch.npu.device_count() == 3
    torch.npu.set_device(2)
    with pytest.raises(RuntimeError, match="Invalid device ID: 3"):
        torch.npu.set_device(3)


@on("mlu", MLU_VISIBLE_DEVICES="1,0")
def test_an_mlu_takes_its_cards_in_any_order() -> None:
    assert torch.mlu.device_count() == 2


@on("npu")
def test_refusals_have_a_sentence_with_a_remedy() -> None:
    x = torch.ones(1, 2, 128, 16, device="npu")
    with pytest.raises(NotImplementedError, match="A rehearsal does not capture NPU graphs"):
        torch.npu.NPUGraph()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match=r"torch.compile is called with the backend 'inductor'. \[compile\]"):
        torch.compile(make_perceptron().npu())
    with pytest.raises(NotImplementedError, match=r"flash_attention.default has no kernel for the CPU"):
        torch.ops.aten._scaled_dot_product_flash_attention(x, x, x)
    from torch.nn.attention.flex_attention import flex_attention

    with pytest.raises(ValueError, match="FlexAttention is only supported on"):
        flex_attention(x, x, x)
