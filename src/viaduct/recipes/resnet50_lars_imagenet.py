"""ResNet-50 v1 on ImageNet-1k in batches of 8192 with LARS: `enable_lars` of TensorFlow's official models (r1).

The peak of the learning rate depends on the batch: 10 for 8192, 5 for less, 25 from 16384, 32 from 32768. Five epochs
of warm-up are followed by quadratic decay to 1e-4 until epoch 90; `--lr` multiplies all of it. On one card compute the
batch in parts, with `--accumulate`. The reference publishes no accuracy for it.

    viaduct train resnet50_lars_imagenet --data records/ --accumulate 32
"""

from viaduct.recipes import Lars, LarsPolynomial, Records, replace
from viaduct.recipes.resnet50_imagenet import recipe as resnet50

recipe = replace(
    resnet50,
    data=Records(global_batch=8192, eval_batch=256, size=224, preprocess="official"),
    optimizer=Lars(lr=1.0, momentum=0.9, weight_decay=1e-4, form="contrib"),
    schedule=LarsPolynomial(),
    expects=None,
)
