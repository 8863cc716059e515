"""ResNet-56 on CIFAR-10 as TensorFlow's official models (r1) train it: 182 epochs of SGD.

Weight decay 2e-4 on every variable; learning rate 0.1, divided by ten after epochs 91, 136 and 182. Images are padded
by four pixels, cropped, flipped, and standardised one by one. Measured runs are in docs/results.md.

    viaduct train resnet56_cifar10 --data cifar-10-batches-bin
"""

from viaduct.recipes import Cifar10, Evaluation, Recipe, Sgd, Steps, Top1

recipe = Recipe(
    model="resnet56_cifar",
    data=Cifar10(global_batch=128, size=32, pad=4, flip=True, normalise="per_image", eval_batch=500),
    optimizer=Sgd(lr=0.1, momentum=0.9, weight_decay=2e-4, decay="all"),
    schedule=Steps(boundaries=(91, 136, 182), factors=(1.0, 0.1, 0.01, 0.001), warmup_epochs=0),
    epochs=182,
    evaluation=Evaluation(every_epochs=10),
    expects=Top1(93.0, within=0.5),
)
