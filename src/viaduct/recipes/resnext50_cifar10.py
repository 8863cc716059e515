"""ResNeXt-50 on CIFAR-10 enlarged to 224x224: the ImageNet recipe, shortened to try a machine with.

Thirty epochs in batches of 128; the first epoch is warm-up. No accuracy is published for this recipe.

    viaduct train resnext50_cifar10 --data cifar-10-batches-bin
"""

from viaduct.recipes import Checkpoint, Cifar10, Log, ResnextDecay, replace
from viaduct.recipes.resnext50_imagenet import recipe as imagenet

recipe = replace(
    imagenet,
    data=Cifar10(global_batch=128, size=224, pad=4, flip=True),
    schedule=ResnextDecay(warmup_epochs=1),
    epochs=30,
    checkpoint=Checkpoint(),
    log=Log(format="resnext"),
    expects=None,
)
