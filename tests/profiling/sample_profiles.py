"""Profiles for tests of summary and report: a large one with every kind of record, and the smallest possible."""

from __future__ import annotations

import random

from viaduct.profiling.record import (
    Advice,
    Ceilings,
    Collective,
    Facts,
    Kernel,
    MemoryOwner,
    MemoryPoint,
    Operator,
    Phase,
    Profile,
    Sample,
    Step,
)

HOSTILE = '<script>document.title="taken"</script><img src=x onerror=document.title="taken">'
UNICODE = "卷积.слой.\u202egnp.ﷺ"
LONG = "aten::" + "very_long_name" * 40
NAMES = ("aten::mkldnn_convolution", "aten::native_batch_norm", "aten::relu_", "aten::mm", "aten::add_")
KINDS = ("convolution", "normalisation", "elementwise", "matrix product", "elementwise")


def minimal_profile() -> Profile:
    """Return a profile of one step and nothing else."""
    return Profile(
        Facts(source="train.py", kind="script", timed_steps=1), steps=[Step(0, 0, 100.0, 900.0, 1000.0, None)]
    )


def small_profile(steps: int = 10, advice: bool = False) -> Profile:
    """Return a healthy profile of one rank on the CPU: 61 % data, 33 % forward and backward, 6 % update."""
    facts = Facts(
        source="train.py",
        kind="script",
        description="AMD EPYC, 2 cores",
        batch=64,
        precision="float32",
        mode="eager",
        warmup_steps=5,
        timed_steps=steps,
        recorded_steps=3,
        phases_found_by=("forward start: the first call of a module after the optimizer's step.",),
        notes=("No GPU figures: this machine has none.",),
    )
    return Profile(
        facts,
        steps=[make_step(0, number, 100_000.0) for number in range(steps)],
        operators=make_operators(6),
        kernels=make_kernels(6),
        ceilings=Ceilings(20e9, {"float32": 300e9}),
        advice=[make_advice("loader", 61_000.0)] if advice else [],
    )


