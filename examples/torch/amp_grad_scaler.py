"""Mixed precision with torch.cuda.amp: autocast, GradScaler, gradient accumulation and clipping, timed by CUDA events.

python amp_grad_scaler.py --steps 20
python amp_grad_scaler.py --no-amp --compile
"""

import argparse
import time
from contextlib import nullcontext

import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast

# TF32 doubles the speed of fp32 layers on Ampere and later cards.
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True


def get_args():
    parser = argparse.ArgumentParser(description="AMP on CUDA cards; without one everything stays in fp32")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cuda (needs a card) or cpu")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=2, help="batches an update")
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--no-amp", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--profile", action="store_true", help="print where the time of three steps goes")
    return parser.parse_args()


class MLP(nn.Module):
    def __init__(self, width=64, depth=3, classes=4):
        super().__init__()
        layers = [nn.Linear(32, width), nn.GELU()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.1)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    # A decorator instead of a context: the head is numerically fragile and stays in fp32.
    @autocast(enabled=False)
    def logits(self, features):
        return self.head(features.float())

    def forward(self, x):
        return self.logits(self.body(x))


def batches(batch_size, device):
    """Four clouds of points; which one a point comes from is its class."""
    generator = torch.Generator().manual_seed(7)
    centres = torch.randn(4, 32, generator=generator)
    while True:
        target = torch.randint(4, (batch_size,), generator=generator)
        points = centres[target] + torch.randn(batch_size, 32, generator=generator)
        if device.type == "cuda":
            points, target = points.pin_memory(), target.pin_memory()
        yield points.to(device, non_blocking=True), target.to(device, non_blocking=True)


def train_step(model, criterion, optimizer, scaler, stream, args, use_amp):
    total = 0.0
    for _ in range(args.accumulate):
        points, target = next(stream)
        with torch.autocast(device_type="cuda", dtype=torch.float16) if use_amp else nullcontext():
            loss = criterion(model(points), target) / args.accumulate
        scaler.scale(loss).backward()
        total += loss.item()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return total


def profile(step):
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as prof:
        for _ in range(3):
            step()
    sort_by = "cuda_time_total" if torch.cuda.is_available() else "cpu_time_total"
    print(prof.key_averages().table(sort_by=sort_by, row_limit=5))


def main():
    args = get_args()
    torch.manual_seed(0)
    if args.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device, falling back to the CPU")
        args.device = "cpu"
    device = torch.device(args.device)
    use_amp = device.type == "cuda" and not args.no_amp
    if use_amp:
        print("bf16:", torch.cuda.is_bf16_supported(), "capability:", torch.cuda.get_device_capability())

    model = MLP().to(device)
    if args.compile:
        model = torch.compile(model)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = GradScaler(enabled=use_amp)
    stream = batches(args.batch_size, device)

    if device.type == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.reset_peak_memory_stats()
        start.record()
    began = time.time()
    for step in range(args.steps):
        loss = train_step(model, criterion, optimizer, scaler, stream, args, use_amp)
        print(f"step {step} loss {loss:.4f} scale {scaler.get_scale():g}")
    if device.type == "cuda":
        end.record()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() / 2**20
        print(f"{start.elapsed_time(end):.1f} ms on the card, {peak:.1f} MiB at most")
    if args.profile:
        profile(lambda: train_step(model, criterion, optimizer, scaler, stream, args, use_amp))
    print(f"finished in {time.time() - began:.2f} s")


if __name__ == "__main__":
    main()
