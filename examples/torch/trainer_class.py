"""A trainer class with callbacks and a config, the way many repositories have one; started plainly or by torchrun.

python trainer_class.py --max-steps 10
torchrun --nproc_per_node=4 trainer_class.py --max-steps 10
"""

import argparse
import logging
import os
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

logger = logging.getLogger(__name__)


@dataclass
class TrainerConfig:
    max_steps: int = 10
    batch_size: int = 16
    lr: float = 3e-3
    grad_norm_clip: float = 1.0
    snapshot_path: Optional[str] = None
    use_amp: bool = False
    device: str = "cuda"
    backend: str = "nccl"
    num_workers: int = 0
    log_every: int = 5


def setup(config: TrainerConfig) -> None:
    """Under torchrun: one process a GPU. Without a GPU the processes talk over gloo."""
    if config.device == "cuda" and not torch.cuda.is_available():
        logger.warning("CUDA is not available, using the CPU")
        config.device, config.backend = "cpu", "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(config.backend)
        if config.backend == "nccl":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


class Trainer:
    def __init__(self, config: TrainerConfig, model: nn.Module, dataset: TensorDataset) -> None:
        self.config = config
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.global_rank = int(os.environ.get("RANK", 0))
        self.distributed = dist.is_available() and dist.is_initialized()
        if config.device == "cuda":
            self.device = torch.device(f"cuda:{self.local_rank}")
        else:
            self.device = torch.device(config.device)
        self.model = model.to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)
        self.scaler = torch.amp.GradScaler("cuda", enabled=config.use_amp and self.device.type == "cuda")
        self.sampler = DistributedSampler(dataset) if self.distributed else None
        self.loader = DataLoader(
            dataset,
            batch_size=config.batch_size,
            shuffle=self.sampler is None,
            sampler=self.sampler,
            num_workers=config.num_workers,
            pin_memory=(config.device == "cuda"),
        )
        self.step, self.epoch = 0, 0
        self.callbacks: Dict[str, List[Callable[["Trainer"], None]]] = {"step": [], "end": []}
        if config.snapshot_path and os.path.exists(config.snapshot_path):
            self._load_snapshot(config.snapshot_path)
        if self.distributed:
            ids = [self.local_rank] if self.device.type == "cuda" else None
            self.model = DDP(self.model, device_ids=ids)

    def on(self, event: str, callback: Callable[["Trainer"], None]) -> None:
        self.callbacks[event].append(callback)

    def _fire(self, event: str) -> None:
        for callback in self.callbacks[event]:
            callback(self)

    def _load_snapshot(self, path: str) -> None:
        snapshot = torch.load(path, map_location=f"cuda:{self.local_rank}" if torch.cuda.is_available() else "cpu")
        self.model.load_state_dict(snapshot["model"])
        self.step, self.epoch = snapshot["step"], snapshot["epoch"]
        logger.info("resumed at step %d", self.step)

    def _save_snapshot(self) -> None:
        raw = self.model.module if isinstance(self.model, DDP) else self.model
        torch.save({"model": raw.state_dict(), "step": self.step, "epoch": self.epoch}, self.config.snapshot_path)

    def _run_batch(self, tokens: torch.Tensor, targets: torch.Tensor) -> float:
        with torch.amp.autocast("cuda", enabled=self.scaler.is_enabled()):
            loss = nn.functional.cross_entropy(self.model(tokens), targets)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_norm_clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    def train(self) -> None:
        self.model.train()
        while self.step < self.config.max_steps:
            if self.sampler is not None:
                self.sampler.set_epoch(self.epoch)
            for tokens, targets in self.loader:
                tokens = tokens.to(self.device, non_blocking=True)
                targets = targets.to(self.device, non_blocking=True)
                self.loss = self._run_batch(tokens, targets)
                self._fire("step")
                self.step += 1
                if self.step >= self.config.max_steps:
                    break
            self.epoch += 1
        if self.config.snapshot_path and self.global_rank == 0:
            self._save_snapshot()
        self._fire("end")


def log_step(trainer: Trainer) -> None:
    if trainer.global_rank == 0 and trainer.step % trainer.config.log_every == 0:
        memory = torch.cuda.memory_allocated() / 2**20 if trainer.device.type == "cuda" else 0
        print(f"step {trainer.step} loss {trainer.loss:.4f} memory {memory:.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-steps", type=int, default=10)
    parser.add_argument("--device", type=str, default="cuda", help="'cuda' or 'cpu'")
    parser.add_argument("--snapshot", default=None)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    config = TrainerConfig(args.max_steps, device=args.device, snapshot_path=args.snapshot, use_amp=args.amp)
    setup(config)
    torch.manual_seed(0)
    tokens = torch.randint(16, (256, 8))
    dataset = TensorDataset(tokens, tokens.sum(1) % 4)
    model = nn.Sequential(nn.Embedding(16, 16), nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 4))
    trainer = Trainer(config, model, dataset)
    trainer.on("step", log_step)
    trainer.train()
    print("finished after", trainer.step, "steps")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
