"""ResNeXt-50 32x4d on ImageNet-1k as Ascend's model zoo trains it: 120 epochs of Nesterov SGD under a cosine.

Source: the zoo's configuration for eight cards with 32 images each, here one batch of 256: a learning rate that rises
to 0.1 along half a cosine in five epochs, then falls to a millionth of that. Its one-card configuration is the same
recipe with a constant rate: `--batch 32 --set schedule=Constant --steps 10000`. Its newer one for eight cards with 256
images each is `--batch 2048 --lr 0.8`. Published after 601,000 steps: 78.197 % top-1, 94.14 % top-5. In fp16 the loss
is scaled by 1024.

    viaduct train resnext50_imagenet --data records/
"""

from viaduct.recipes import Checkpoint, CrossEntropy, Log, Precision, Recipe, Records, ResnextDecay, Sgd, Top1

recipe = Recipe(
    model="resnext50",
    data=Records(global_batch=256, size=224, preprocess="resnext"),
    optimizer=Sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4, decay="not_norm"),
    schedule=ResnextDecay(mode="cosine", warmup_epochs=5, end=1e-6),
    loss=CrossEntropy(label_smoothing=0.1, smooth_evaluation=True),
    epochs=120,
    precision=Precision(fp16_scale=1024.0),
    checkpoint=Checkpoint(every_steps=50_000, every_minutes=0, keep=5),
    log=Log(every_steps=1000, format="resnext"),
    expects=Top1(78.2, within=0.5),
)
