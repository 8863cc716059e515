"""Graph classification with batches that are no tensors: they have `cuda` methods of their own.

    python own_cuda_methods.py --steps 20 --accelerator cuda

What is called "cuda" here is often not torch's: a method of a class, a key of a table, a folder, a word in a message.
See https://pytorch.org/docs/stable/notes/cuda.html for what `.cuda()` of a tensor does.
"""

import argparse
import os

import torch
from torch import nn

# Keys are names of settings, values are batch sizes. "cuda" is a word here, not a device.
BATCH_SIZES = {"cpu": 8, "cuda": 16}
CACHE = os.path.join(os.path.expanduser("~"), ".cache", "graphs", "cuda")
KERNELS = {}


def register(name):
    def keep(function):
        KERNELS[name] = function
        return function

    return keep


@register("cuda")
def scatter_cuda(values, index, size):
    return torch.zeros(size, values.size(1), device=values.device).index_add_(0, index, values)


@register("cpu")
def scatter_cpu(values, index, size):
    out = torch.zeros(size, values.size(1))
    for place, row in zip(index.tolist(), values):
        out[place] = out[place] + row
    return out


class GraphBatch:
    """Several graphs as one: features of all nodes, edges, and which graph a node belongs to."""

    def __init__(self, nodes, edges, owner, labels):
        self.nodes, self.edges, self.owner, self.labels = nodes, edges, owner, labels

    def apply(self, function):
        return GraphBatch(*(function(x) for x in (self.nodes, self.edges, self.owner, self.labels)))

    def cuda(self, index=None, non_blocking=False):
        """Like a tensor's, for all tensors of the batch."""
        return self.apply(lambda x: x.cuda(index, non_blocking=non_blocking))

    def to(self, device):
        return self.apply(lambda x: x.to(device))

    def pin(self):
        return self.apply(lambda x: x.pin_memory())


class Timer:
    """Counts calls; its `cuda` is a switch and has nothing to do with tensors."""

    def __init__(self):
        self.is_cuda, self.calls = False, 0

    def cuda(self, enabled=True):
        self.is_cuda = enabled
        return self

    def tick(self):
        self.calls += 1


class GraphNet(nn.Module):
    def __init__(self, features=6, hidden=16, kernel="cpu"):
        super().__init__()
        self.scatter = KERNELS[kernel]
        self.message, self.read = nn.Linear(features, hidden), nn.Linear(hidden, 2)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, batch):
        source, target = batch.edges
        hidden = torch.relu(self.scatter(self.message(batch.nodes)[source], target, len(batch.nodes)))
        return self.read(self.scatter(hidden, batch.owner, len(batch.labels)))


def make_batch(graphs, generator):
    """A graph of class 1 is a ring, one of class 0 a chain."""
    nodes, edges, owner = [], [], []
    labels = torch.randint(2, (graphs,), generator=generator)
    for graph, label in enumerate(labels.tolist()):
        first, count = len(owner), 6
        edges += [(first + i, first + i + 1) for i in range(count - 1)]
        edges += [(first + count - 1, first)] if label else []
        nodes.append(torch.eye(count))
        owner += [graph] * count
    return GraphBatch(torch.cat(nodes), torch.tensor(edges).T, torch.tensor(owner), labels)


def main():
    parser = argparse.ArgumentParser(description="Use --accelerator cuda where there is a card")
    parser.add_argument("--accelerator", default="cpu", choices=["cpu", "cuda"], help="cuda or cpu")
    parser.add_argument("--no-cuda", action="store_true", default=False, help="disables CUDA training")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    args.cuda = not args.no_cuda and args.accelerator == "cuda" and torch.cuda.is_available()
    generator = torch.Generator().manual_seed(0)
    timer = Timer().cuda(args.cuda)
    batch_size = BATCH_SIZES["cuda" if args.cuda else "cpu"]

    torch.manual_seed(0)
    model = GraphNet(kernel="cuda" if args.cuda else "cpu")
    if args.cuda:
        model.cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(args.steps):
        batch = make_batch(batch_size, generator)
        if args.cuda:
            batch = batch.pin().cuda(non_blocking=True)
        loss = nn.functional.cross_entropy(model(batch), batch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        timer.tick()
        print(f"step {step} loss {loss.item():.4f}")
    print(f"{timer.calls} steps, cuda: {timer.is_cuda}, cache would be {os.path.basename(CACHE)!r}")


if __name__ == "__main__":
    main()
