"""Replacements of names that older releases of torch lack behave like the originals."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from viaduct import torch_compat


class Counting:
    """A compiler behind torch.compile that counts how often its code runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        def run(*args: Tensor) -> Any:
            self.runs += 1
            return graph.forward(*args)

        return run


class Doubled(nn.Module):
    """Not of torch alone: such modules it does not compile."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(3, 2)

    def forward(self, images: Tensor) -> Tensor:
        made: Tensor = 2 * self.inside(images)
        return made


@pytest.fixture(autouse=True)
def _compile_anew() -> None:
    import torch._dynamo

    torch._dynamo.reset()


@pytest.mark.parametrize("stance", [True, False])
def test_compiled_modules_run_as_written_for_a_while_and_compiled_again(
    monkeypatch: pytest.MonkeyPatch, stance: bool
) -> None:
    if stance and not torch_compat.HAS_STANCE:
        pytest.skip("this torch has no stances")
    monkeypatch.setattr(torch_compat, "HAS_STANCE", stance)
    compiler, module, images = Counting(), Doubled(), torch.ones(1, 3)
    module.compile(backend=compiler)
    expected = module(images)
    assert compiler.runs == 1
    with torch_compat.run_eagerly([module]):
        assert torch.equal(module(images), expected)
    assert compiler.runs == 1
    with pytest.raises(KeyError), torch_compat.run_eagerly([module]):
        raise KeyError
    assert torch.equal(module(images), expected)
    assert compiler.runs == 2


def test_a_script_that_compiles_can_be_kept_from_it() -> None:
    class Tripled(Doubled):  # code that was passed over is not compiled later, in torch 2.4
        def forward(self, images: Tensor) -> Tensor:
            made: Tensor = 3 * self.inside(images)
            return made

    compiler, images = Counting(), torch.ones(1, 3)
    with torch_compat.disable_compilation():
        torch.compile(Tripled(), backend=compiler)(images)
    assert compiler.runs == 0
    torch.compile(Doubled(), backend=compiler)(images)
    assert compiler.runs == 1


@pytest.mark.parametrize("name", ["recompile_limit", "cache_size_limit"])
def test_the_limit_of_recompiles_is_raised_by_either_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    import torch._dynamo

    config = SimpleNamespace(**{name: 8})
    monkeypatch.setattr(torch._dynamo, "config", config)
    torch_compat.allow_recompiles(64)
    torch_compat.allow_recompiles(16)
    assert vars(config) == {name: 64}


def test_seconds_of_compiling_grow_with_what_is_compiled() -> None:
    before = torch_compat.get_compile_seconds()
    torch.compile(Doubled(), backend=Counting())(torch.ones(1, 3))
    assert torch_compat.get_compile_seconds() > before


def test_the_switches_of_tf32_are_read_by_the_names_that_torch_2_8_has(monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimpleNamespace(
        cudnn=SimpleNamespace(allow_tf32=True), cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False))
    )
    monkeypatch.setattr(torch, "backends", old)
    assert torch_compat.read_tf32_switches() == {"convolutions": True, "products": False}


@pytest.mark.parametrize("most", [0.5, 100.0])
def test_gradients_are_clipped_to_the_same_bits_without_the_function_of_torch_2_6(
    monkeypatch: pytest.MonkeyPatch, most: float
) -> None:
    parameters = [nn.Parameter(torch.zeros(size)) for size in (3, 5, 2)]
    for parameter in parameters[:2]:
        parameter.grad = torch.randn_like(parameter)
    plain = [parameter.grad.clone() for parameter in parameters[:2] if parameter.grad is not None]
    norm = nn.utils.clip_grad_norm_(parameters, most)
    expected = [parameter.grad for parameter in parameters[:2]]
    for parameter, gradient in zip(parameters, plain, strict=False):
        parameter.grad = gradient
    monkeypatch.delattr(nn.utils, "clip_grads_with_norm_", raising=False)
    torch_compat.clip_gradients(parameters, most, norm)
    for parameter, gradient in zip(parameters, expected, strict=False):
        torch.testing.assert_close(parameter.grad, gradient, rtol=0, atol=0)


def test_only_the_profilers_warning_about_cycles_is_hidden() -> None:
    with torch_compat.hide_profiler_cycle_warning():
        warnings.warn("Warning: Profiler clears events at the end of each cycle.Only events from …", stacklevel=1)
        with pytest.raises(UserWarning, match="another"):
            warnings.warn("another", stacklevel=1)
