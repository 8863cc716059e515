"""Compare the inference engine of `viaduct serve` with the unchanged network, torch.compile and ONNX Runtime.

    python benchmarks/inference.py --device cuda --batch 1,8,64,256
    PYTHONPATH=.venv/onnx python benchmarks/inference.py --device cpu --network resnet18_v1 --batch 1,8,16

All variants run the same network with the same weights, inputs and precision. The inputs are already on the device,
and the variants take turns in short windows. torch.compile runs in its default mode and with CUDA graphs
(mode="reduce-overhead"). ONNX Runtime runs the network as torch.onnx exports it, if the extra `onnx` is installed and
a provider for the device exists. The script prints milliseconds and images/s, and how many times faster the engine is
than the best of the others.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from run_description import describe_run
from torch import Tensor, nn

from viaduct import devices, models
from viaduct.devices.base import Device
from viaduct.devices.timing import Clock, Sample, compute_speedup, take_turns
from viaduct.errors import ViaductError
from viaduct.handover.engine import capture_pass
from viaduct.handover.folding import fold_batch_norms
from viaduct.handover.fusing import choose_kernels, fuse_convolutions
from viaduct.training.networks import place_model
from viaduct.training.precision import DTYPES

OURS = "viaduct"
NOTE = "Inputs lie ready on the device; all variants compute the same network in the same precision and take turns."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="resnet50_v1")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=sorted(DTYPES), help="default: bf16 on an accelerator, fp32 on the CPU")
    parser.add_argument("--batch", default="1,8,64,256", help="batch sizes, with commas between them")
    parser.add_argument("--windows", type=int, default=15, help="turns of each variant")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn, about")
    parser.add_argument("--without", default="", help="variants to leave out, with commas between them")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    try:
        measure_all(options, [int(number) for number in options.batch.split(",")])
    except ViaductError as error:
        sys.exit(str(error))


def measure_all(options: argparse.Namespace, batches: list[int]) -> None:
    room, device = devices.pick(options.device)
    precision = options.precision or ("fp32" if device.type == "cpu" else "bf16")
    torch.manual_seed(0)
    network = calibrate_batch_norms(models.build(options.network, classes=1000), options.size)
    print(f"{options.network} at {options.size}, {precision}, {room.describe_card()}, torch {torch.__version__}")
    rows = []
    for batch in batches:
        variants = build_variants(network, options, batch, device, precision)
        row = measure(variants, Clock(room, device.type), options)
        rows.append({"batch": batch, **row})
        print_row(rows[-1])
    if options.out:
        record = make_record(options, rows, precision, room)
        options.out.write_text(json.dumps(record, indent=1) + "\n")


def make_record(
    options: argparse.Namespace, rows: list[dict[str, Any]], precision: str, room: Device
) -> dict[str, Any]:
    """Return the record of a measurement for docs/results/."""
    names = list(rows[0]["milliseconds"])
    table = []
    for row in rows:
        rates = {name: f"{1000 * row['batch'] / row['milliseconds'][name]:,.0f}" for name in names}
        best = row["best_other"]
        against = f"{row['times_faster'][best]:.2f} times {best}" if best else ""
        table.append({"batch": row["batch"], **rates, "viaduct against the best other": against})
    return {
        "kind": "benchmark",
        "title": f"Inference of {options.network} at {options.size}, {precision}: images/s",
        **describe_run(room),
        "note": NOTE,
        "columns": list(table[0]),
        "rows": table,
        "samples": rows,
    }


@torch.no_grad()
def calibrate_batch_norms(network: nn.Module, size: int) -> nn.Module:
    """Set the statistics of batch norms from their inputs, so that values stay in range in all layers."""
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
            layer.weight.fill_(1.0)  # also of those that begin with zero, which would hide their branch
    network.train()
    network(torch.randn(8, 3, size, size))
    return network.eval().requires_grad_(False)


def build_variants(
    network: nn.Module, options: argparse.Namespace, batch: int, device: torch.device, precision: str
) -> dict[str, Callable[[], Any]]:
    """Return a function per variant that computes the logits of one batch; all were checked against the network."""
    dtype, size = DTYPES[precision], options.size
    inputs = torch.randn(batch, 3, size, size).to(device, dtype).contiguous(memory_format=torch.channels_last)
    plain = place_model(copy.deepcopy(network), device).to(dtype)
    made: dict[str, Callable[[], Tensor]] = {"as written": lambda: plain(inputs)}
    compiled = torch.compile(plain)
    made["torch.compile"] = lambda: compiled(inputs)
    if device.type == "cuda":
        replayed = torch.compile(plain, mode="reduce-overhead")
        made["torch.compile with CUDA graphs"] = lambda: replayed(inputs)
    folded = place_model(fuse_convolutions(fold_batch_norms(network, size)), device).to(dtype)
    choose_kernels(folded, batch, size)
    made[OURS] = capture(folded, inputs) if device.type == "cuda" else lambda: folded(inputs)
    for name in options.without.split(","):
        made.pop(name, None)
    if "ONNX Runtime" not in options.without.split(","):
        made |= open_onnx(network, inputs)
    with torch.inference_mode():
        expected = place_model(copy.deepcopy(network), device)(inputs.float()).softmax(1)
        for name, run in made.items():
            for _ in range(3):
                logits = run()
            difference = float((logits.float().softmax(1) - expected).abs().max())
            print(f"  batch {batch}: {name}: largest difference of a probability {difference:.1e}", file=sys.stderr)
            if not difference < 0.05:
                raise ViaductError(f"{name} does not compute the network: probabilities differ by {difference:.2g}.")
    return made


@torch.inference_mode()
def capture(network: nn.Module, inputs: Tensor) -> Callable[[], Tensor]:
    captured = capture_pass(network, len(inputs), inputs.shape[2], inputs.device, inputs.dtype)
    captured.inputs.copy_(inputs)

    def replay() -> Tensor:
        captured.graph.replay()
        return captured.logits

    return replay


def open_onnx(network: nn.Module, inputs: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Return ONNX Runtime's variant, with bound device memory on a card; empty if it cannot run."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ImportError as error:
        print(f"  ONNX Runtime is skipped: {error}.", file=sys.stderr)
        return {}
    provider = "CUDAExecutionProvider" if inputs.is_cuda else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        print(f"  ONNX Runtime is skipped: it has no {provider}.", file=sys.stderr)
        return {}
    contiguous_inputs = inputs.contiguous()
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "network.onnx"))
        network = copy.deepcopy(network).to(inputs.dtype)
        torch.onnx.export(network, (contiguous_inputs.cpu(),), file, dynamo=True, external_data=False, verbose=False)
        session = onnxruntime.InferenceSession(file, providers=[provider])
    value, output = session.get_inputs()[0], session.get_outputs()[0]
    if not inputs.is_cuda:
        array = contiguous_inputs.numpy()
        return {"ONNX Runtime": lambda: torch.from_numpy(session.run([output.name], {value.name: array})[0])}
    logits = torch.empty(len(inputs), output.shape[1], device=inputs.device, dtype=torch.float32)
    binding = session.io_binding()
    for bind, name, tensor in (
        (binding.bind_input, value.name, contiguous_inputs),
        (binding.bind_output, output.name, logits),
    ):
        kind = str(tensor.dtype).removeprefix("torch.")
        bind(name, "cuda", 0, kind, tuple(tensor.shape), tensor.data_ptr())

    def run() -> Tensor:
        session.run_with_iobinding(binding)
        return logits

    return {"ONNX Runtime": run}


def measure(variants: dict[str, Callable[[], Any]], clock: Clock, options: argparse.Namespace) -> dict[str, Any]:
    """Return milliseconds per variant, and how many times faster the engine is than each other one."""

    def repeat(run: Callable[[], Any]) -> Callable[[int], object]:
        def steps(count: int) -> None:
            with torch.inference_mode():
                for _ in range(count):
                    run()

        return steps

    ready = {name: repeat(run) for name, run in variants.items()}
    slowest = max(clock.measure_seconds(lambda steps=steps: steps(3)) / 3 for steps in ready.values())  # type: ignore[misc]
    count = max(1, round(options.seconds / slowest))
    seconds = take_turns(ready, clock, steps=count, windows=options.windows)
    others = {name: compute_speedup(taken, seconds[OURS]) for name, taken in seconds.items() if name != OURS}
    return {
        "milliseconds": {name: 1000 * Sample(taken).median for name, taken in seconds.items()},
        "spread": {name: Sample(taken).spread for name, taken in seconds.items()},
        "times_faster": others,
        "best_other": min(others, key=lambda name: others[name]) if others else None,
    }


def print_row(row: dict[str, Any]) -> None:
    for name, taken in row["milliseconds"].items():
        rate = 1000 * row["batch"] / taken
        print(f"batch {row['batch']:>4}  {name:<32} {taken:9.3f} ms  {rate:10,.0f} images/s")
    if best := row["best_other"]:
        print(f"batch {row['batch']:>4}  viaduct is {row['times_faster'][best]:.2f} times as fast as {best}")


if __name__ == "__main__":
    main()
