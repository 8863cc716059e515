"""ResNet-50 on CIFAR-10 enlarged to 224x224: the book's network, pipeline and warm-up cosine schedule.

The book names no number of epochs; 90 is what MindSpore's own CIFAR-10 configuration trains, and the
weight decay and its exclusions are that configuration's too; it saves every 32 steps and keeps ten checkpoints, as the
book does. MindSpore publishes 91.4 %. The schedule of its own
configuration is `--set schedule=MindsporePolynomial`.

    viaduct train resnet50_cifar10 --data cifar-10-batches-bin
"""

from viaduct.recipes import BookCosine, Checkpoint, Cifar10, Evaluation, Recipe, Sgd, Top1

recipe = Recipe(
    model="resnet50_book",
    data=Cifar10(global_batch=256, size=224, pad=4, flip=True),
    optimizer=Sgd(lr=0.1, momentum=0.9, weight_decay=1e-4, decay="weights"),
    schedule=BookCosine(warmup_epochs=5),
    epochs=90,
    evaluation=Evaluation(every_epochs=5),
    checkpoint=Checkpoint(every_steps=32, keep=10),
    expects=Top1(91.4),
)
