import torch


def smoothed(output, target, smoothing):
    logs = torch.log_softmax(output, dim=-1)
    picked = -logs.gather(1, target.unsqueeze(1)).squeeze(1)
    spread = -logs.mean(dim=-1)
    return ((1 - smoothing) * picked + smoothing * spread).mean()
