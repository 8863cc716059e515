"""ResNet for 32x32 images, as in TensorFlow's official models, r1 (https://arxiv.org/abs/1512.03385, section 4.2).

A depth of 6n + 2 layers has three stages of n basic blocks with 16, 32 and 64 filters, after a 3x3 stem without a pool.
The paper's shortcuts have no weights; in TensorFlow the first block of every stage has a projection, as on ImageNet.

`resnet20_quick` and `resnet50_stem3` (ResNet-50 with the small stem) are viaduct's own, for runs of a few thousand
steps. The last norm of each block starts with a weight of 0, so that the block at first adds nothing to its shortcut;
running statistics average over ten steps instead of some 330 (a decay of 0.997).
"""

from __future__ import annotations

from functools import partial

from viaduct.models.family import Family
from viaduct.models.resnet import BareStem, BasicBlock, BasicBlock2, Bottleneck, ResNet, Stem, Style, official_names

QUICK = Style(momentum=0.1, zero_gamma=True)

small_stem = partial(Stem, kernel=3, stride=1, pool=False)
small_bare_stem = partial(BareStem, kernel=3, stride=1, pool=False)
small_resnet = partial(ResNet, block=BasicBlock, filters=(16, 32, 64), stem=small_stem)
small_resnet2 = partial(ResNet, block=BasicBlock2, filters=(16, 32, 64), stem=small_bare_stem)  # version 2

BLOCKS = {20: 3, 32: 5, 44: 7, 56: 9, 110: 18}  # depth -> blocks of each of the three stages
variants = {
    **{f"resnet{depth}_cifar": partial(small_resnet, blocks=(count,) * 3) for depth, count in BLOCKS.items()},
    **{f"resnet{depth}_cifar_v2": partial(small_resnet2, blocks=(count,) * 3) for depth, count in BLOCKS.items()},
    "resnet20_quick": partial(small_resnet, blocks=(3, 3, 3), style=QUICK),
    "resnet50_stem3": partial(ResNet, block=Bottleneck, blocks=(3, 4, 6, 3), stem=small_stem, style=QUICK),
}
family = Family(variants, input_size=32, classes=10, tensorflow=official_names)
