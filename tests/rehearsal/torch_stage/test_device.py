"""What a script asks of the device: where it is, streams and their times, memory, random numbers, pinned batches."""

from __future__ import annotations

import time

import pytest
import torch

from rehearsal.torch_stage.staged import on


@on("npu")
def test_a_card_that_is_not_there_is_refused() -> None:
    assert torch.npu.device_count() == 8
    with pytest.raises(RuntimeError, match="Invalid device ID: 8"):
        torch.npu.set_device(8)
    with pytest.raises(RuntimeError, match="Invalid device ID: 9"):
        torch.ones(1, device="npu:9")


@on("npu")
def test_tensors_go_to_the_current_card_unless_another_is_named() -> None:
    torch.npu.set_device(2)
    placed = [
        torch.ones(1).npu(),
        torch.ones(1).to("npu"),
        torch.ones(1).to(torch.device("npu")),
        torch.ones(1, device="npu"),
        torch.tensor([1.0], device="npu"),
        torch.as_tensor([1.0], device="npu"),
        torch.nn.Linear(1, 1).to("npu").weight,
        torch.nn.Linear(1, 1).npu().weight,
        torch.nn.Linear(1, 1, device="npu").weight,
        torch.npu.FloatTensor([1.0]),
    ]
    assert {str(tensor.device) for tensor in placed} == {"npu:2"}
    assert torch.ones(1).npu(1).device == torch.device("npu", 1)
    with torch.npu.device(3):
        assert torch.ones(1, device="npu").get_device() == 3
    assert torch.npu.current_device() == torch.accelerator.current_device_index() == 2
    assert placed[0].is_npu
    assert not torch.ones(1).is_npu
    assert placed[0].type() == "torch.npu.FloatTensor"
    assert type(placed[0]) is torch.Tensor


@on("mlu")
def test_moving_a_model_keeps_its_parameters_so_an_optimizer_made_before_trains_it() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    weight = model.weight
    model.mlu()
    assert model.weight is weight
    model(torch.ones(1, 2, device="mlu")).sum().backward()
    before = weight.detach().clone()
    optimizer.step()
    assert torch.equal(weight, before - 1)


@on("npu")
def test_events_tell_the_time_that_passed() -> None:
    begin, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() == stream
        begin.record()
        time.sleep(0.02)
        end.record(stream)
    assert torch.npu.current_stream() == torch.npu.default_stream()
    torch.npu.synchronize()
    assert 20 <= begin.elapsed_time(end) < 2000
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        torch.npu.Event().elapsed_time(end)
    with pytest.raises(RuntimeError, match="recorded"):
        torch.npu.Event(enable_timing=True).elapsed_time(end)
    torch.ones(1).npu().record_stream(stream)


@on("npu")
def test_memory_is_counted_while_it_lives() -> None:
    assert torch.npu.memory_allocated() == 0
    kept = torch.empty(1000, device="npu")
    assert torch.npu.memory_allocated() == 4000
    view = kept[10:]
    del kept
    assert torch.npu.memory_allocated() == 4000
    (view * 2).sum().item()
    assert torch.npu.max_memory_allocated() >= 4000 + 3960
    torch.npu.reset_peak_memory_stats()
    assert torch.npu.max_memory_allocated() == torch.npu.memory_allocated() == 4000
    assert torch.npu.memory_allocated(1) == 0
    free, total = torch.npu.mem_get_info()
    assert total - free == 4000
    assert torch.npu.memory_stats()["allocated_bytes.all.current"] == 4000
    del view
    assert torch.npu.memory_allocated() == torch.accelerator.memory_allocated() == 0


@on("npu")
def test_seeds_and_states_bring_the_same_numbers_back() -> None:
    torch.npu.manual_seed_all(3)
    state = torch.npu.get_rng_state()
    first = torch.randn(4, device="npu")
    torch.npu.set_rng_state(state)
    assert torch.equal(torch.randn(4, device="npu"), first)
    torch.manual_seed(3)
    assert torch.equal(torch.randn(4), first.cpu())  # the same as on the CPU
    own = torch.Generator(device="npu").manual_seed(7)
    assert own.device.type == "npu"
    again = torch.randn(4, device="npu", generator=own)
    assert torch.equal(torch.randn(4, device="npu", generator=own.manual_seed(7)), again)
    assert isinstance(torch.default_generator, torch.Generator)
    with pytest.raises(RuntimeError, match="Expected a 'npu' device type for generator but found 'cpu'"):
        torch.randn(4, device="npu", generator=torch.Generator())


@on("mlu")
def test_a_loader_pins_its_batches() -> None:
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(4.0))
    assert not torch.ones(1).is_pinned()
    for options in ({}, {"num_workers": 1}):
        seen = [batch[0] for batch in DataLoader(data, batch_size=2, pin_memory=True, **options)]
        assert all(batch.is_pinned() for batch in seen)
        assert torch.cat([batch.to("mlu", non_blocking=True) for batch in seen]).tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="cannot pin"):
        torch.ones(1, device="mlu").pin_memory()


@on("npu")
def test_the_cuda_flags_of_pytorch_are_harmless() -> None:
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True)
    assert torch.ones(2, device="npu").sum() == 2
    assert not torch.cuda.is_available()
    torch.npu.matmul.allow_hf32 = True
    torch.npu.config.allow_internal_format = False
    torch.npu.set_compile_mode(jit_compile=False)
    assert torch.npu.is_jit_compile_false()
