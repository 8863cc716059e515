"""ResNet-50 as the training chapter of the CANN book builds it in MindSpore (listings 5-11 to 5-17).

Every layer pads SAME, and convolutions have no bias. Their weights and the classifier's are drawn from a normal
distribution with a standard deviation of 0.01. The first block of every stage has a projection. The listing's forward
pass forgets to call it; here it is called. The book does not print the functions that create norms and the classifier
(`_bn`, `_bn_last`, `_fc`); those of MindSpore's model zoo have epsilon 1e-4, momentum 0.9 (PyTorch's 0.1), gamma zero
in the last norm of a block, and bias zero.
"""

from __future__ import annotations

from functools import partial

from viaduct.models import initialisers
from viaduct.models.family import Family
from viaduct.models.resnet import Bottleneck, ResNet, Style, name_for_torchvision

variants = {
    "resnet50_book": partial(
        ResNet,
        block=Bottleneck,
        blocks=(3, 4, 6, 3),
        style=Style(pad_same=True, epsilon=1e-4, momentum=0.1, zero_gamma=True),
        initialiser=initialisers.small_normal,
    ),
}
family = Family(variants, classes=10, torchvision_names=name_for_torchvision, peers={"resnet50_book": "resnet50"})