def large_profile(steps: int = 5000, ranks: int = 8, operators: int = 3000) -> Profile:
    """Return a profile with every kind of record, uneven steps and hostile names."""
    facts = Facts(
        source=f"projects/{HOSTILE}/train.py",
        kind="script",
        device="cuda",
        description="NVIDIA H200",
        ranks=ranks,
        command=f"viaduct profile run train.py --steps {steps} -- --name {LONG}",
        batch=256,
        precision="bfloat16",
        mode="eager",
        warmup_steps=5,
        timed_steps=steps,
        recorded_steps=5,
        recorded_step_us=151_000.0,
        phases_found_by=(
            "Forward start: the first forward call of a module after the optimizer's step.",
            "Backward end: the return of torch.autograd.backward, in device time.",
        ),
        notes=("No PCIe figures: NVML refused them.", f"A note about {UNICODE}."),
        versions={"torch": "2.13.0", "Python": "3.11.9"},
        date="2026-11-18 02:40 UTC",
        workers=4,
        cores=96,
    )
    return Profile(
        facts,
        steps=[make_step(rank, number, 100_000.0) for rank in range(ranks) for number in range(steps)],
        operators=make_operators(operators, device=True),
        kernels=make_kernels(max(operators // 10, 12)),
        memory=make_memory(ranks),
        memory_owners=make_owners(),
        samples=make_samples(),
        ceilings=Ceilings(4.1e12, {"float32": 52e12, "bfloat16": 790e12, "float16": 780e12}),
        advice=[make_advice("loader", 61_000.0), make_advice("synchronisation", 4000.0), make_advice("layout", None)],
        tables={
            "step_trace_time.csv": {
                "columns": ["Step", "Computing", "Communication(Not Overlapped)", "Free", "Core"],
                "rows": [[str(row), f"{row * 1.5:.2f}", "N/A", "12.25", HOSTILE] for row in range(40)],
            },
            "few": {"columns": ["a", "b"], "rows": [["1", "x"], ["2", None]]},
        },
    )


def make_step(rank: int, number: int, iteration_us: float) -> Step:
    """Return a step whose phases are 61, 33 and 6 % of it; each 500th takes ten times as long, rank 3 a third more."""
    length = iteration_us * (10 if number % 500 == 499 else 1) * (1.3 if rank == 3 else 1)
    length *= 1 + 0.05 * ((number * 7919 + rank) % 11) / 11
    start = number * iteration_us * 1.5
    return Step(
        rank=rank,
        number=number,
        forward_start_us=start + 0.61 * length,
        backward_end_us=start + 0.94 * length,
        end_us=start + length,
        previous_end_us=start if number else None,
        loader_wait_us=0.6 * length,
        collectives=(Collective("all_reduce", start + 0.9 * length, 3000.0, 10_000_000, 500.0 + 100 * rank),),
        interrupted_by="evaluation" if number and number % 1000 == 0 else "",
    )


def make_operators(count: int, device: bool = False) -> list[Operator]:
    """Return operators of nested modules, forward, backward and update, and three with hostile names."""
    rng = random.Random(0)
    phases: tuple[Phase, ...] = ("forward", "backward", "forward", "backward", "update")
    made = []
    for number in range(count):
        time = 10 ** rng.uniform(0, 3.5)
        phase = phases[number % 5]
        module = "" if phase == "update" else f"network.layer{number % 4 + 1}.{number % 7}.block.conv{number % 3 + 1}"
        flops = time * 10 ** rng.uniform(4, 7) if number % 3 else None
        made.append(
            Operator(
                NAMES[number % 5],
                calls=1.0 + number % 4,
                total_us=time * 1.5,
                self_us=time,
                device_us=time if device else None,
                phase=phase,
                module=module,
                shapes="[64, 64, 56, 56], [64, 64, 3, 3]",
                dtypes="bfloat16, bfloat16" if device else "float32, float32",
                layout="channels_last" if number % 2 else "contiguous",
                location=f"train.py:{number % 50}",
                flops=flops,
                bytes=time * 2e4,
                synchronises=number == 7,
            )
        )
    for index, name in enumerate((HOSTILE, UNICODE, LONG)):
        made.append(Operator(name, 1, 9000.0, 9000.0, 9000.0 if device else None, "forward", f"head.{name}.{index}"))
    return made


def make_kernels(count: int) -> list[Kernel]:
    """Return kernels of five kinds and one with a long C++ name."""
    rng = random.Random(1)
    made = [
        Kernel(f"kernel_{number}", KINDS[number % 5], 2.0, 10 ** rng.uniform(0, 4), "bfloat16", NAMES[number % 5])
        for number in range(count)
    ]
    return [*made, Kernel(f"void cutlass::{HOSTILE}<{LONG}>", "matrix product", 1.0, 12_345.6)]


def make_memory(ranks: int) -> list[MemoryPoint]:
    """Return a curve that rises and falls in each step."""
    return [
        MemoryPoint(50.0 * point, 2**30 + 2**26 * (40 - abs(point % 80 - 40)), 4 * 2**30, rank)
        for rank in range(ranks)
        for point in range(400)
    ]


def make_owners() -> list[MemoryOwner]:
    """Return owners of the peak, more than a chart shows."""
    named = [
        MemoryOwner("parameters", 102_000_000),
        MemoryOwner("gradients", 102_000_000),
        MemoryOwner(HOSTILE, 7_000_000),
    ]
    return named + [MemoryOwner(f"network.layer{n}.activations", 200_000_000 // (n + 1)) for n in range(30)]


def make_samples() -> list[Sample]:
    """Return 120 samples of 96 cores, memory, disk, network and two GPUs."""
    rng = random.Random(2)
    samples = []
    for number in range(120):
        values = {f"cpu {core} %": rng.uniform(0, 100) for core in range(96)}
        values |= {"memory MiB": 4000 + number * 3.0, "memory available MiB": 90_000.0, "disk read MiB/s": 120.0}
        values |= {"disk write MiB/s": 3.0, "network in MiB/s": 1.0, "network out MiB/s": 0.5}
        for gpu in range(2):
            values |= {f"gpu {gpu} %": rng.uniform(40, 100), f"gpu {gpu} memory MiB": 30_000.0}
        samples.append(Sample(number * 200_000.0, values))
    return samples


def make_advice(name: str, gain_us: float | None) -> Advice:
    """Return an advice with all its parts."""
    return Advice(
        name=name,
        title=f"The {name} costs 61 % of each step",
        action="Start the DataLoader with num_workers=8 and pin_memory=True.",
        evidence=("The host waited 61.0 ms of 100.0 ms for a batch.", "One batch takes 220 ms on one core."),
        gain_us=gain_us,
        gain_basis="the wait that would vanish",
        locations=("train.py:41", f"{HOSTILE}:7"),
    )
