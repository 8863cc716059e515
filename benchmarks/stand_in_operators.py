"""Run every operator of PyTorch's operator database on the stand-in devices, and compare with the CPU bit for bit.

    python benchmarks/stand_in_operators.py --out docs/results/stand_in_operators_cpu.json   # all: 15 minutes
    python benchmarks/stand_in_operators.py --on npu --only 'nn.functional.*' --dtypes float32
    python benchmarks/stand_in_operators.py --every 16 --samples 4                           # a sample of it

A case is an operator with a data type. PyTorch's own sample inputs are computed on the CPU and on the device: the
call with its gradients, the in-place variant, and the variant with `out=`, both of the right shape and empty. Results
must be on the device and have the CPU's bits, shape, strides and data type; random operators get the same seed. The
device must refuse a call that the CPU refuses. Calls that a documented limit of the card forbids (float64 on an NPU)
are counted separately. Cases run in child processes; a case that crashes counts as failed, and the next case runs.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import json
import os
import queue
import subprocess
import sys
import threading
import time
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from viaduct.rehearsal.limits import CardRefuses

STAGES = ("cuda", "npu", "mlu")
DTYPES = ("float32", "bfloat16", "int64", "int32", "complex64", "bool")
OUTCOMES = ("equal", "refused by a limit", "refused by the CPU", "differs", "fails", "crashes")
SECONDS = 120.0  # timeout of one case

# Operators that return uninitialized memory: only shape, strides and data type are compared.
UNINITIALISED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
)
# Operators whose indices must be on the host.
ON_HOST = ("tensor_split",)
# Known differences: case and reason, for the table.
_ACCUMULATES = (
    "PyTorch uses another algorithm on an accelerator: products are summed in float32, on the CPU in bfloat16."
)
KNOWN = {
    "nn_functional_linear_cross_entropy_chunked": _ACCUMULATES,
    "nn_functional_linear_cross_entropy_chunked_none": _ACCUMULATES,
}


@dataclass
class Outcome:
    """Result of one operator with one data type on one device."""

    stage: str
    operator: str
    dtype: str
    outcome: str
    comparisons: int = 0
    refused: int = 0  # calls that a documented limit of the card refuses
    unrepeatable: int = 0  # calls whose results differ on the CPU from one time to the next
    reason: str = ""

    @property
    def is_in_order(self) -> bool:
        return self.outcome in ("equal", "refused by a limit", "refused by the CPU")


class Mismatch(Exception):
    """The device's result differs from the CPU's."""


def import_operators() -> list[Any]:
    """Return PyTorch's operator database; replace expecttest if it is not installed."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        stand_in: Any = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def list_cases(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return operators with the data types that their CPU kernels support."""
    operators = [op for op in import_operators() if fnmatch.fnmatchcase(op.formatted_name, options.only)]
    kinds = [getattr(torch, name) for name in options.dtypes]
    cases = [
        (op.formatted_name, str(kind).removeprefix("torch."))
        for op in operators
        for kind in kinds
        if op.supports_dtype(kind, "cpu")
    ]
    return list(dict.fromkeys(cases))[:: options.every]


# In the child.


