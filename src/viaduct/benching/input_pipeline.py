"""Images/s of the training input, against what people would use instead, on the same files in one run.

Each pipeline has a process of its own and is given its fastest ordinary setting; they take turns of a few seconds,
after a warm-up, so that a slow moment of the machine falls on all of them alike. Between its turns a pipeline is
stopped by a signal: one that prepares batches ahead would otherwise do so in the others' time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import resource
import signal
import time
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

from viaduct.data import jpeg, region
from viaduct.data.geometry import Axis, resample
from viaduct.data.index import RecordFolder
from viaduct.data.order import sample_generator
from viaduct.data.places import check_place, write_result
from viaduct.data.preprocess import choose_view, normal_lines, normalise
from viaduct.data.views import View
from viaduct.errors import BadData, UnknownName, ViaductError
from viaduct.extras import require

PEERS = {"tf.data": "tensorflow", "dali": "nvidia.dali", "pil": "PIL"}
Floats = npt.NDArray[np.float32]
FIGURES_BEGIN = b'{\n "network"'  # as `measure` writes them
TURNS = "turns_images_per_s"  # a row's key: one figure for each turn
PREPARED = 3  # batches that a pipeline may have ahead
SAMPLED = 200  # images that the stages are timed on


@dataclass(frozen=True)
class Work:
    """Task that every pipeline is given: shuffled training batches."""

    records: Path
    network: str
    batch: int
    workers: int
    size: int = 224


def measure(
    records: Path, network: str, peers: list[str], batch: int, workers: int, seconds: float, turns: int
) -> dict[str, Any]:
    """Measure the pipelines of the training input in turns; return the figures for `--json`."""
    for name in peers:
        if name not in PEERS:
            raise UnknownName("peer", name, PEERS)
    require("torch", "simplejpeg")
    folder = RecordFolder(records, "train")
    work = Work(records, network, min(batch, len(folder)), workers or len(os.sched_getaffinity(0)))
    missing = {name: f"{PEERS[name]} is not installed" for name in peers if not is_installed(PEERS[name])}
    names = ["exact", "fast", *(name for name in peers if name not in missing)]
    rows, failed = run_turns(names, work, seconds, turns)
    base = next((row[TURNS] for row in rows if row["pipeline"] == "tf.data"), None)
    for row in rows:
        row["ratio_to_tf_data"] = median(a / b for a, b in zip(row[TURNS], base, strict=True)) if base else None
    return {
        "network": network,
        "batch": work.batch,
        "workers": work.workers,
        "pictures": len(folder),
        "mean_bytes": round(float(folder.lengths.mean())),
        "decoder": region.describe_decoder(),
        "rows": rows,
        "stages_ms": stages(folder, network),
        "left_out": missing | failed,
    }


def write_figures(out: Path, result: dict[str, Any]) -> None:
    write_result(out, (json.dumps(result, indent=1) + "\n").encode())


def check_figures_path(out: Path) -> None:
    check_place(out, ".json", FIGURES_BEGIN, "a file of figures")


def is_installed(module: str) -> bool:
    """Return True if the module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def run_turns(names: list[str], work: Work, seconds: float, turns: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return a row for each pipeline that finished, and the reason for each peer that did not."""
    failed: dict[str, str] = {}

    def attempt(name: str, do: Callable[[], Any]) -> Any:
        """Return the answer; None for a peer that fails, which takes part no more."""
        try:
            return do()
        except Ended as error:
            if name not in PEERS:
                raise BadData(error.why) from None
            failed[name] = error.why.splitlines()[0]
            return None

    with contextlib.ExitStack() as stack:
        pipelines: list[Pipeline] = []
        for name in names:
            if started := attempt(name, partial(Pipeline, name, work)):
                pipelines.append(stack.enter_context(contextlib.closing(started)))
        samples: dict[str, list[tuple[float, float]]] = {pipeline.name: [] for pipeline in pipelines}
        for turn in range(turns + 1):
            for pipeline in [pipeline for pipeline in pipelines if pipeline.name not in failed]:
                answer = attempt(pipeline.name, partial(pipeline.run, seconds if turn else min(seconds, 2.0)))
                if turn and answer:
                    samples[pipeline.name].append(answer)
    rows = [
        {
            "pipeline": name,
            "images_per_s": median(rate for rate, _ in got),
            TURNS: [rate for rate, _ in got],
            "memory_mib": max(memory for _, memory in got),
        }
        for name, got in samples.items()
        if name not in failed
    ]
    return rows, failed


class Ended(Exception):
    """Error of a pipeline that ended by itself."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Pipeline:
    """Pipeline in processes of its own, which stand still while others have their turn."""

    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        context = get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=serve, args=(name, work, there))
        try:
            with ignore_interrupts():
                self.process.start()
            there.close()  # so that a process that dies is noticed
            self._expect("ready")
            self._signal(signal.SIGSTOP)
        except BaseException:  # Ctrl-C, too: left alone, it would complain that nobody listens
            self.close()
            raise

    def run(self, seconds: float) -> tuple[float, float]:
        """Return images/s over that time, and the most memory used so far in MiB."""
        self._signal(signal.SIGCONT)
        self.pipe.send(seconds)
        answer: tuple[float, float] = self._expect(self.name)
        self._signal(signal.SIGSTOP)
        return answer

    def close(self) -> None:
        """Kill the process of the pipeline and all of its children."""
        if self.process.pid is None:
            return  # it never began
        self._signal(signal.SIGKILL)
        self.process.kill()  # it may not have a group of its own yet
        self.process.join()

    def _expect(self, what: str) -> Any:
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            raise Ended(f"the pipeline {self.name!r} ended by itself; what it said stands above.") from None
        if isinstance(answer, str) and answer != what:
            raise Ended(answer)
        return answer

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid or 0, number)  # its worker processes, too


