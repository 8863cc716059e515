import torch
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, count, classes, train):
        generator = torch.Generator().manual_seed(11 if train else 12)
        self.x = torch.randn(count, 6, generator=generator)
        self.y = self.x[:, :classes].argmax(1)
        self.train = train

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        if self.train:
            x = x + 0.05 * torch.randn(6)
        return (x - 0.1) * 0.9, self.y[index]


def make_loaders(options):
    train = Digits(45, options.classes, True)
    test = Digits(20, options.classes, False)
    return (
        DataLoader(train, batch_size=options.batch, shuffle=True, drop_last=True),
        DataLoader(test, batch_size=options.batch, shuffle=False),
    )
