"""ResNet for pictures of 32x32 (He et al. section 4.2), as in TensorFlow's official models, r1.

Depth 6n + 2: three stages of n basic blocks with 16, 32 and 64 filters, behind a 3x3 stem without a pool. The
paper's shortcuts have no weights; TensorFlow's project in the first block of every stage, as on ImageNet.
"""

from __future__ import annotations

from functools import partial

from viaduct.models.resnet import QUICK, BasicBlock, ResNet, small_stem

small_resnet = partial(ResNet, block=BasicBlock, filters=(16, 32, 64), stem=small_stem)

variants = {
    "resnet20_cifar": partial(small_resnet, blocks=(3, 3, 3)),
    "resnet32_cifar": partial(small_resnet, blocks=(5, 5, 5)),
    "resnet44_cifar": partial(small_resnet, blocks=(7, 7, 7)),
    "resnet56_cifar": partial(small_resnet, blocks=(9, 9, 9)),
    "resnet110_cifar": partial(small_resnet, blocks=(18, 18, 18)),
    "resnet20_quick": partial(small_resnet, blocks=(3, 3, 3), style=QUICK),  # not TensorFlow's: for runs of minutes
}
