"""ResNet-50 on CIFAR-10 enlarged to 224x224 with THOR: resnet50_cifar10 in half the epochs.

Made to be compared with `resnet50_cifar10` (SGD, 90 epochs, 91.76 % here): 93.77 % was measured in one run, and SGD's
result is reached before epoch 30. THOR's factors are inverted every 50 steps (an epoch has 195); the learning rate
falls with the square of the share of epochs left until epoch 48. Rate and damping must fit each other: 0.3 with a
damping of 0.3 does as well, 0.1 with a damping of 0.03 badly. Change any of it with flags, for instance `--set
optimizer.damping_init=0.3 --set optimizer.frequency=100 --lr 0.3`.

    viaduct train resnet50_thor_cifar10 --data cifar-10-batches-bin
"""

from viaduct.recipes import Checkpoint, Thor, ThorDecay, Top1, replace
from viaduct.recipes.resnet50_cifar10 import recipe as sgd

recipe = replace(
    sgd,
    optimizer=Thor(
        lr=0.1, momentum=0.9, weight_decay=5e-4, decay="weights", damping_init=0.1, damping_decay=0.87, frequency=50
    ),
    schedule=ThorDecay(end_epoch=48, power=2, halve_at=()),
    epochs=45,
    checkpoint=Checkpoint(),
    expects=Top1(93.8, within=0.5),
)
