"""Images/s of our input pipeline, tf.data, DALI and a DataLoader with Pillow, on the same files in one run.

Our pipeline is measured with both decoders: `exact`, and `fast`, which shrinks large images while decoding them. Each
pipeline runs in its own process. After a warm-up they take turns of a few seconds, so that a slow moment of the machine
affects all of them. Between its turns a pipeline is stopped by a signal; otherwise it would prepare batches during the
turns of the others.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import signal
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from viaduct.cores import count_cores
from viaduct.data import jpeg, region
from viaduct.data.geometry import Axis, resample
from viaduct.data.index import RecordFolder
from viaduct.data.order import make_image_generator
from viaduct.data.output_files import check_output, write_result
from viaduct.data.preprocess import choose_view, make_normalisation_rows, normalise
from viaduct.data.views import View
from viaduct.errors import BadData, UnknownName, ViaductError
from viaduct.extras import is_installed, require

PEER_MODULES = {"tf.data": "tensorflow", "dali": "nvidia.dali", "pil": "PIL"}
Floats = npt.NDArray[np.float32]
FIGURES_PREFIX = b'{\n "network"'  # first bytes of a file of `write_figures`; only such a file is replaced
TURNS = "turns_images_per_s"  # a row's key: one figure for each turn
# Number of batches that are discarded when a turn begins, because they may have been prepared before it. viaduct and
# tf.data prepare at most this many batches ahead, DALI two. A DataLoader prepares two for each worker, so with several
# workers `pil` looks a little faster than it is.
BATCHES_AHEAD = 3
TIMED_IMAGES = 200  # images of which `time_stages` takes the mean
READY = "ready"  # sent by a pipeline's process after its first batch


@dataclass(frozen=True)
class Task:
    """Shuffled training batches that every pipeline must produce."""

    records: Path  # folder of TFRecord files
    network: str  # decides crop and normalisation
    batch: int
    workers: int
    size: int = 224  # side of an image in pixels


def measure(
    records: Path, network: str, peers: list[str], batch: int, workers: int, seconds: float, turns: int
) -> dict[str, Any]:
    """Measure our pipelines and the peers in turns; return the figures for `--json`.

    A peer that is not installed, or fails, is left out with the reason; an unknown one raises `UnknownName`. With
    `workers` 0, each core gets one worker. A row's `ratio_to_tf_data` is the median ratio of its turns to those of
    tf.data, None if tf.data was not measured.
    """
    for name in peers:
        if name not in PEER_MODULES:
            raise UnknownName("peer", name, PEER_MODULES)
    require("torch", "simplejpeg")
    folder = RecordFolder(records, "train")
    task = Task(records, network, min(batch, len(folder)), workers or count_cores())
    missing = {name: f"{PEER_MODULES[name]} is not installed" for name in peers if not is_installed(PEER_MODULES[name])}
    names = ["exact", "fast", *(name for name in peers if name not in missing)]
    rows, failed = run_turns(names, task, seconds, turns)
    tf_data_rates = next((row[TURNS] for row in rows if row["pipeline"] == "tf.data"), None)
    for row in rows:
        row["ratio_to_tf_data"] = None
        if tf_data_rates:
            row["ratio_to_tf_data"] = median(a / b for a, b in zip(row[TURNS], tf_data_rates, strict=True))
    return {
        "network": network,
        "batch": task.batch,
        "workers": task.workers,
        "images": len(folder),
        "mean_bytes": round(float(folder.lengths.mean())),
        "decoder": region.describe_decoder(),
        "rows": rows,
        "stages_ms": time_stages(folder, network),
        "left_out": missing | failed,
    }


def write_figures(out: Path, result: dict[str, Any]) -> None:
    write_result(out, (json.dumps(result, indent=1) + "\n").encode())


def check_figures_path(out: Path) -> None:
    check_output(out, ".json", FIGURES_PREFIX, "a file of figures")


def run_turns(names: list[str], task: Task, seconds: float, turns: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Run the pipelines in turns after a warm-up of at most two seconds each.

    Return a row for each pipeline that finished, and the reason for each peer that failed. Raise `BadData` if one of
    our own pipelines fails.
    """
    failed: dict[str, str] = {}

    def attempt(name: str, action: Callable[[], Any]) -> Any:
        """Return the action's result, or None and record the reason if a peer fails."""
        try:
            return action()
        except PipelineFailed as error:
            if name not in PEER_MODULES:
                raise BadData(str(error)) from None
            failed[name] = str(error).splitlines()[0]
            return None

    with contextlib.ExitStack() as stack:
        pipelines: list[Pipeline] = []
        for name in names:
            if pipeline := attempt(name, partial(Pipeline, name, task)):
                pipelines.append(stack.enter_context(contextlib.closing(pipeline)))
        # Images/s and memory of each turn except the warm-up, which is turn 0.
        samples: dict[str, list[tuple[float, float]]] = {pipeline.name: [] for pipeline in pipelines}
        for turn in range(turns + 1):
            for pipeline in [pipeline for pipeline in pipelines if pipeline.name not in failed]:
                sample = attempt(pipeline.name, partial(pipeline.run, seconds if turn else min(seconds, 2.0)))
                if turn and sample:
                    samples[pipeline.name].append(sample)
    rows = [
        {
            "pipeline": name,
            "images_per_s": median(rate for rate, _ in turn_samples),
            TURNS: [rate for rate, _ in turn_samples],
            "memory_mib": max(memory for _, memory in turn_samples),
        }
        for name, turn_samples in samples.items()
        if name not in failed
    ]
    return rows, failed


