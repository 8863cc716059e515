"""AmoebaNet-D on CIFAR-10 enlarged to 224x224: the network of the ImageNet recipe, to try a machine with.

The learning rate is lower and the moving average shorter, for an epoch has 390 steps here instead of 20,018. No
accuracy is published for this recipe.

    viaduct train amoebanet_d_cifar10 --data cifar-10-batches-bin
"""

from viaduct.recipes import AmoebanetDecay, Checkpoint, Cifar10, Ema, Sgd, replace
from viaduct.recipes.amoebanet_d_imagenet import recipe as imagenet

recipe = replace(
    imagenet,
    data=Cifar10(global_batch=128, size=224, pad=4, flip=True),
    optimizer=Sgd(lr=1.0, momentum=0.0, weight_decay=4e-5, decay="weights"),
    schedule=AmoebanetDecay(warmup_epochs=1),
    ema=Ema(decay=0.999),
    checkpoint=Checkpoint(),
    expects=None,
)
