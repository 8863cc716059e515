"""A small ResNet on the built-in shapes: a few minutes on two cores, nothing to download.

This is what `make demo` runs. It is a complete training run but for its size.

    viaduct train shapes_taster
"""

from viaduct.recipes import Cosine, Evaluation, Log, Recipe, Sgd, Shapes, Top1

recipe = Recipe(
    model="resnet20_quick",
    data=Shapes(global_batch=64, size=32, train_images=6400, validation_images=1000),
    optimizer=Sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4),
    schedule=Cosine(warmup_epochs=1),
    epochs=6,
    evaluation=Evaluation(every_epochs=1),
    log=Log(every_steps=50),
    expects=Top1(97.0, within=2.0),
)
