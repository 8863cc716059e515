"""ResNet-50 v1.5 on ImageNet-1k as NVIDIA and Cambricon train it: ninety epochs of SGD, smoothed labels.

Source: the defaults of Cambricon's script: batch 128 on one card, learning rate 0.256 * batch / 256, eight epochs of
warm-up, then divided by ten after epochs 30, 60, 80 and 90. Eight cards: `--batch 1024 --lr 1.024`. The script states
no accuracy. NVIDIA publishes 77.01 % with `--set schedule.mode=cosine` and a batch of 2048, and 78.34 % after 250
epochs with `--set mixup=0.2`. In fp16 the loss is scaled by 256, or with `--loss-scale dynamic` by a scale that adapts.

    viaduct train resnet50_v15_imagenet --data records/
"""

from viaduct.recipes import Checkpoint, CrossEntropy, Log, Precision, Recipe, Records, Sgd, V15Decay

recipe = Recipe(
    model="resnet50_v15",
    data=Records(global_batch=128, size=224, preprocess="v15", label_shift=-1),
    optimizer=Sgd(lr=0.128, momentum=0.875, weight_decay=1 / 32768, decay="not_norm"),
    schedule=V15Decay(mode="steps", warmup_epochs=8),
    loss=CrossEntropy(label_smoothing=0.1),
    mixup=0.0,
    epochs=90,
    precision=Precision(fp16_scale=256.0, scale_start=2.0**15),
    checkpoint=Checkpoint(every_steps=1000, every_minutes=0, keep=5),
    log=Log(format="dll"),
)
