import config
import torch
from torch.utils.data import Dataset


class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, image):
        for step in self.steps:
            image = step(image)
        return image


class Flip:
    def __init__(self, rng=0.5):
        self.rng = rng

    def __call__(self, image):
        if torch.rand(1).item() < self.rng:
            return image.flip(-1)
        return image


class Crop:
    def __init__(self, size, padding):
        self.size, self.padding = size, padding

    def __call__(self, image):
        image = torch.nn.functional.pad(image, [self.padding] * 4)
        top = int(torch.randint(0, 2 * self.padding + 1, (1,)))
        left = int(torch.randint(0, 2 * self.padding + 1, (1,)))
        return image[:, top : top + self.size, left : left + self.size]


class Normalize:
    def __init__(self, mean, std):
        self.mean = torch.tensor(mean).view(3, 1, 1)
        self.std = torch.tensor(std).view(3, 1, 1)

    def __call__(self, image):
        return (image - self.mean) / self.std


def build_transform(train):
    steps = [Normalize(config.MEAN, config.STD)]
    if train:
        steps = [Crop(6, 1), Flip(), *steps]
    return Compose(steps)


class ImageSet(Dataset):
    def __init__(self, count, seed, transform):
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.rand(count, 3, 6, 6, generator=generator)
        self.targets = self.images.mean((2, 3)).argmax(1)
        self.transform = transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.transform(self.images[index]), int(self.targets[index])
