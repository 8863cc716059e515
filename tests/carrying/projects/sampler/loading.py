import random

import torch
from torch.utils.data import Dataset, Sampler


class Sentences(Dataset):
    def __init__(self, count):
        source = random.Random(17)
        self.items = []
        for _ in range(count):
            words = [source.randrange(1, 20) for _ in range(source.randrange(3, 9))]
            self.items.append((words, sum(words) % 3))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class LengthSampler(Sampler):
    """Batches of sentences of about the same length, the batches in random order."""

    def __init__(self, data, size):
        self.lengths = [len(words) for words, _ in data.items]
        self.size = size

    def __len__(self):
        return len(self.lengths) // self.size

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], random.random()))
        batches = [order[i : i + self.size] for i in range(0, len(order), self.size)]
        random.shuffle(batches)
        yield from batches


def collate(items):
    longest = max(len(words) for words, _ in items)
    padded = [words + [0] * (longest - len(words)) for words, _ in items]
    lengths = torch.tensor([len(words) for words, _ in items])
    return torch.tensor(padded), lengths, torch.tensor([tag for _, tag in items])
