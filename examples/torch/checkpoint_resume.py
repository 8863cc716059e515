"""Training that goes on where it stopped: weights, optimizer, schedule and every random number generator.

python checkpoint_resume.py --steps 4 --folder run/      # trains steps 0 to 3
python checkpoint_resume.py --steps 8 --folder run/      # continues with step 4, as if nothing had happened
"""

import argparse
import os
import random
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8, help="train until this step")
    parser.add_argument("--every", type=int, default=2, help="steps between checkpoints")
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--pretrained", type=Path, help="weights of another run, maybe from another card")
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)


class Autoencoder(nn.Module):
    def __init__(self, width=24, code=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, code))
        self.decoder = nn.Sequential(nn.Linear(code, 16), nn.ReLU(), nn.Linear(16, width))
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        return self.decoder(self.dropout(self.encoder(x)))


def rng_state():
    state = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state):
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def save(path, step, model, optimizer, scheduler):
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(
        {
            "step": step,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "rng": rng_state(),
        },
        partial,
    )
    partial.replace(path)


def load_pretrained(model, path):
    # Whoever saved it may have had other cards: bring everything to the host first.
    weights = torch.load(path, map_location=lambda storage, loc: storage)
    missing, unexpected = model.load_state_dict(weights["model"], strict=False)
    print("pretrained: missing", missing, "unexpected", unexpected)


def resume(path, model, optimizer, scheduler, device):
    # The file holds the state of Python's generators, so it is more than tensors: load only what you wrote.
    if device.type == "cuda":
        checkpoint = torch.load(path, map_location={"cuda:0": "cuda:%d" % (device.index or 0)}, weights_only=False)
    else:
        checkpoint = torch.load(path, map_location="cpu", weights_only=False)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    set_rng_state(checkpoint["rng"])
    return checkpoint["step"]


def main():
    args = parse_args()
    device = torch.device(args.device)
    seed_everything(3)
    model = Autoencoder().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    first, path = 0, args.folder / "last.pth"
    if path.exists():
        first = resume(path, model, optimizer, scheduler, device)
        print("continues with step", first)
    elif args.pretrained:
        load_pretrained(model, args.pretrained)

    for step in range(first, args.steps):
        # Both generators have their say, so that a forgotten one would show.
        waves = np.sin(np.random.rand(16, 1) * np.arange(24)).astype(np.float32)
        batch = torch.from_numpy(waves).to(device)
        loss = F.mse_loss(model(batch + 0.05 * torch.randn_like(batch)), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(f"step {step} loss {loss.item()!r}")
        if (step + 1) % args.every == 0 or step + 1 == args.steps:
            save(path, step + 1, model, optimizer, scheduler)


if __name__ == "__main__":
    main()