@contextlib.contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C.

    The parent process receives it and ends them, so that they print no traceback of their own.
    """
    resource_tracker.ensure_running()  # starting it later would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(name: str, work: Work, pipe: Connection) -> None:
    """Run for as long as asked, again and again."""
    os.setpgid(0, 0)
    try:
        take_turns(name, work, pipe)
    except ViaductError as error:
        remedies = [hint for hint in error.hints if "--on-bad-record" not in hint]  # a measurement skips none
        pipe.send("\n  ".join((error.what, *remedies)))
    except Exception as error:
        if name not in PEERS:
            raise
        pipe.send(f"it fails: {type(error).__name__}: {str(error).strip().partition(os.linesep)[0]}")


def take_turns(name: str, work: Work, pipe: Connection) -> None:
    """Run a pipeline in this process: send its rate for each turn that is asked for."""
    batches = PIPELINES[name](work)
    next(batches)
    pipe.send("ready")
    while True:
        seconds = pipe.recv()
        for _ in range(PREPARED):
            next(batches)  # what was prepared ahead before the turn began does not count
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            count += next(batches)
        rate = count / (time.perf_counter() - began)
        pipe.send((rate, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def ours(work: Work, decode: Literal["exact", "fast"]) -> Iterator[int]:
    """Yield the sizes of viaduct's own batches."""
    import torch

    from viaduct.data.records import Records

    torch.set_num_threads(1)
    records = Records(
        work.batch, work.size, preprocess=work.network, decode=decode, workers=work.workers, classes=10**6
    )
    split = records.load(work.records).train
    stream = records.batches(split, device=torch.device("cpu"), train=True, seed=1)
    for epoch in itertools.count():
        for batch in stream.epoch(epoch):
            yield len(batch.labels)


