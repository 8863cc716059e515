"""Data parallel training on two ranks: a sampler, averaged metrics, lines that only one of the ranks executes."""

import os

import torch
import torch.distributed as dist
from parallel import average, broadcast_number, rate_for
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_data():
    generator = torch.Generator().manual_seed(21)
    x = torch.randn(64, 8, generator=generator)
    return TensorDataset(x, x[:, :4].argmax(1))


def evaluate(net, data, rank, ranks, device):
    """Each rank takes its share; the counts are added."""
    share = torch.arange(rank, len(data), ranks)
    x, y = data.tensors[0][share].to(device), data.tensors[1][share].to(device)
    net.eval()
    with torch.no_grad():
        output = net(x)
    net.train()
    counts = torch.tensor([(output.argmax(1) == y).sum().item(), len(y)], dtype=torch.float32, device=device)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main():
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl")
    seed = broadcast_number(100 + rank, device)
    data = make_data()
    sampler = DistributedSampler(data, shuffle=True, seed=int(seed))
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=False)
    torch.manual_seed(50 + rank)
    net = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 4)).to(device)
    net = DistributedDataParallel(net, device_ids=[local])
    optimizer = torch.optim.SGD(net.parameters(), lr=rate_for(0.05, ranks), momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            noise = 0.01 * (rank + 1) * torch.randn(x.shape)
            loss = nn.functional.cross_entropy(net((x + noise).to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = average(loss.detach(), ranks)
        accuracy = evaluate(net, data, rank, ranks, device)
        if rank == 0:
            print(f"epoch {epoch} loss {mean:.6f} accuracy {accuracy:.4f}")
        else:
            print(f"rank {rank} own loss {loss.item() * 2:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
