"""ResNet-50 on CIFAR-10 enlarged to 224x224: the CANN book's network, pipeline and warm-up cosine schedule.

A checkpoint is saved every 32 steps and ten are kept, as in the book's training chapter. The book names no number of
epochs and no weight decay: 90 epochs, the decay and its exclusions are those of MindSpore's own CIFAR-10 configuration,
for which MindSpore publishes 91.4 %. The schedule of that configuration is `--set schedule=MindsporePolynomial`.

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