def tf_data(work: Work) -> Iterator[int]:
    """Yield the sizes of batches of the reference's input function, with autotuned parallel calls and prefetching."""
    import tensorflow as tf

    from viaduct.data.preprocess import normalisation

    mean, scale = normalisation(work.network)
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
        image = tf.compat.v1.image.resize_bilinear(image[None], [work.size, work.size], align_corners=False)[0]
        return (image - mean) * scale, example["image/class/label"]

    files = sorted(str(path) for path in RecordFolder(work.records, "train").files)
    data = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files)).repeat()
    data = data.interleave(tf.data.TFRecordDataset, cycle_length=10, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.shuffle(1000).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.batch(work.batch, drop_remainder=True).prefetch(PREPARED - 1)
    for images, _ in data:
        yield int(images.shape[0])


def pil(work: Work) -> Iterator[int]:
    """Yield the sizes of batches as most PyTorch scripts make them: DataLoader workers, Pillow, one image at a time."""
    from torch.utils.data import DataLoader

    data: Any = PillowImages(work)
    options: dict[str, Any] = {"num_workers": work.workers, "persistent_workers": True, "drop_last": True}
    # As in a script of its own on Linux; and spawned workers would leave semaphores behind, which Python warns of.
    options["multiprocessing_context"] = "fork"
    loader: Any = DataLoader(data, batch_size=work.batch, shuffle=True, **options)
    while True:
        for images, _ in loader:
            yield len(images)


class PillowImages:
    """Map-style dataset over the same records."""

    def __init__(self, work: Work) -> None:
        self.work, self.folder = work, RecordFolder(work.records, "train")

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        import io

        import torch
        from PIL import Image

        from viaduct.data.preprocess import normalisation, sample_crop

        fields = self.folder.fields(number)
        image = Image.open(io.BytesIO(fields.encoded)).convert("RGB")
        crop = sample_crop(self.work.network, image.height, image.width, None, np.random.default_rng())
        box = (crop.x, crop.y, crop.x + crop.width, crop.y + crop.height)
        side = (self.work.size, self.work.size)
        pixels = np.asarray(image.resize(side, Image.Resampling.BILINEAR, box=box), np.float32)
        mean, scale = normalisation(self.work.network)
        return torch.from_numpy((pixels - mean) * scale).permute(2, 0, 1), fields.label


def dali(work: Work) -> Iterator[int]:
    """Yield the sizes of batches of NVIDIA DALI's CPU pipeline. Written from its documentation, never run."""
    import tempfile

    import nvidia.dali.tfrecord as tfrec
    from nvidia.dali import fn, pipeline_def, types

    from viaduct.data.index import index_records
    from viaduct.data.preprocess import normalisation

    folder = Path(tempfile.mkdtemp())
    indexed = [done for done in index_records(work.records, dali_folder=folder) if done.path.name.startswith("train-")]
    mean, scale = normalisation(work.network)

    @pipeline_def(batch_size=work.batch, num_threads=work.workers, device_id=None)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        features = {
            "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
            "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
        }
        paths = [str(done.path) for done in indexed], [str(done.dali) for done in indexed]
        read = fn.readers.tfrecord(path=paths[0], index_path=paths[1], features=features, random_shuffle=True)
        images = fn.decoders.image_random_crop(
            read["image/encoded"], random_area=[0.05, 1.0], random_aspect_ratio=[0.75, 1.33], num_attempts=100
        )
        images = fn.resize(images, resize_x=work.size, resize_y=work.size, antialias=False)
        mirrored = fn.random.coin_flip()
        normal = fn.crop_mirror_normalize(
            images, mean=mean.tolist(), std=(1 / scale).tolist(), mirror=mirrored, dtype=types.FLOAT
        )
        return normal, read["image/class/label"]

    built = pipeline()
    built.build()
    while True:
        images, _ = built.run()
        yield len(images)


PIPELINES: dict[str, Callable[[Work], Iterator[int]]] = {
    "exact": lambda work: ours(work, "exact"),
    "fast": lambda work: ours(work, "fast"),
    "tf.data": tf_data,
    "pil": pil,
    "dali": dali,
}


STAGES = ("read and checksum", "entropy decode", "IDCT and colour", "crop and resize", "normalise")


def stages(folder: RecordFolder, network: str) -> dict[str, float]:
    """Return the milliseconds per image of each stage of training, in one thread."""
    numbers = np.linspace(0, len(folder) - 1, min(SAMPLED, len(folder))).astype(int).tolist()
    out = np.empty((224, 224, 3), np.float32)
    seconds = np.zeros(len(STAGES))
    for number in numbers:
        began = time.perf_counter()
        data = folder.fields(number).encoded
        read = time.perf_counter() - began
        view = choose_view(network, *jpeg.dimensions(data), True, sample_generator(0, 0, number), None)
        times = stages_of_region(data, view, network, out) or stages_of_full_decode(data, view, network, out)
        seconds += [read, *times]
    return dict(zip(STAGES, (1000 * seconds / len(numbers)).tolist(), strict=True))


def stages_of_region(data: jpeg.Encoded, view: View, network: str, out: Floats) -> list[float] | None:
    """Each stage is what it adds: one pixel at the end of the crop needs the entropy decoding of all that is before it,
    its four corners need the rest of the decoding, the whole view the resizing. None if it cannot be decoded so."""
    rows, columns = view.rows, view.columns
    few = np.empty((2, 2, 3), np.float32)
    tries = [
        lambda: region.decode_view(data, ends(rows)[1], ends(columns)[0], few[:1, :1].copy()),
        lambda: region.decode_view(data, both(rows), both(columns), few),
        lambda: region.decode_view(data, rows, columns, out),
        lambda: region.decode_view(data, rows, columns, out, normal=normal_lines(network, len(columns.fraction))),
    ]
    if not tries[-1]():
        return None
    times = [seconds_of(attempt) for attempt in tries]
    return [times[0], *np.maximum(np.diff(times), 0).tolist()]


def ends(axis: Axis) -> tuple[Axis, Axis]:
    """Return the first and the last pixel that is read, each as an axis of its own."""
    low, high = axis.reach
    fraction = np.zeros(1, np.float32)
    return tuple(Axis(np.array([at]), np.array([at]), fraction) for at in (low, high - 1))  # type: ignore[return-value]


def both(axis: Axis) -> Axis:
    """Return an axis of the first and the last pixel that is read."""
    return Axis(*(np.concatenate(parts) for parts in zip(*ends(axis), strict=True)))


def stages_of_full_decode(data: jpeg.Encoded, view: View, network: str, out: Floats) -> list[float]:
    """Return the seconds of the stages where complete images are decoded.

    A decode shrunk to an eighth does all of the entropy decoding and next to no IDCT: it stands for the former, and
    the remainder of a full decode for the latter.
    """
    pixels = jpeg.decode(data)
    entropy, decode = seconds_of(lambda: jpeg.decode(data, shrink=8)), seconds_of(lambda: jpeg.decode(data))
    resize = seconds_of(lambda: resample(pixels, view.rows, view.columns, out))
    return [entropy, decode - entropy, resize, seconds_of(lambda: normalise(network, out))]


def seconds_of(work: Callable[[], object]) -> float:
    """Return the quicker of two runs.

    A stage is a difference of such times, and an interrupted one would spoil it.
    """
    clock = [time.perf_counter()]
    for _ in range(2):
        work()
        clock.append(time.perf_counter())
    return min(clock[1] - clock[0], clock[2] - clock[1])