class PipelineFailed(Exception):
    """Raised with the reason if the process of a pipeline could not start or continue."""


class Pipeline:
    """Pipeline in its own process group, which is stopped during the turns of other pipelines."""

    def __init__(self, name: str, task: Task) -> None:
        self.name = name
        context = get_context("spawn")
        self.pipe, child_pipe = context.Pipe()
        self.process = context.Process(target=serve, args=(name, task, child_pipe))
        try:
            with block_interrupts():
                self.process.start()
            child_pipe.close()  # so that `recv` raises EOFError if the process dies
            self._receive()  # READY
            self._signal(signal.SIGSTOP)
        except BaseException:  # Ctrl-C too: a process left running would print an error about its closed pipe
            self.close()
            raise

    def run(self, seconds: float) -> tuple[float, float]:
        """Run one turn; return its images/s, and the peak memory in MiB of the process without its workers."""
        self._signal(signal.SIGCONT)
        self.pipe.send(seconds)
        answer: tuple[float, float] = self._receive()
        self._signal(signal.SIGSTOP)
        return answer

    def close(self) -> None:
        """Kill the process of the pipeline and all of its children."""
        if self.process.pid is None:
            return  # it was never started
        self._signal(signal.SIGKILL)
        self.process.kill()  # it may not have its own group yet
        self.process.join()

    def _receive(self) -> Any:
        """Return the next message of the process; raise `PipelineFailed` for an error message, or if it has ended."""
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            reason = f"the process of the pipeline {self.name!r} ended unexpectedly; see its output above."
            raise PipelineFailed(reason) from None
        if isinstance(answer, str) and answer != READY:
            raise PipelineFailed(answer)
        return answer

    def _signal(self, number: int) -> None:
        """Send a signal to the process and its workers."""
        assert self.process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)  # `serve` makes the process the leader of its own group


@contextlib.contextmanager
def block_interrupts() -> Iterator[None]:
    """Block SIGINT while a process starts and inherits the block: only the parent then handles Ctrl-C."""
    resource_tracker.ensure_running()  # it would unblock SIGINT if it started later
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def serve(name: str, task: Task, pipe: Connection) -> None:
    """Run a pipeline until it is killed; send the reason if it fails. An unexpected error of our own is raised."""
    os.setpgid(0, 0)
    try:
        take_turns(name, task, pipe)
    except ViaductError as error:
        remedies = [hint for hint in error.hints if "--on-bad-record" not in hint]  # `data bench` has no such flag
        pipe.send("\n  ".join((error.message, *remedies)))
    except Exception as error:
        if name not in PEER_MODULES:
            raise
        pipe.send(f"it fails: {type(error).__name__}: {str(error).strip().partition(os.linesep)[0]}")


