"""ResNet-50 on CIFAR-10 at its own 32x32: a small stem, cutout, label smoothing, eighty epochs.

The stem keeps the resolution (3x3, stride 1, no pooling), so one epoch costs a fifth of resnet50_cifar10's.

    viaduct train resnet50_cifar10_modern --data cifar-10-batches-bin
"""

from viaduct.recipes import Checkpoint, Cifar10, Cosine, CrossEntropy, Evaluation, Sgd, Top1, replace
from viaduct.recipes.resnet50_cifar10 import recipe as book

recipe = replace(
    book,
    model="resnet50_stem3",
    data=Cifar10(global_batch=256, size=32, pad=4, flip=True, cutout=16),
    optimizer=Sgd(lr=0.2, momentum=0.9, nesterov=True, weight_decay=5e-4, decay="weights"),
    schedule=Cosine(warmup_epochs=5),
    loss=CrossEntropy(label_smoothing=0.1),
    epochs=80,
    evaluation=Evaluation(every_epochs=5),
    checkpoint=Checkpoint(),
    expects=Top1(95.0),
)
