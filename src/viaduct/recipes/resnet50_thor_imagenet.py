"""ResNet-50 on ImageNet-1k with THOR, MindSpore's second-order optimizer: 42 epochs instead of ninety.

Source: the CANN book's section on THOR, and MindSpore's published settings for eight Ascend cards with 32 images each.
THOR's factors are inverted every 834 steps, a sixth of an epoch. The learning rate falls with the sixth power of the
share of epochs left until epoch 70 and is halved at epochs 39 and 40. Published: 75.95 % after epoch 42 (SGD needs
ninety for 75.9 %). The network and the preprocessing are those of ResNet-50 v1.5, which come closest to MindSpore's. In
fp16 the loss is scaled by 128.

    viaduct train resnet50_thor_imagenet --data records/
"""

from viaduct.recipes import CrossEntropy, Log, Precision, Recipe, Records, Thor, ThorDecay, Top1

recipe = Recipe(
    model="resnet50_v15",
    data=Records(global_batch=256, size=224, preprocess="v15", label_shift=-1),
    optimizer=Thor(lr=0.045, momentum=0.9, weight_decay=5e-4, damping_init=0.03, damping_decay=0.87, frequency=834),
    schedule=ThorDecay(end_epoch=70, power=6, halve_at=(39, 40)),
    loss=CrossEntropy(label_smoothing=0.1, spread="others"),
    epochs=42,
    precision=Precision(fp16_scale=128.0),
    log=Log(format="mindspore"),
    expects=Top1(75.9, within=0.3),
)
