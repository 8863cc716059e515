"""Recognise made-up leaves with tf.keras: a functional model, callbacks, a checkpoint, a prediction.

    python leaves_keras.py --epochs 3 --out runs/leaves

A leaf is a filled ellipse; its class is decided by how long and how tilted it is. Images are drawn when the script
starts, so nothing is downloaded.
"""

import argparse
import json
import os
import random
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1.keras import backend as K
from tensorflow.compat.v1.keras import layers
from tensorflow.compat.v1.keras.callbacks import Callback, EarlyStopping, ModelCheckpoint, ReduceLROnPlateau
from tensorflow.compat.v1.keras.models import Model, load_model

KINDS = ("oak", "willow", "birch")
SIZE = 20


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--images", type=int, default=900)
    parser.add_argument("--learning_rate", type=float, default=0.01)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--out", default="", help="where the model goes; a temporary directory if not given")
    parser.add_argument("--cache_gpu_memory", action="store_true", help="take all memory of the card at once")
    return parser.parse_args()


def fix_seeds(seed):
    random.seed(seed)
    np.random.seed(seed)
    tf.set_random_seed(seed)


# ---- data


def draw_leaf(kind, generator):
    """One image: willow leaves are narrow, birch leaves stand upright, oak leaves are neither."""
    length = generator.uniform(6, 9)
    width = {"oak": 0.75, "willow": 0.25, "birch": 0.55}[kind] * length
    angle = generator.uniform(-0.3, 0.3) + {"oak": 0.8, "willow": 0.0, "birch": 1.6}[kind]
    rows, columns = np.mgrid[0:SIZE, 0:SIZE] - (SIZE - 1) / 2
    along = columns * np.cos(angle) + rows * np.sin(angle)
    across = -columns * np.sin(angle) + rows * np.cos(angle)
    inside = (along / length) ** 2 + (across / width) ** 2 <= 1
    return inside + generator.normal(0, 0.15, size=inside.shape)


def make_leaves(count, seed):
    generator = np.random.RandomState(seed)
    labels = generator.randint(0, len(KINDS), size=count)
    images = np.stack([draw_leaf(KINDS[label], generator) for label in labels])
    return images.astype("float32")[..., None], tf.keras.utils.to_categorical(labels, len(KINDS))


def augmented(images, labels, batch_size, seed):
    """Batches without end, some of them mirrored: what fit takes in place of arrays."""
    generator = np.random.RandomState(seed)
    while True:
        order = generator.permutation(len(images))
        for start in range(0, len(order) - batch_size + 1, batch_size):
            chosen = order[start : start + batch_size]
            batch = images[chosen]
            shift = generator.randint(-2, 3)
            yield np.roll(batch, shift, axis=2), labels[chosen]


# ---- model


def convolution_block(inputs, filters, name):
    outputs = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=name + "_conv")(inputs)
    outputs = layers.BatchNormalization(momentum=0.8, name=name + "_norm")(outputs)
    outputs = layers.Activation("relu", name=name + "_relu")(outputs)
    return layers.MaxPooling2D(name=name + "_pool")(outputs)


def build_model(dropout):
    inputs = layers.Input(shape=(SIZE, SIZE, 1), name="image")
    outputs = convolution_block(inputs, 8, "first")
    outputs = convolution_block(outputs, 16, "second")
    outputs = layers.Flatten()(outputs)
    outputs = layers.Dense(32, activation="relu", kernel_regularizer=tf.keras.regularizers.l2(1e-4))(outputs)
    outputs = layers.Dropout(dropout)(outputs)
    outputs = layers.Dense(len(KINDS), activation="softmax", name="kind")(outputs)
    return Model(inputs=inputs, outputs=outputs, name="leaves")


class History(Callback):
    """Writes what each epoch gave, one JSON object a line."""

    def __init__(self, path):
        super(History, self).__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        with open(self.path, "a") as file:
            values = {name: float(value) for name, value in (logs or {}).items()}
            file.write(json.dumps(dict(values, epoch=epoch + 1), sort_keys=True) + "\n")


def make_callbacks(directory):
    return [
        ModelCheckpoint(os.path.join(directory, "best.h5"), monitor="val_loss", save_best_only=True),
        ReduceLROnPlateau(monitor="val_loss", factor=0.3, patience=2, min_lr=1e-5),
        EarlyStopping(monitor="val_loss", patience=5),
        History(os.path.join(directory, "history.jsonl")),
    ]


# ---- running


def set_up_session(take_all):
    """Keras would take the whole card; give it a session that grows."""
    config = tf.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = not take_all
    K.set_session(tf.Session(config=config))


def train(options, directory):
    images, labels = make_leaves(options.images, seed=1)
    held_out = make_leaves(200, seed=2)
    model = build_model(options.dropout)
    model.compile(
        optimizer=tf.keras.optimizers.SGD(lr=options.learning_rate, momentum=0.9, nesterov=True),
        loss="categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.summary()
    model.fit(
        augmented(images, labels, options.batch_size, seed=3),
        steps_per_epoch=len(images) // options.batch_size,
        epochs=options.epochs,
        validation_data=held_out,
        callbacks=make_callbacks(directory),
        verbose=2,
    )
    return model


def try_out(directory):
    """Load the best network and ask it about leaves that it has not seen."""
    images, labels = make_leaves(300, seed=4)
    model = load_model(os.path.join(directory, "best.h5"))
    loss, accuracy = model.evaluate(images, labels, batch_size=50, verbose=0)
    guesses = model.predict(images[:8]).argmax(axis=1)
    print("guesses:", ", ".join(KINDS[guess] for guess in guesses))
    print("final accuracy %.3f, loss %.3f" % (accuracy, loss))


def main():
    options = parse_arguments()
    tf.disable_v2_behavior()
    directory = options.out or tempfile.mkdtemp(prefix="leaves_")
    os.makedirs(directory, exist_ok=True)
    fix_seeds(5)
    set_up_session(options.cache_gpu_memory)
    train(options, directory)
    K.clear_session()
    try_out(directory)


if __name__ == "__main__":
    main()
