"""A page with every part on it and the awkward values that reports meet: spikes, NaN, hostile class names."""

from __future__ import annotations

import numpy as np

from viaduct.reporting import (
    Code,
    Facts,
    GridImage,
    Heatmap,
    ImageGrid,
    LineChart,
    Page,
    Section,
    Series,
    Table,
    Tile,
)

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def sample_page() -> Page:
    return Page(
        title="resnet50_cifar10",
        subtitle="a run of 30 epochs, finished 2026-11-15 10:02 UTC",
        tiles=[
            Tile("validation top-1", "95.3 %", note="at step 11,730", good=True),
            Tile("images per second", "41,204", note="expected 45,000", good=False),
            Tile("validation loss", "0.1873", note="lowest at epoch 27"),
            Tile("time", "6 min 12 s"),
        ],
        sections=[
            Section("Curves", "Nothing is smoothed, and every spike is kept.", curves()),
            Section("Epochs", "", [epochs()]),
            Section("Confusion", "Where the network goes wrong.", [confusion(), many_classes()]),
            Section("Samples", "", [samples()]),
            Section("Environment", "", [environment(), Code("viaduct train resnet50_cifar10 --device cuda:0")]),
        ],
    )


def curves() -> list[LineChart]:
    random = np.random.default_rng(0)
    steps, epochs = np.arange(1, 11_731), np.arange(391, 11_731, 391)
    noise = random.normal(0, 0.04, len(steps)) * np.exp(-steps / 9000)
    loss = 2.3 * np.exp(-steps / 2500) + 0.12 + noise
    loss[5000:5400] = np.nan
    held_out = 2.2 * np.exp(-epochs / 2300) + 0.18
    warmup, decay = np.linspace(1e-4, 0.4, 1000), 0.2 * (1 + np.cos(np.linspace(0, 3.13, 10_730)))
    top1 = 0.955 - 0.55 * np.exp(-epochs / 2800)
    losses = [Series("training", steps, loss), Series("validation", epochs, held_out)]
    accuracies = [Series("top-1", epochs, top1), Series("top-5", epochs, top1**0.1)]
    rate = Series("rate", steps, np.concatenate([warmup, decay]))
    return [
        LineChart("Loss", "step", "cross entropy", losses),
        LineChart("Accuracy", "step", "share of images", accuracies),
        LineChart("Learning rate", "step", "rate", [rate], log_y=True),
    ]


def epochs() -> Table:
    rows = [
        [
            epoch,
            2.3 / epoch,
            0.9 + epoch / 600 if epoch % 5 == 0 else None,
            f"{40_000 + epoch * 77 % 400:,} img/s",
        ]
        for epoch in range(1, 31)
    ]
    return Table(["epoch", "loss", "top-1", "speed"], rows, "Every epoch; validation every fifth")


def confusion() -> Heatmap:
    random = np.random.default_rng(1)
    counts = random.integers(0, 15, (10, 10)) + np.diag(random.integers(820, 980, 10))
    counts[3, 5], counts[5, 3] = 94, 71
    return Heatmap("Confusion matrix", CLASSES, counts.tolist())


def many_classes() -> Heatmap:
    random = np.random.default_rng(2)
    counts = random.poisson(0.3, (100, 100)) + np.diag(random.integers(60, 95, 100))
    counts[17, 42] = 23
    return Heatmap("A hundred classes", [f"class {number}" for number in range(100)], counts)


def samples() -> ImageGrid:
    random = np.random.default_rng(3)
    images = []
    for number in range(14):
        ramp = np.linspace(40, 220, 32)[None, :, None] * np.ones((32, 1, 3))
        noise = random.normal(0, 20, (32, 32, 3))
        pixels = np.clip(ramp * random.uniform(0.3, 1, 3) + noise, 0, 255).astype(np.uint8)
        wrong = number % 5 == 3
        caption = f"{CLASSES[number % 10]}, taken for truck" if wrong else CLASSES[number % 10]
        images.append(GridImage(pixels, caption, marked=wrong))
    return ImageGrid(images, "The first images of the validation set")


def environment() -> Facts:
    return Facts(
        {
            "device": "NVIDIA A100-SXM4-80GB",
            "driver": "550.54.15",
            "torch": "2.13.0",
            "seed": 1,
            "deterministic": True,
            "learning rate": 2.5e-05,
            "data": "/data/a/long/path/that/has/to/break/somewhere/on/a/telephone/cifar-10-batches-bin",
        }
    )
