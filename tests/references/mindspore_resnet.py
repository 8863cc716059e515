"""Run by a Python that has MindSpore: ResNet-50 as its model zoo and MindCV draw it, saved, loaded and computed.

mindspore_resnet.py save DIR              KIND.ckpt and KIND.npz (input, logits) for zoo and mindcv, and types.ckpt
mindspore_resnet.py load FILE KIND DIR    a checkpoint into the network, strictly; its logits for DIR/KIND.npz
"""

from __future__ import annotations

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

CLASSES = 12
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


def conv(kind: str, inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Cell:
    if kind == "zoo":
        return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=0, pad_mode="same", weight_init="normal")
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, pad_mode="pad", weight_init="normal")


def norm(kind: str, channels: int) -> nn.Cell:
    return nn.BatchNorm2d(channels, eps=1e-4 if kind == "zoo" else 1e-5, momentum=0.9)


class Block(nn.Cell):
    def __init__(self, kind: str, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = outputs // 4
        self.conv1, self.bn1 = conv(kind, inputs, inner, 1), norm(kind, inner)
        self.conv2, self.bn2 = conv(kind, inner, inner, 3, stride), norm(kind, inner)
        self.conv3, self.bn3 = conv(kind, inner, outputs, 1), norm(kind, outputs)
        self.relu = nn.ReLU()
        self.kind, self.projects = kind, inputs != outputs
        if self.projects:
            cells = nn.SequentialCell([conv(kind, inputs, outputs, 1, stride), norm(kind, outputs)])
            setattr(self, "down_sample_layer" if kind == "zoo" else "down_sample", cells)

    def construct(self, x):
        branch = self.relu(self.bn1(self.conv1(x)))
        branch = self.relu(self.bn2(self.conv2(branch)))
        branch = self.bn3(self.conv3(branch))
        if self.projects:
            x = self.down_sample_layer(x) if self.kind == "zoo" else self.down_sample(x)
        return self.relu(branch + x)


class ResNet50(nn.Cell):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.conv1, self.bn1, self.relu = conv(kind, 3, 64, 7, 2), norm(kind, 64), nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, pad_mode="same")
        channels = 64
        for stage, (blocks, outputs) in enumerate(((3, 256), (4, 512), (6, 1024), (3, 2048))):
            first = Block(kind, channels, outputs, 1 if stage == 0 else 2)
            others = [Block(kind, outputs, outputs, 1) for _ in range(blocks - 1)]
            setattr(self, f"layer{stage + 1}", nn.SequentialCell([first, *others]))
            channels = outputs
        setattr(self, "end_point" if kind == "zoo" else "classifier", nn.Dense(channels, CLASSES))

    def construct(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3))
        return self.end_point(x) if self.kind == "zoo" else self.classifier(x)


def randomise(network: nn.Cell) -> None:
    generator = np.random.default_rng(0)
    for parameter in network.get_parameters():
        shape = parameter.shape
        if parameter.name.endswith("moving_variance"):
            values = generator.uniform(0.5, 1.5, shape)
        elif len(shape) == 4:
            values = generator.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        else:
            values = 1 + 0.1 * generator.normal(size=shape)
        parameter.set_data(Tensor(values.astype(np.float32)))


def save(folder: Path) -> None:
    for kind in ("zoo", "mindcv"):
        network = ResNet50(kind)
        randomise(network)
        network.set_train(False)
        images = np.random.default_rng(1).normal(size=(2, 3, 64, 64)).astype(np.float32)
        np.savez(folder / f"{kind}.npz", images=images, logits=network(Tensor(images)).asnumpy())
        optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
        parameters = {p.name: p for p in (*network.get_parameters(), *optimizer.get_parameters())}
        listed = [{"name": name, "data": parameter} for name, parameter in parameters.items()]
        ms.save_checkpoint(listed, str(folder / f"{kind}.ckpt"), append_dict={"epoch_num": 3, "step_num": 36})
    arrays = {kind: np.arange(6).reshape(2, 3).astype(kind) for kind in TYPES}
    tensors = {**{name: Tensor(array) for name, array in arrays.items()}, "bool": Tensor(np.array([True, False]))}
    tensors["bfloat16"] = Tensor(np.arange(4, dtype=np.float32)).astype(ms.bfloat16)
    tensors["scalar"] = Tensor(np.int64(7))
    listed = [{"name": name, "data": tensor} for name, tensor in tensors.items()]
    ms.save_checkpoint(listed, str(folder / "types.ckpt"), append_dict={"text": "words"}, crc_check=True)
    ms.train.serialization.SLICE_SIZE = 1  # KiB: parameters above it come in several values
    large = [{"name": "large", "data": Tensor(np.arange(5000, dtype=np.float32).reshape(50, 100))}]
    ms.save_checkpoint(large, str(folder / "sliced.ckpt"))
    for mode in ("AES-GCM", "AES-CBC"):
        ms.save_checkpoint(large, str(folder / f"{mode}.ckpt"), enc_key=b"0123456789ABCDEF", enc_mode=mode)


def load(file: Path, kind: str, folder: Path) -> None:
    network = ResNet50(kind)
    missing, _ = ms.load_param_into_net(network, ms.load_checkpoint(str(file)), strict_load=True)
    assert not missing, missing
    network.set_train(False)
    images = np.load(folder / f"{kind}.npz")["images"]
    np.save(file.with_suffix(".npy"), network(Tensor(images)).asnumpy())


if __name__ == "__main__":
    if sys.argv[1] == "save":
        save(Path(sys.argv[2]))
    else:
        load(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
