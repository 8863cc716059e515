"""Fashion-MNIST with the CANN book's ResNet-50: one epoch at a low rate, after training on CIFAR-10.

A new head takes the place of the old one. Without `--init` and `--init-exclude` the command trains from scratch, for
which one epoch is short.

    viaduct data fetch fashion-mnist --out fashion
    viaduct train finetune_fashion_mnist --data fashion --init runs/resnet50_cifar10 --init-exclude 'head.*'
"""

from viaduct.recipes import Checkpoint, Cosine, FashionMnist, Sgd, replace
from viaduct.recipes.resnet50_cifar10 import recipe as cifar10

recipe = replace(
    cifar10,
    data=FashionMnist(global_batch=256, size=224, pad=2, flip=True),
    optimizer=Sgd(lr=0.02, momentum=0.9, weight_decay=1e-4, decay="weights"),
    schedule=Cosine(warmup_epochs=0.1),
    epochs=1,
    checkpoint=Checkpoint(),
    expects=None,
)
