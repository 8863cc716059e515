import torch
import torch.distributed as dist


def average(value, ranks):
    total = value.clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return total.item() / ranks


def broadcast_number(number, device):
    shared = torch.tensor([float(number)], device=device)
    dist.broadcast(shared, src=0)
    return shared.item() + 1


def rate_for(rate, ranks):
    return rate * ranks if ranks > 1 else rate