def serve(stage: str, samples: int, crash: str) -> None:
    """Run the cases named on stdin, and write each outcome to stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the operators
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    operators = {op.formatted_name: op for op in import_operators()}
    from viaduct.rehearsal import torch_stage

    if stage == "cuda":
        torch_stage.install_cuda_as_cpu()
    else:
        torch_stage.install(stage)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        name, dtype = json.loads(line)
        if name == crash:
            os.abort()
        outcome = Case(operators[name], getattr(torch, dtype), stage, samples).run()
        print(json.dumps(asdict(outcome)), file=answers, flush=True)


class Case:
    """One operator with one data type."""

    def __init__(self, operator: Any, dtype: torch.dtype, stage: str, samples: int) -> None:
        self.operator = operator
        self.dtype = dtype
        self.stage = stage
        self.samples = samples
        self.comparisons = 0
        self.refused = 0
        self.unrepeatable = 0
        self.uninitialised = operator.name in UNINITIALISED

    def run(self) -> Outcome:
        outcome, reason = "equal", ""
        try:
            for sample in self.make_samples():
                self.compare_sample(sample)
            if self.refused and not self.comparisons:
                outcome, reason = "refused by a limit", "float64"
            elif not self.comparisons:
                outcome, reason = "refused by the CPU", "nothing could be compared"
        except Mismatch as error:
            outcome, reason = "differs", str(error)
        except Exception as error:
            outcome, reason = "fails", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        name, dtype = self.operator.formatted_name, str(self.dtype).removeprefix("torch.")
        return Outcome(self.stage, name, dtype, outcome, self.comparisons, self.refused, self.unrepeatable, reason)

    def make_samples(self) -> Iterator[Any]:
        """Yield PyTorch's samples; if `samples` limits them, evenly spaced ones."""
        torch.manual_seed(0)
        made = self.operator.sample_inputs("cpu", self.dtype, requires_grad=self.has_backward())
        held = [sample for sample in made if not names_cuda((sample.input, *sample.args), sample.kwargs)]
        yield from held[:: max(1, -(-len(held) // self.samples))] if self.samples else held

    def has_backward(self) -> bool:
        return bool(self.operator.supports_autograd and self.dtype in self.operator.supported_backward_dtypes("cpu"))

    def compare_sample(self, sample: Any) -> None:
        self.compare("", self.operator.op, sample, backward=self.has_backward())
        inplace = self.operator.inplace_variant
        if inplace is not None and not sample.broadcasts_input:
            self.compare("in place: ", lambda x, *args, **kwargs: inplace(copy_tensors(x), *args, **kwargs), sample)
        if self.operator.supports_out:
            self.compare("out=: ", self.call_with_out(empty=False), sample)
            self.compare("empty out=: ", self.call_with_out(empty=True), sample)

    def call_with_out(self, empty: bool) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            state = torch.get_rng_state()
            with torch.no_grad():
                made = self.operator.op(*args, **kwargs)
                torch.set_rng_state(state)
                tensors = [made] if isinstance(made, torch.Tensor) else list(made)
                outs = [x.new_empty(0) if empty else torch.empty_like(x) for x in tensors]
                out = outs[0] if isinstance(made, torch.Tensor) else tuple(outs)
                self.operator.op(*detach(args), **detach(kwargs), out=out)
            return outs

        return call

    def compare(self, prefix: str, call: Callable[..., Any], sample: Any, backward: bool = False) -> None:
        """Run a call on the CPU and on the device; raise Mismatch if the results differ."""
        inputs = (sample.input, *sample.args), sample.kwargs
        expected, wrong = attempt(lambda: self.compute(call, inputs, sample, backward))
        found, refused = attempt(lambda: self.compute_on_card(call, inputs, sample, backward))
        where = f"{prefix}{summarize(sample)}"
        if wrong is not None:
            if refused is None:
                raise Mismatch(f"{where}: the CPU refuses it ({first_line(wrong)}), the device computes it")
            return
        if isinstance(refused, CardRefuses):
            self.refused += 1
            return
        if refused is not None:
            raise refused
        difference = find_difference(expected, found, self.stage, self.uninitialised)
        if not difference:
            self.comparisons += len(expected)
            return
        repeated, _ = attempt(lambda: self.compute(call, inputs, sample, backward))
        if find_difference(expected, repeated, "cpu", self.uninitialised):
            self.unrepeatable += 1
            return
        raise Mismatch(f"{where}: {difference}")

    def compute_on_card(self, call: Callable[..., Any], inputs: Any, sample: Any, backward: bool) -> list[Any]:
        (first, *others), named = inputs
        if self.operator.name in ON_HOST:
            moved: Any = (move(first, self.stage), *others), named
        else:
            moved = move(inputs, self.stage)
        if any(isinstance(leaf, torch.Tensor) for leaf in flatten(inputs)):
            return self.compute(call, moved, sample, backward)
        with torch.device(self.stage):  # an operator that takes no tensor makes one on the default device
            return self.compute(call, moved, sample, backward)

    def compute(self, call: Callable[..., Any], inputs: Any, sample: Any, backward: bool) -> list[Any]:
        args, kwargs = inputs
        torch.manual_seed(1)
        result = call(*args, **kwargs)
        values = flatten(result)
        if not backward:
            return values
        leaves = [x for x in flatten(inputs) if isinstance(x, torch.Tensor) and x.requires_grad]
        outputs = [x for x in flatten(sample.output_process_fn_grad(result)) if is_differentiable(x)]
        if not leaves or not outputs:
            return values
        torch.manual_seed(2)
        slopes = [torch.randn(x.shape, dtype=x.dtype).to(x.device) for x in outputs]
        return values + list(torch.autograd.grad(outputs, leaves, slopes, allow_unused=True))


def names_cuda(*inputs: Any) -> bool:
    """Return True if a sample contains a CUDA device."""
    devices = [leaf.device if isinstance(leaf, torch.Tensor) else leaf for leaf in flatten(inputs)]
    return any(isinstance(device, str | torch.device) and str(device).startswith("cuda") for device in devices)


def attempt(compute: Callable[[], list[Any]]) -> tuple[list[Any], Exception | None]:
    try:
        return compute(), None
    except Exception as error:
        return [], error


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def is_differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def flatten(value: Any) -> list[Any]:
    """Return the leaves of nested lists, tuples and dicts, in order."""
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in flatten(part)]
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in flatten(part)]
    return [value]


def map_nested(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_nested(function, part) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(map_nested(function, part) for part in value)
    if isinstance(value, dict):
        return {key: map_nested(function, part) for key, part in value.items()}
    return function(value)


def copy_tensors(value: Any) -> Any:
    return map_nested(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, value)


def detach(value: Any) -> Any:
    return map_nested(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, value)


def move(value: Any, device: str) -> Any:
    """Move inputs to the device: tensors keep their strides, device arguments are replaced."""

    def move_leaf(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return move_tensor(leaf, device)
        if isinstance(leaf, torch.device) or leaf == "cpu":
            return torch.device(device)
        return leaf

    return map_nested(move_leaf, value)


def move_tensor(tensor: torch.Tensor, device: str) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        return tensor.detach().to(device).requires_grad_(tensor.requires_grad)
    held = tensor.detach()
    marked = held.is_conj() or held.is_neg()
    storage = held.resolve_conj().resolve_neg() if marked else held
    length = storage.untyped_storage().nbytes() // storage.element_size()
    memory = torch.as_strided(storage, (length,), (1,), 0).to(device)
    made = memory.as_strided(storage.shape, storage.stride(), storage.storage_offset())
    if held.is_conj():
        made = made.conj_physical().conj()
    return made.detach().requires_grad_(tensor.requires_grad)


def find_difference(expected: list[Any], found: list[Any], device: str, uninitialised: bool) -> str:
    """Describe the first difference from the CPU's results; empty if they are equal."""
    if len(expected) != len(found):
        return f"{len(expected)} results on the CPU, {len(found)} on the device"
    for number, (ours, theirs) in enumerate(zip(expected, found, strict=True)):
        if isinstance(ours, torch.Tensor) is not isinstance(theirs, torch.Tensor):
            return f"result {number} is {type(ours).__name__} on the CPU, {type(theirs).__name__} on the device"
        if isinstance(ours, torch.Tensor):
            difference = compare_tensors(ours.detach(), theirs.detach(), device, uninitialised)
            if difference:
                return f"result {number}: {difference}"
        elif not isinstance(ours, torch.device) and not is_same_value(ours, theirs):
            return f"result {number} is {ours!r} on the CPU, {theirs!r} on the device"
    return ""


def is_same_value(ours: Any, theirs: Any) -> bool:
    return bool(ours == theirs or (ours != ours and theirs != theirs))


def compare_tensors(ours: torch.Tensor, theirs: torch.Tensor, device: str, uninitialised: bool) -> str:
    if theirs.device.type != device:
        return f"it is on {theirs.device}"
    for name in ("layout", "dtype", "shape"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"{name} {getattr(ours, name)} on the CPU, {getattr(theirs, name)} on the device"
    if ours.layout is not torch.strided:
        ours, theirs = ours.to_dense(), theirs.to_dense()
    elif ours.stride() != theirs.stride() and ours.numel():
        return f"strides {ours.stride()} on the CPU, {theirs.stride()} on the device"
    if uninitialised or read_bytes(ours) == read_bytes(theirs.cpu()):
        return ""
    gap = (ours.to(torch.complex128) - theirs.cpu().to(torch.complex128)).abs().max().item()
    return f"values differ, by {gap:.2g} at most"


def read_bytes(tensor: torch.Tensor) -> bytes:
    if tensor._is_zerotensor():
        return bytes(tensor.numel() * tensor.element_size())
    plain = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return bytes(plain.view(-1).as_strided((plain.numel(),), (1,)).view(torch.uint8).numpy().tobytes())


def summarize(sample: Any) -> str:
    """Format a sample's shapes and arguments like a call."""

    def show(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, list | tuple):
            return f"({', '.join(map(show, value))})"
        return repr(value)

    keywords = [f"{name}={show(value)}" for name, value in sample.kwargs.items()]
    return f"({', '.join([show(sample.input), *map(show, sample.args), *keywords])[:160]})"


# In the parent.


class Child:
    """Process that runs cases; restarted after a crash."""

    def __init__(self, stage: str, options: argparse.Namespace) -> None:
        self.stage = stage
        self.options = ["--samples", str(options.samples), "--crash", options.crash]
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str] = queue.Queue()
        self.served = 0

    def start(self) -> None:
        command = [sys.executable, __file__, "--serve", self.stage, *self.options]
        limits = "off" if self.stage == "cuda" else "error"
        environment = {**os.environ, "VIADUCT_LIMITS": limits, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.served, self.lines = 0, queue.Queue()
        threading.Thread(target=self.read, args=(self.process, self.lines), daemon=True).start()
        if self.lines.get(timeout=SECONDS) != "ready":
            raise SystemExit(f"stand_in_operators: the process with the device {self.stage} does not start.")

    @staticmethod
    def read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
        lines.put("")

    def run(self, operator: str, dtype: str) -> Outcome:
        if self.process is None or self.served >= 200:  # a process does not grow without bound
            self.end()
            self.start()
        assert self.process is not None
        assert self.process.stdin is not None
        self.served += 1
        try:
            self.process.stdin.write(json.dumps([operator, dtype]) + "\n")
            self.process.stdin.flush()
            answer = self.lines.get(timeout=SECONDS)
        except queue.Empty:
            answer, reason = "", f"not done after {SECONDS:.0f} s"
        except BrokenPipeError:
            answer, reason = "", "its process ended"
        else:
            reason = "its process ended"
        if answer:
            return Outcome(**json.loads(answer))
        self.process.kill()
        code = self.process.wait()
        self.process = None
        return Outcome(self.stage, operator, dtype, "crashes", reason=f"{reason} (exit code {code})")

    def end(self) -> None:
        if self.process is not None and self.process.stdin:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def run_stage(stage: str, cases: list[tuple[str, str]], options: argparse.Namespace) -> list[Outcome]:
    """Run all cases on one device, in --jobs processes."""
    waiting: queue.Queue[tuple[str, str]] = queue.Queue()
    for case in cases:
        waiting.put(case)
    outcomes: list[Outcome] = []

    def work() -> None:
        child = Child(stage, options)
        while True:
            try:
                case = waiting.get_nowait()
            except queue.Empty:
                break
            outcomes.append(outcome := child.run(*case))
            if not outcome.is_in_order:
                print_note(f"{stage} {outcome.operator} {outcome.dtype}: {outcome.outcome}: {outcome.reason}")
        child.end()

    threads = [threading.Thread(target=work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(outcomes, key=lambda outcome: (outcome.operator, outcome.dtype))


def count_outcomes(outcomes: list[Outcome]) -> dict[str, int]:
    counts = collections.Counter(outcome.outcome for outcome in outcomes)
    return {name: counts[name] for name in OUTCOMES}


def count_comparable(counts: dict[str, int]) -> int:
    """Return the number of cases that were refused neither by the CPU nor by a limit of the card."""
    return sum(counts.values()) - counts["refused by a limit"] - counts["refused by the CPU"]


def make_rows(outcomes: list[Outcome]) -> list[dict[str, str]]:
    """Return a row for each device and data type."""
    rows = []
    for stage, dtype in dict.fromkeys((outcome.stage, outcome.dtype) for outcome in outcomes):
        counted = [outcome for outcome in outcomes if (outcome.stage, outcome.dtype) == (stage, dtype)]
        counts = count_outcomes(counted)
        allowed = count_comparable(counts)
        wrong = [f"{outcome.operator} ({outcome.outcome})" for outcome in counted if not outcome.is_in_order]
        rows.append(
            {
                "device": stage,
                "data type": dtype,
                "operators": str(len(counted)),
                "refused by a limit": str(counts["refused by a limit"]),
                "refused by the CPU": str(counts["refused by the CPU"]),
                "equal": str(counts["equal"]),
                "some calls refused": str(sum(o.outcome == "equal" and o.refused > 0 for o in counted)),
                "share": f"{100 * counts['equal'] / max(1, allowed):.2f} %",
                "results compared": f"{sum(outcome.comparisons for outcome in counted):,}",
                "others": ", ".join(wrong),
            }
        )
    return rows


def make_record(outcomes: list[Outcome], options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Return the record for docs/results/, from which `make results` makes a table."""
    from run_description import describe_run

    from viaduct import devices

    rows = make_rows(outcomes)
    return {
        "kind": "benchmark",
        "title": "PyTorch's operator database on the stand-in devices, against the CPU",
        "note": make_note(outcomes, seconds),
        **describe_run(devices.get("cpu")),
        "columns": list(rows[0]),
        "rows": rows,
        "samples": {
            "not equal": [
                asdict(outcome) for outcome in outcomes if outcome.outcome != "equal" or outcome.unrepeatable
            ],
            "equal": collections.Counter(f"{o.stage} {o.operator}" for o in outcomes if o.outcome == "equal"),
        },
    }


def make_note(outcomes: list[Outcome], seconds: float) -> str:
    counts = count_outcomes(outcomes)
    allowed = count_comparable(counts)
    reasons = {f"{o.operator} {o.dtype}": o.reason for o in outcomes if not o.is_in_order}
    unrepeatable = sorted({o.operator for o in outcomes if o.unrepeatable})
    limited = sorted({o.operator for o in outcomes if o.outcome == "refused by a limit"})
    absent = sorted({o.operator for o in outcomes if o.outcome == "refused by the CPU"})
    lines = [
        f"{counts['equal']} of {allowed} cases (operator, data type, device) equal the CPU's bit for bit, "
        f"{100 * counts['equal'] / max(1, allowed):.2f} %, in {seconds / 60:.0f} minutes. Not equal or not counted:",
        "",
        *(f"- `{case}`: {KNOWN.get(case.split()[0], reason)}" for case, reason in sorted(reasons.items())),
        f"- refused by the card's limit `float64`, which these ask for: {', '.join(limited) or 'none'}",
        f"- refused by the CPU itself, so that nothing can be compared: {', '.join(absent) or 'none'}",
        f"- some results differ on the CPU from call to call, and are not counted: {', '.join(unrepeatable) or 'none'}",
    ]
    return "\n".join(lines)


def print_note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", nargs="+", choices=STAGES, default=list(STAGES), help="the devices to try")
    parser.add_argument("--only", default="*", help="operators whose name fits, e.g. 'nn.functional.*'")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES[:4]))
    parser.add_argument("--every", type=int, default=1, help="take every Nth case")
    parser.add_argument("--samples", type=int, default=0, help="at most so many inputs of a case; 0 is all")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    parser.add_argument("--crash", default="", help="abort the process at this operator, to try the script itself")
    parser.add_argument("--serve", choices=STAGES, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = read_options()
    if options.serve:
        serve(options.serve, options.samples, options.crash)
        return
    begun = time.monotonic()
    cases = list_cases(options)
    outcomes = [outcome for stage in options.on for outcome in run_stage(stage, cases, options)]
    for row in make_rows(outcomes):
        print(f"{row['device']} {row['data type']}: {row['equal']} of {row['operators']} equal, ", end="")
        print(f"{row['refused by a limit']} refused by a limit ({row['share']})")
    if options.out:
        record = make_record(outcomes, options, time.monotonic() - begun)
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    sys.exit(0 if all(outcome.is_in_order for outcome in outcomes) else 1)


if __name__ == "__main__":
    main()