def take_turns(name: str, task: Task, pipe: Connection) -> None:
    """Receive the seconds of each turn, and send its images/s and the peak memory of this process in MiB."""
    batches = PIPELINES[name](task)
    next(batches)
    pipe.send(READY)
    while True:
        seconds = pipe.recv()
        for _ in range(BATCHES_AHEAD):
            next(batches)  # prepared before the turn began
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            count += next(batches)
        rate = count / (time.perf_counter() - began)
        pipe.send((rate, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def make_our_batches(task: Task, decode: Literal["exact", "fast"]) -> Iterator[int]:
    """Yield the sizes of batches of viaduct's own pipeline."""
    import torch

    from viaduct.data.records import Records

    torch.set_num_threads(1)
    classes = 10**6  # more than any data set has
    records = Records(
        task.batch, task.size, preprocess=task.network, decode=decode, workers=task.workers, classes=classes
    )
    split = records.load(task.records).train
    stream = records.batches(split, device=torch.device("cpu"), train=True, seed=1)
    for epoch in itertools.count():
        for batch in stream.epoch(epoch):
            yield len(batch.labels)


def make_tf_data_batches(task: Task) -> Iterator[int]:
    """Yield the sizes of batches of a tf.data pipeline like the one of TensorFlow's official ResNet.

    It crops, flips, resizes and normalises on the CPU, with autotuned parallel calls. The images' boxes are not used.
    """
    import tensorflow as tf

    from viaduct.data.preprocess import get_normalisation

    mean, scale = get_normalisation(task.network)
    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        encoded = example["image/encoded"]
        box = tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4])
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(encoded),
            box,
            min_object_covered=0.1,
            aspect_ratio_range=[0.75, 1.33],
            area_range=[0.05, 1.0],
            max_attempts=100,
            use_image_if_no_bounding_boxes=True,
        )
        (y, x, _), (height, width, _) = tf.unstack(begin), tf.unstack(size)
        window = tf.stack([y, x, height, width])
        image = tf.image.decode_and_crop_jpeg(encoded, window, channels=3, dct_method="INTEGER_FAST")
        image = tf.image.random_flip_left_right(image)
        image = tf.compat.v1.image.resize_bilinear(image[None], [task.size, task.size], align_corners=False)[0]
        return (image - mean) * scale, example["image/class/label"]

    files = sorted(str(path) for path in RecordFolder(task.records, "train").files)
    data = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files)).repeat()
    data = data.interleave(tf.data.TFRecordDataset, cycle_length=10, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.shuffle(1000).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.batch(task.batch, drop_remainder=True).prefetch(BATCHES_AHEAD - 1)
    for images, _ in data:
        yield int(images.shape[0])


def make_dataloader_batches(task: Task) -> Iterator[int]:
    """Yield the sizes of batches of a DataLoader, whose workers decode one image at a time with Pillow."""
    from torch.utils.data import DataLoader

    data: Any = PillowImages(task)
    loader: Any = DataLoader(
        data,
        batch_size=task.batch,
        shuffle=True,
        num_workers=task.workers,
        persistent_workers=True,
        drop_last=True,
        multiprocessing_context="fork",  # spawned workers would leave semaphores behind, with a warning
    )
    while True:
        for images, _ in loader:
            yield len(images)


class PillowImages:
    """Map-style dataset over the same records, for a DataLoader."""

    def __init__(self, task: Task) -> None:
        self.task, self.folder = task, RecordFolder(task.records, "train")

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        import io

        import torch
        from PIL import Image

        from viaduct.data.preprocess import get_normalisation, sample_crop

        fields = self.folder.read_fields(number)
        image = Image.open(io.BytesIO(fields.encoded)).convert("RGB")
        crop = sample_crop(self.task.network, image.height, image.width, None, np.random.default_rng())
        box = (crop.x, crop.y, crop.x + crop.width, crop.y + crop.height)
        side = (self.task.size, self.task.size)
        pixels = np.asarray(image.resize(side, Image.Resampling.BILINEAR, box=box), np.float32)
        mean, scale = get_normalisation(self.task.network)
        return torch.from_numpy((pixels - mean) * scale).permute(2, 0, 1), fields.label


def make_dali_batches(task: Task) -> Iterator[int]:
    """Yield the sizes of batches of NVIDIA DALI's CPU pipeline (written from its documentation, not yet run)."""
    import tempfile

    import nvidia.dali.tfrecord as tfrec
    from nvidia.dali import fn, pipeline_def, types

    from viaduct.data.index import index_records
    from viaduct.data.preprocess import get_normalisation

    folder = Path(tempfile.mkdtemp())
    indices = index_records(task.records, dali_folder=folder)
    training = [index for index in indices if index.path.name.startswith("train-")]
    mean, scale = get_normalisation(task.network)

    @pipeline_def(batch_size=task.batch, num_threads=task.workers, device_id=None)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        features = {
            "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
            "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
        }
        paths, index_paths = [str(index.path) for index in training], [str(index.dali) for index in training]
        records = fn.readers.tfrecord(path=paths, index_path=index_paths, features=features, random_shuffle=True)
        images = fn.decoders.image_random_crop(
            records["image/encoded"], random_area=[0.05, 1.0], random_aspect_ratio=[0.75, 1.33], num_attempts=100
        )
        images = fn.resize(images, resize_x=task.size, resize_y=task.size, antialias=False)
        mirrored = fn.random.coin_flip()
        normal = fn.crop_mirror_normalize(
            images, mean=mean.tolist(), std=(1 / scale).tolist(), mirror=mirrored, dtype=types.FLOAT
        )
        return normal, records["image/class/label"]

    built = pipeline()
    built.build()
    while True:
        images, _ = built.run()
        yield len(images)


PIPELINES: dict[str, Callable[[Task], Iterator[int]]] = {
    "exact": lambda task: make_our_batches(task, "exact"),
    "fast": lambda task: make_our_batches(task, "fast"),
    "tf.data": make_tf_data_batches,
    "pil": make_dataloader_batches,
    "dali": make_dali_batches,
}


STAGES = ("read and checksum", "entropy decode", "IDCT and colour", "crop and resize", "normalise")


def time_stages(folder: RecordFolder, network: str) -> dict[str, float]:
    """Return the mean milliseconds per image of each of STAGES, in one thread and with crops resized to 224x224."""
    numbers = np.linspace(0, len(folder) - 1, min(TIMED_IMAGES, len(folder))).astype(int).tolist()
    out = np.empty((224, 224, 3), np.float32)
    seconds = np.zeros(len(STAGES))
    for number in numbers:
        began = time.perf_counter()
        data = folder.read_fields(number).encoded
        read_seconds = time.perf_counter() - began
        view = choose_view(
            network, *jpeg.read_dimensions(data), train=True, generator=make_image_generator(0, 0, number)
        )
        times = time_region_stages(data, view, network, out) or time_full_decode_stages(data, view, network, out)
        seconds += [read_seconds, *times]
    return dict(zip(STAGES, (1000 * seconds / len(numbers)).tolist(), strict=True))


def time_region_stages(data: jpeg.Encoded, view: View, network: str, out: Floats) -> list[float] | None:
    """Return the seconds of the stages from "entropy decode" on if only the region of a crop is decoded.

    None if the image does not allow that. Each of four calls does one stage more than the call before; the difference
    between their times is the time of that stage.
    """
    rows, columns = view.rows, view.columns
    corners = np.empty((2, 2, 3), np.float32)
    decodes = [
        # The first pixel of the crop's last row: it needs the entropy decoding of all rows before it.
        lambda: region.decode_view(data, select_ends(rows)[1], select_ends(columns)[0], corners[:1, :1].copy()),
        # The crop's four corners: they also need IDCT and colour conversion.
        lambda: region.decode_view(data, join_ends(rows), join_ends(columns), corners),
        # The complete crop: also resizing.
        lambda: region.decode_view(data, rows, columns, out),
        lambda: region.decode_view(
            data, rows, columns, out, normalisation=make_normalisation_rows(network, len(columns.fraction))
        ),
    ]
    if not decodes[-1]():
        return None
    times = [time_call(decode) for decode in decodes]
    return [times[0], *np.maximum(np.diff(times), 0).tolist()]


def select_ends(axis: Axis) -> tuple[Axis, Axis]:
    """Return two axes with one source pixel each: the first that `axis` reads, and the last."""
    low, high = axis.pixel_range
    first, last = np.array([low]), np.array([high - 1])
    fraction = np.zeros(1, np.float32)
    return Axis(first, first, fraction), Axis(last, last, fraction)


def join_ends(axis: Axis) -> Axis:
    """Return an axis with the two source pixels of `select_ends`."""
    return Axis(*(np.concatenate(parts) for parts in zip(*select_ends(axis), strict=True)))


def time_full_decode_stages(data: jpeg.Encoded, view: View, network: str, out: Floats) -> list[float]:
    """Return the seconds of the stages from "entropy decode" on if complete images are decoded."""
    # Decoding at an eighth of the size does all of the entropy decoding, but hardly any IDCT.
    pixels = jpeg.decode(data)
    entropy, decode = time_call(lambda: jpeg.decode(data, shrink=8)), time_call(lambda: jpeg.decode(data))
    resize = time_call(lambda: resample(pixels, view.rows, view.columns, out))
    return [entropy, decode - entropy, resize, time_call(lambda: normalise(network, out))]


def time_call(function: Callable[[], object]) -> float:
    """Return the seconds of the faster of two calls, because an interruption may slow one of them."""
    return min(timeit.repeat(function, number=1, repeat=2))
