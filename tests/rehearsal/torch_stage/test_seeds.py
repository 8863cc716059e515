"""Seeds and random states of a card."""

from __future__ import annotations

import pytest
import torch

from rehearsal.torch_stage.staged import on


@on("npu")
def test_seeds_and_random_states_restore_the_same_numbers() -> None:
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
