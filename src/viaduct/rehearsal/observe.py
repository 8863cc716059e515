"""Observations for a comparison: losses of each step, gradients of the first, weights at the end.

RECORD is the rehearsal's record folder. A fingerprint is made by `compute_fingerprint`.

    RECORD/observed/rank-0/steps.jsonl       {"step": 0, "losses": [2.31], "lr": [0.1], "inputs": [3.2, 96.0],
                                             "at": [13.2, 2.5]}; `at` is monotonic and process time in seconds,
                                             `inputs` fingerprints of the networks' inputs (with `plan.inspect`)
    RECORD/observed/rank-0/losses.npz        the same losses: "0 0" is the first of step 0
    RECORD/observed/rank-0/gradients.npz     of step 0, by parameter name
    RECORD/observed/rank-0/weights.npz       when the script ended or was stopped; buffers too
    RECORD/observed/rank-0/evaluations.jsonl fingerprints of outputs computed without gradients, one line for each
                                             of the first MAX_EVALUATIONS calls; empty unless `plan.inspect`

A loss is a tensor on which `backward` is called, before a GradScaler's factor, or the value that torch.autograd.grad or
torch.func.grad differentiates. Of a loss with several elements the mean is recorded. Parameters have the names of the
outermost module that is called, without the `module.` and `_orig_mod.` of wrappers. With a second network each has a
number: `1.fc.weight`. A parameter outside of any network is named by its position in the optimizer: `optimizer.0.0.3`;
without an optimizer, by its position among the tensors that the loss depends on: `tensor.3`.
"""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.rehearsal.inspection import MAX_ELEMENTS, Inspection, iterate_tensors
from viaduct.rehearsal.limits import blame_viaduct
from viaduct.rehearsal.perturbation import perturb_network
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.wrapping import wrap
from viaduct.scripts.network_calls import NetworkCalls

if TYPE_CHECKING:
    import numpy
    import torch
    from torch import nn

EVALUATIONS_FILE = "evaluations.jsonl"
MAX_EVALUATIONS = 10_000  # calls of networks without gradients that are recorded
MAX_INPUT_SUMS = 1000  # numbers in a step's input fingerprints; after them no further input is recorded
_UNSCALED = "_viaduct_unscaled"  # attribute of a scaled loss: the loss before it was scaled


def find_rank_folder(record: str | Path, rank: int) -> Path:
    return Path(record) / "observed" / f"rank-{rank}"


