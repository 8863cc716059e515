"""torch.save and torch.load with tensors of the stand-in."""

from __future__ import annotations

import copy
import io
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from rehearsal.torch_stage.networks import have_equal_tensors, make_batches, make_network
from rehearsal.torch_stage.staged import on


def load_device(buffer: io.BytesIO, **options: object) -> torch.device:
    buffer.seek(0)
    return torch.load(buffer, **options)["weight"].device


@on("npu")
def test_tensors_are_loaded_to_the_device_in_the_file_or_in_map_location() -> None:
    buffer = io.BytesIO()
    torch.save({"weight": torch.arange(3.0, device="npu:1")}, buffer)
    torch.npu.set_device(4)
    assert load_device(buffer) == torch.device("npu:1")
    assert load_device(buffer, map_location="cpu") == torch.device("cpu")
    assert load_device(buffer, map_location="npu:2", weights_only=False) == torch.device("npu:2")
    assert load_device(buffer, map_location=torch.device("npu")) == torch.device("npu:4")
    assert load_device(buffer, map_location={"npu:1": "npu:0"}) == torch.device("npu:0")
    assert load_device(buffer, map_location=lambda storage, location: storage.npu(3)) == torch.device("npu:3")
    assert load_device(buffer, map_location=lambda storage, location: storage) == torch.device("cpu")


@on("mlu")
def test_a_file_for_more_cards_than_there_are_is_refused() -> None:
    buffer = io.BytesIO()
    torch.save({"weight": torch.ones(1, device="mlu:7")}, buffer)
    buffer = io.BytesIO(buffer.getvalue().replace(b"mlu:7", b"mlu:9"))
    with pytest.raises(RuntimeError):
        load_device(buffer, weights_only=True)


@on("npu")
def test_shared_memory_stays_shared_in_a_file_and_in_a_deep_copy() -> None:
    tensor = torch.zeros(4, device="npu")
    buffer = io.BytesIO()
    torch.save({"whole": tensor, "part": tensor[2:]}, buffer)
    buffer.seek(0)
    for pair in (torch.load(buffer), copy.deepcopy({"whole": tensor, "part": tensor[2:]})):
        pair["part"].fill_(1)
        assert pair["whole"].tolist() == [0, 0, 1, 1]
    assert tensor.tolist() == [0, 0, 0, 0]


@on("npu")
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    def run(first: int, last: int, resume: bool) -> dict[str, torch.Tensor]:
        model = make_network().npu()
        optimizer = torch.optim.Adam(model.parameters())
        if resume:
            saved = torch.load(tmp_path / "run.pt", map_location="npu", weights_only=True)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            torch.npu.set_rng_state(saved["random"].cpu())
        for images, labels in make_batches(4)[first:last]:
            optimizer.zero_grad()
            functional.cross_entropy(model(images.npu()), labels.npu()).backward()
            optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.npu.get_rng_state()}
        torch.save(state, tmp_path / "run.pt")
        return {name: value.cpu() for name, value in model.state_dict().items()}

    torch.manual_seed(1)
    uninterrupted = run(0, 4, resume=False)
    torch.manual_seed(1)
    run(0, 2, resume=False)
    torch.manual_seed(99)
    assert have_equal_tensors(run(2, 4, resume=True), uninterrupted)
