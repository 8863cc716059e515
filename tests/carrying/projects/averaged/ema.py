import torch


class Average:
    """Follows the weights; buffers are copied."""

    def __init__(self, net, decay):
        self.net, self.decay, self.updates = net, decay, 0
        for weight in self.net.parameters():
            weight.requires_grad_(False)

    def update(self, net):
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        with torch.no_grad():
            for mine, theirs in zip(self.net.parameters(), net.parameters()):
                mine.mul_(decay).add_(theirs, alpha=1 - decay)
            for mine, theirs in zip(self.net.buffers(), net.buffers()):
                mine.copy_(theirs)