class Observation:
    """Records losses, gradients and weights of a PyTorch script; called by `counting.py` at updates and step ends."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.networks: list[nn.Module] = []
        self._optimizers: list[torch.optim.Optimizer] = []
        self._losses: list[torch.Tensor] = []  # of this step
        self._inputs: list[float] = []  # fingerprints of the networks' inputs in this step
        self._steps: list[dict[str, Any]] = []  # the lines of steps.jsonl
        # Gradients of the first step: as an optimizer gets them, and for scripts without one, after a backward pass.
        self._gradients: dict[str, numpy.ndarray[Any, Any]] = {}
        self._raw_gradients: dict[str, numpy.ndarray[Any, Any]] = {}
        self.trained: list[torch.Tensor] = []  # without an optimizer: the trained tensors that the last loss depends on
        self._inside = False  # a wrapped backward is running
        self._inspection = Inspection() if plan.inspect else None
        self._evaluations: list[str] = []
        self._network_calls = NetworkCalls(self._on_call, self._on_return)

    def start(self) -> None:
        import torch

        self._network_calls.__enter__()
        self._wrap_backward(torch.Tensor)
        self._wrap_backward(torch.autograd)
        self._wrap_scale(torch.amp.GradScaler)
        if self._inspection:
            self._inspection.start()

    def close(self) -> None:
        """Remove the hooks on modules; backward and GradScaler stay wrapped."""
        self._network_calls.__exit__()

    @blame_viaduct()
    def _on_call(self, module: nn.Module, args: Any) -> None:
        """Remember a network that trains when it is first called; inspect it and its inputs."""
        network = unwrap_module(module)
        is_trained = any(parameter.requires_grad for parameter in network.parameters())
        if is_trained and not any(network is known for known in self.networks):
            # Of networks within each other only the outermost is in the list.
            self.networks = [known for known in self.networks if not contains(network, known)]
            if not any(contains(known, network) for known in self.networks):
                self.networks.append(network)
                if self.plan.perturb and not self._steps:
                    perturb_network(network)
        if self._inspection:
            self._inspection.record_inputs(network, args)
            if is_trained:
                self._inspection.record_network(network, module)

    @blame_viaduct()
    def _on_return(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Record the fingerprint of a network's inputs, or of its output where gradients are off: an evaluation."""
        import torch

        if not self.plan.inspect or not any(True for _ in unwrap_module(module).parameters()):
            return
        if torch.is_grad_enabled():
            if len(self._inputs) < MAX_INPUT_SUMS:
                self._inputs += compute_fingerprint((args, kwargs))
        elif len(self._evaluations) < MAX_EVALUATIONS:
            self._evaluations.append(json.dumps(compute_fingerprint(output)))

    def _wrap_backward(self, owner: Any) -> None:
        """Wrap Tensor.backward or torch.autograd.backward to record the losses."""

        @wrap(owner, "backward")
        def backward(plain: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return plain(loss, *args, **kwargs)
            self._inside = True
            try:
                losses: Any = loss if isinstance(loss, (tuple, list)) else [loss]
                self._losses += [getattr(value, _UNSCALED, value).detach() for value in losses]
                if self._inspection:
                    self._inspection.record_loss()
                return plain(loss, *args, **kwargs)
            finally:
                self._inside = False

    def _wrap_scale(self, scaler: Any) -> None:
        """Wrap GradScaler.scale so that a scaled loss stores its unscaled value."""

        @wrap(scaler, "scale")
        def scale(plain: Any, self: Any, outputs: Any) -> Any:
            scaled = plain(self, outputs)
            if scaled is not outputs and hasattr(scaled, "backward"):
                setattr(scaled, _UNSCALED, outputs.detach())
            return scaled

    def before_update(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Remember the optimizer; in step 0, record the gradients that it is going to use."""
        if not any(optimizer is known for known in self._optimizers):
            self._optimizers.append(optimizer)
        if step:
            return
        for name, parameter in self.find_named_tensors().items():
            if parameter.grad is not None and name not in self._gradients:
                self._gradients[name] = as_array(parameter.grad)

    def record_gradients(self) -> None:
        """Record the gradients after a backward pass of the first step, for scripts in which no optimizer gets any."""
        parameters = self.find_named_tensors().items()
        self._raw_gradients |= {name: as_array(value.grad) for name, value in parameters if value.grad is not None}

    def record_function_gradients(
        self, loss: torch.Tensor, trained: list[torch.Tensor], gradients: list[torch.Tensor | None]
    ) -> None:
        """Record the loss, inputs and gradients of a function such as torch.autograd.grad.

        `gradients` is empty after the first step; else it has one entry for each of `trained`, None for an unused one.
        """
        self.trained = trained
        self._losses.append(loss.detach())
        names = {id(value): name for name, value in self.find_named_tensors().items()}
        for tensor, gradient in zip(trained, gradients, strict=False):
            if gradient is not None and id(tensor) in names:
                self._raw_gradients[names[id(tensor)]] = as_array(gradient)

    def end_step(self, step: int, optimizer: torch.optim.Optimizer | None) -> None:
        """Record losses, inputs and times of a step, and the learning rates of the optimizer that stepped last."""
        rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group] if optimizer else []
        losses = [float(loss.detach().cpu().double().mean()) for loss in self._losses if loss.numel()]
        times = (time.monotonic(), time.process_time())
        self._steps.append({"step": step, "losses": losses, "lr": rates, "inputs": self._inputs, "at": times})
        self._losses, self._inputs = [], []
        if self._inspection:
            self._inspection.finish_step(self._optimizers)

    def find_named_tensors(self, with_buffers: bool = False) -> dict[str, torch.Tensor]:
        """Return the parameters, with `with_buffers` also the buffers, by name (see the module's docstring)."""
        tensors: dict[str, torch.Tensor] = {}
        for prefix, network in self._map_prefixes().items():
            pairs = [*network.named_parameters(), *(network.named_buffers() if with_buffers else ())]
            tensors |= {prefix + name.replace("_orig_mod.", ""): value for name, value in pairs}
        return tensors | self._name_other_parameters(tensors)

    def _map_prefixes(self) -> dict[str, nn.Module]:
        """Return the networks by the prefixes of their parameters' names."""
        return {f"{number}." if len(self.networks) > 1 else "": network for number, network in enumerate(self.networks)}

    def _name_other_parameters(self, named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the parameters that no network holds, named by their positions (see the module's docstring)."""
        named_ids = {id(value) for value in named.values()}
        if not self._optimizers:
            trained = enumerate(self.trained)
            return {f"tensor.{number}": value for number, value in trained if id(value) not in named_ids}
        return {
            f"optimizer.{number}.{group}.{position}": value
            for number, optimizer in enumerate(self._optimizers)
            for group, parameters in enumerate(optimizer.param_groups)
            for position, value in enumerate(parameters["params"])
            if id(value) not in named_ids
        }

    def write(self, rank: int) -> None:
        """Write the observations of this rank; without a step write nothing."""
        if not self._steps:
            return
        folder = find_rank_folder(self.plan.record_folder, rank)
        folder.mkdir(parents=True, exist_ok=True)
        write_steps(folder, self._steps)
        (folder / EVALUATIONS_FILE).write_text("".join(line + "\n" for line in self._evaluations), encoding="utf-8")
        save_arrays(folder / "gradients.npz", self._gradients or self._raw_gradients)
        weights = {name: as_array(value) for name, value in self.find_named_tensors(with_buffers=True).items()}
        save_arrays(folder / "weights.npz", weights)
        if self._inspection:
            self._inspection.write(folder, self._map_prefixes(), self._optimizers)


def write_steps(folder: Path, steps: list[dict[str, Any]]) -> None:
    """Write steps.jsonl, and the losses again as arrays in losses.npz, for `viaduct compare`."""
    import numpy

    text = "".join(json.dumps(step) + "\n" for step in steps)
    (folder / "steps.jsonl").write_text(text, encoding="utf-8")
    losses = {
        f"{step['step']} {number}": numpy.array(loss) for step in steps for number, loss in enumerate(step["losses"])
    }
    save_arrays(folder / "losses.npz", losses)


def compute_fingerprint(value: Any) -> list[float]:
    """Return two sums for each non-empty tensor: of its elements, weighted by position, and of their absolute values.

    The weights make a permutation of the elements visible. Only every nth element of a large tensor is summed, and
    tensors of the dtypes that `compute_sums` names have no sums.
    """
    return [number for tensor in iterate_tensors(value) for number in compute_sums(tensor)]


def compute_sums(tensor: torch.Tensor) -> list[float]:
    """Return the sums of `compute_fingerprint` for a non-empty tensor; none for complex, sparse and sub-byte dtypes."""
    import torch

    plain = tensor.detach().cpu()
    if plain.is_complex() or plain.layout is not torch.strided or plain.dtype.itemsize == 0:
        return []
    flat = plain.reshape(-1)
    stride = -(-flat.numel() // MAX_ELEMENTS)  # rounded up
    wide = flat[::stride].double()
    weights = torch.cos(torch.arange(wide.numel(), dtype=torch.float64))
    return [float((wide * weights).sum()), float(wide.abs().sum())]


def save_arrays(path: Path, arrays: Mapping[str, numpy.ndarray[Any, Any]]) -> None:
    """Write an .npz file like numpy.savez, which cannot write an array called `file`."""
    import numpy

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                numpy.save(file, numpy.asanyarray(array, order="C"), allow_pickle=False)


def unwrap_module(module: nn.Module) -> nn.Module:
    """Return the network inside any nesting of DistributedDataParallel, DataParallel and torch.compile."""
    import torch

    kinds = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    inner: Any = module
    while isinstance(inner, kinds) or hasattr(inner, "_orig_mod"):
        inner = inner.module if isinstance(inner, kinds) else inner._orig_mod
    network: nn.Module = inner
    return network


def contains(outer: nn.Module, inner: nn.Module) -> bool:
    return any(module is inner for module in outer.modules())


def as_array(tensor: torch.Tensor) -> numpy.ndarray[Any, Any]:
    """Return a copy of a tensor as a dense array; dtypes that NumPy does not have, such as bfloat16, become float32."""
    import torch

    dense = (tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()).cpu()
    try:
        array: numpy.ndarray[Any, Any] = dense.numpy()
    except TypeError:
        array = dense.to(torch.complex64 if dense.is_complex() else torch.float32).numpy()
    return array.copy()
