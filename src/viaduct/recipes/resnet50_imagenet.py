"""ResNet-50 v1 on ImageNet-1k as TensorFlow's official models (r1) train it: ninety epochs of SGD, no tricks.

Learning rate 0.128 for a batch of 256, five epochs of warm-up, then divided by ten after epochs 30, 60, 80 and 90;
weight decay 1e-4 on all parameters but those of batch norm. TensorFlow's authors publish 76.53 % (fp32) and 76.18 %
(fp16); no ImageNet run of this recipe has been made here yet. In fp16 the loss is scaled by 512, as in the Ascend port.

    viaduct train resnet50_imagenet --data records/
"""

from viaduct.recipes import Precision, Recipe, Records, Sgd, Steps, Top1

recipe = Recipe(
    model="resnet50_v1",
    data=Records(global_batch=256, size=224, preprocess="official"),
    optimizer=Sgd(lr=0.128, momentum=0.9, weight_decay=1e-4, decay="not_norm"),
    schedule=Steps(boundaries=(30, 60, 80, 90), warmup_epochs=5),
    epochs=90,
    precision=Precision(fp16_scale=512.0),
    expects=Top1(76.5, within=0.5),
)
