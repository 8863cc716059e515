"""Segment ellipses; the confusion matrix is gathered in float64 on the card, where a float32 would lose counts.

python segmentation_fp64.py --steps 20
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = ("background", "ellipse", "rim")
IGNORE = 255


class Ellipses(Dataset):
    """Noisy images of one ellipse; the pixels at the border of the image have no label."""

    def __init__(self, length, size=32, seed=0):
        self.length, self.size, self.seed = length, size, seed

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seed + index)
        axes = torch.rand(2, generator=generator) * 6 + 5
        centre = torch.rand(2, generator=generator) * 8 + self.size / 2 - 4
        rows, columns = torch.meshgrid(torch.arange(self.size), torch.arange(self.size), indexing="ij")
        radius = (((rows - centre[0]) / axes[0]) ** 2 + ((columns - centre[1]) / axes[1]) ** 2).sqrt()
        mask = torch.zeros(self.size, self.size, dtype=torch.long)
        mask[radius < 1.2] = 2
        mask[radius < 1.0] = 1
        image = torch.stack([(mask == 1).float(), (mask == 2).float(), radius / radius.max()])
        image += 0.3 * torch.randn(image.shape, generator=generator)
        mask[0], mask[-1] = IGNORE, IGNORE
        return image, mask


class SmallUNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(width, width * 2, 3, 2, 1), nn.BatchNorm2d(width * 2), nn.ReLU())
        self.up = nn.Conv2d(width * 3, len(CLASSES), 3, 1, 1)

    def forward(self, x):
        fine = self.down(x)
        coarse = F.interpolate(self.middle(fine), scale_factor=2, mode="bilinear", align_corners=False)
        return self.up(torch.cat([fine, coarse], dim=1))


class ConfusionMatrix:
    """Rows are labels, columns predictions. Counts above 2**24 are not whole numbers in float32, hence float64."""

    def __init__(self, classes, device):
        self.classes = classes
        self.matrix = torch.zeros(classes, classes, dtype=torch.float64, device=device)

    def update(self, target, prediction):
        valid = target != IGNORE
        index = self.classes * target[valid].to(torch.int64) + prediction[valid]
        counts = torch.bincount(index, minlength=self.classes**2)
        self.matrix += counts.reshape(self.classes, self.classes).double()

    def compute(self):
        hits = torch.diag(self.matrix)
        union = self.matrix.sum(0) + self.matrix.sum(1) - hits
        return hits.sum() / self.matrix.sum(), hits / union


def dice_loss(logits, target):
    """In double as well: the products of small probabilities vanish in half precision."""
    valid = (target != IGNORE).unsqueeze(1)
    one_hot = F.one_hot(target.clamp(max=len(CLASSES) - 1), len(CLASSES)).permute(0, 3, 1, 2)
    probabilities = logits.softmax(1).to(torch.double) * valid
    one_hot = one_hot.to(torch.double) * valid
    overlap = (probabilities * one_hot).sum((0, 2, 3))
    return 1 - (2 * overlap / (probabilities + one_hot).sum((0, 2, 3))).mean()


def evaluate(model, loader, device):
    model.eval()
    confusion = ConfusionMatrix(len(CLASSES), device)
    with torch.no_grad():
        for image, mask in loader:
            image, mask = image.to(device), mask.to(device)
            confusion.update(mask.flatten(), model(image).argmax(1).flatten())
    accuracy, iou = confusion.compute()
    print("accuracy %.4f mean IoU %.4f" % (accuracy.item(), iou.mean().item()))
    return iou


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", help="device (Use cuda or cpu, default: cuda)")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--channels-last", action="store_true")
    args = parser.parse_args()
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        args.device = "cpu"
    device = torch.device(args.device)
    torch.manual_seed(0)
    model = SmallUNet().to(device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    loader = DataLoader(Ellipses(args.steps * args.batch_size), batch_size=args.batch_size, pin_memory=True)
    weight = torch.tensor([0.5, 1.0, 2.0]).to(device)
    criterion = nn.CrossEntropyLoss(weight=weight, ignore_index=IGNORE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step, (image, mask) in enumerate(loader):
        image, mask = image.to(device, non_blocking=True), mask.to(device, non_blocking=True)
        logits = model(image)
        loss = criterion(logits, mask) + dice_loss(logits, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step %d loss %.4f" % (step, loss.item()))
    for name, value in zip(CLASSES, evaluate(model, DataLoader(Ellipses(16, seed=10**6), batch_size=8), device)):
        print("IoU of %s: %.4f" % (name, value.item()))


if __name__ == "__main__":
    main()
