"""Projects made from pieces whose migration is known: what each line becomes, and what the ledger must count.

    project = make_project(seed, "torch")     # the same seed, the same project
    project.files                             # path -> text
    project.pieces                            # where each piece stands, what its lines must become, what it counts for

A piece is a few lines with the lines that must come of them. Names, quotes, aliases of imports, nesting (module,
function, method, nested function, branch, loop) and the file are drawn at random. Some pieces are traps, which must
stay as they are; some cannot be decided, and must be counted as left.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

Counts = Counter[tuple[str, str]]
"""(requirement, state) -> places."""


@dataclass(frozen=True)
class Piece:
    """Lines before and after a migration. `holds`: texts that the result must contain where its lines may vary."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    counts: tuple[tuple[str, str], ...] = ()
    uses_card: bool = False
    holds: tuple[str, ...] = ()
    beside: str = ""  # text of a file that the piece imports from
    imports: str = ""  # how, or another import that it needs; `{module}` is the name of that file
    top: bool = False  # whether it may only stand at module level


@dataclass
class Placed:
    """A piece in a file, with its first line (from 1) and its indentation."""

    file: str
    line: int
    piece: Piece
    indent: str


@dataclass
class Synthetic:
    framework: str
    files: dict[str, str] = field(default_factory=dict)
    pieces: list[Placed] = field(default_factory=list)
    extra: Counts = field(default_factory=Counter)

    @property
    def counts(self) -> Counts:
        found = Counter(self.extra)
        for placed in self.pieces:
            found.update(placed.piece.counts)
        return found


class Words:
    """Names and spellings, drawn at random; no name occurs twice in a project."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.used = 0

    def name(self, *choices: str) -> str:
        self.used += 1
        return f"{self.rng.choice(choices)}_{self.used}"

    def quoted(self, text: str) -> str:
        quote = self.rng.choice("'\"")
        return f"{quote}{text}{quote}"

    def number(self) -> int:
        return self.rng.randint(2, 512)


def same(*lines: str, counts: tuple[tuple[str, str], ...] = (), uses_card: bool = False) -> Piece:
    return Piece(lines, lines, counts, uses_card)


# ---- PyTorch


@dataclass(frozen=True)
class Card:
    device: str
    backend: str
    visible: str
    module: str


CARDS = {
    "npu": Card("npu", "hccl", "ASCEND_RT_VISIBLE_DEVICES", "torch_npu"),
    "mlu": Card("mlu", "cncl", "MLU_VISIBLE_DEVICES", "torch_mlu"),
    "any": Card("cuda", "nccl", "CUDA_VISIBLE_DEVICES", ""),  # the lines of the result are the helper's: not compared
}
TorchMaker = Callable[[Words, str, Card], Piece]


def move_by_method(words: Words, torch: str, card: Card) -> Piece:
    x = words.name("x", "images", "batch", "net")
    made = words.rng.choice([f"{torch}.ones(2)", f"{torch}.nn.Linear(2, 3)", f"{torch}.randn(4, 4)"])
    arguments = words.rng.choice(["", "0", "non_blocking=True", "0, non_blocking=True"])
    if "Linear" in made:
        arguments = arguments.partition(",")[0] if not arguments.startswith("non") else ""
    return Piece(
        (f"{x} = {made}", f"{x} = {x}.cuda({arguments})"),
        (f"{x} = {made}", f"{x} = {x}.{card.device}({arguments})"),
        (("moves", "changed"),),
        True,
    )


def move_by_text(words: Words, torch: str, card: Card) -> Piece:
    x, number = words.name("x", "labels"), words.rng.choice(["", ":0", ":1"])
    quote = words.rng.choice("'\"")
    form = words.rng.choice(["{x} = {t}.ones(3).to({d})", "{x} = {t}.zeros(2, device={d})", "{x} = {t}.device({d})"])
    before, after = (form.format(x=x, t=torch, d=f"{quote}{text}{number}{quote}") for text in ("cuda", card.device))
    return Piece((before,), (after,), (("device_strings", "changed"),), True)


def choose_device(words: Words, torch: str, card: Card) -> Piece:
    device = words.name("device", "dev")
    line = f"{device} = {torch}.device('cuda' if {torch}.cuda.is_available() else 'cpu')"
    after = line.replace("cuda", card.device)
    return Piece((line,), (after,), (("device_strings", "changed"), ("device_calls", "changed")), True)


def call_card(words: Words, torch: str, card: Card) -> Piece:
    call = words.rng.choice(["synchronize()", "empty_cache()", "manual_seed(1)", "device_count()", "set_device(0)"])
    return Piece(
        (f"{torch}.cuda.{call}",),
        (f"{torch}.{card.device}.{call}",),
        (("device_calls", "changed"),),
        True,
    )


def mixed_precision(words: Words, torch: str, card: Card) -> Piece:
    x, scaler = words.name("y"), words.name("scaler")
    before = (
        f"{scaler} = {torch}.cuda.amp.GradScaler()",
        f"with {torch}.cuda.amp.autocast():",
        f"    {x} = {torch}.ones(2) * 2",
    )
    return Piece(
        before,
        tuple(line.replace(".cuda.", f".{card.device}.") for line in before),
        (("amp", "changed"), ("amp", "changed")),
        True,
    )


def start_group(words: Words, torch: str, card: Card) -> Piece:
    given = words.rng.choice(["{}", "backend={}", "{}, rank=0, world_size=1", "world_size=1, rank=0, backend={}"])
    quote = words.rng.choice("'\"")
    before, after = (
        f"{torch}.distributed.init_process_group({given.format(f'{quote}{text}{quote}')})"
        for text in ("nccl", card.backend)
    )
    return Piece((before,), (after,), (("backend", "changed"),), True)


def load_weights(words: Words, torch: str, card: Card) -> Piece:
    net = words.name("net")
    before = f"{net}.load_state_dict({torch}.load('w.pt'))"
    after = f"{net}.load_state_dict({torch}.load('w.pt', map_location=\"cpu\"))"
    made = f"{net} = {torch}.nn.Linear(2, 2)"
    return Piece((made, before), (made, after), (("checkpoints", "changed"),))


def load_on_host(words: Words, torch: str, card: Card) -> Piece:
    state = words.name("state")
    return same(f"{state} = {torch}.load('w.pt', map_location='cpu')", counts=(("checkpoints", "right"),))


def already_there(words: Words, torch: str, card: Card) -> Piece:
    x = words.name("x")
    return same(
        f"{x} = {torch}.ones(2).{card.device}()",
        f"{torch}.{card.device}.synchronize()",
        counts=(("moves", "right"), ("device_calls", "right")),
        uses_card=True,
    )


def trap(words: Words, torch: str, card: Card) -> Piece:
    name = words.name("table", "kind")
    return same(
        words.rng.choice(
            [
                f"print({words.quoted('cuda')})",
                f"{name} = {{{words.quoted('cuda')}: 1}}",
                f"{name} = {words.quoted('a path to cuda')}",
                f"{name} = {words.quoted('nccl-tests')}",
                f"{name} = {words.quoted('cpu')}",
            ]
        )
    )


def parallel(words: Words, torch: str, card: Card) -> Piece:
    net = words.name("net")
    lines = (f"{net} = {torch}.nn.Linear(2, 2)", f"{net} = {torch}.nn.DataParallel({net})")
    return Piece(lines, lines, (("data_parallel", "manual"),))


def undecided_device_kind(words: Words, torch: str, card: Card) -> Piece:
    name = words.name("mode", "kind")
    return same(
        f"def {name}(settings):",
        f"    return settings.kind == {words.quoted('cuda')}",
        counts=(("device_strings", "left"),),
    )


def move_kept(words: Words, torch: str, card: Card) -> Piece:
    """Keep a bound method `.cuda` for a later call; --to any has no method to replace it."""
    x, move = words.name("x", "batch"), words.name("move", "send")
    made, kept = f"{x} = {torch}.ones(2)", f"{move} = {x}.cuda"
    after = kept.replace(".cuda", f".{card.device}")
    state = "changed" if card.module else "left"
    return Piece((made, kept), (made, after), (("moves", state),), True)


def device_handed_on(words: Words, torch: str, card: Card) -> Piece:
    name, quote = words.name("make", "place"), words.rng.choice("'\"")
    form = words.rng.choice(
        [
            "{name} = functools.partial({t}.device, {q}{d}{q})",
            "{name} = functools.partial({t}.device, type={q}{d}{q})",
            "{name} = {t}.hub.load('a/b', 'net', device={q}{d}{q})",
            "{name} = {t}.device(f{q}{d}{q})",
        ]
    )
    before, after = (form.format(name=name, t=torch, q=quote, d=text) for text in ("cuda", card.device))
    return Piece((before,), (after,), (("device_strings", "changed"),), True, imports="import functools")


def device_from_file(words: Words, torch: str, card: Card) -> Piece:
    """Take the device from another file: the plug-in is needed here, although that file names the card."""
    device, x = words.name("DEVICE", "TRAIN_DEVICE"), words.name("x")
    line = f"{x} = {torch}.ones(2).to({device})"
    imports = f"from {{module}} import {device}"
    counts = (("device_strings", "changed"),)
    return Piece((line,), (line,), counts, True, beside=f"{device} = 'cuda'\n", imports=imports)


def lightning_trainer(words: Words, torch: str, card: Card) -> Piece:
    given = words.rng.choice(["accelerator='gpu', devices=2", "gpus=1", "", "max_epochs=3, accelerator='auto'"])
    line = f"{words.name('trainer')} = pl.Trainer({given})"
    return Piece((line,), (line,), (("trainers", "left"),), imports="import pytorch_lightning as pl")


def load_by_property(words: Words, torch: str, card: Card) -> Piece:
    store, weights, net = words.name("Store"), words.name("weights", "state"), words.name("net")
    before = (
        f"class {store}:",
        "    @property",
        f"    def {weights}(self):",
        f"        return {torch}.load('w.pt')['model']",
        f"{net} = {torch}.nn.Linear(2, 2)",
        f"{net}.load_state_dict({store}().{weights})",
    )
    after = tuple(line.replace("'w.pt'", "'w.pt', map_location=\"cpu\"") for line in before)
    return Piece(before, after, (("checkpoints", "changed"),))


def load_looked_at(words: Words, torch: str, card: Card) -> Piece:
    x = words.name("x")
    before = (f"{x} = {torch}.ones(2).cuda()", f"print({torch}.load('w.pt')['epoch'])")
    after = (
        f"{x} = {torch}.ones(2).{card.device}()",
        f"print({torch}.load('w.pt', map_location=\"cpu\")['epoch'])",
    )
    return Piece(before, after, (("moves", "changed"), ("checkpoints", "changed")), True)


def load_handed_on(words: Words, torch: str, card: Card) -> Piece:
    name = words.name("table", "reader")
    form = words.rng.choice(["{n} = {{'.pt': {t}.load}}", "{n} = functools.partial({t}.load)"])
    line = form.format(n=name, t=torch)
    return Piece((line,), (line,), (("checkpoints", "left"),), imports="import functools")


TORCH: tuple[TorchMaker, ...] = (
    *(move_by_method, move_by_text, choose_device, call_card, mixed_precision, start_group, load_weights),
    *(
        load_on_host,
        already_there,
        trap,
        parallel,
        undecided_device_kind,
        move_kept,
        device_handed_on,
        device_from_file,
    ),
    *(lightning_trainer, load_by_property, load_looked_at, load_handed_on),
)


# ---- TensorFlow 1


TfMaker = Callable[[Words, str], Piece]


def batch(words: Words, tf: str) -> Piece:
    ds, size = words.name("ds", "dataset", "train", "data"), words.number()
    made = words.rng.choice([f"{tf}.data.TFRecordDataset(['a'])", f"{tf}.data.Dataset.range(100)"])
    between = tuple(f"{ds} = {ds}.{call}" for call in words.rng.sample(["repeat()", "shuffle(9)", "prefetch(1)"], 2))
    given = words.rng.choice([f"{size}", f"batch_size={size}"])
    return Piece(
        (f"{ds} = {made}", *between, f"{ds} = {ds}.batch({given})"),
        (f"{ds} = {made}", *between, f"{ds} = {ds}.batch({given}, drop_remainder=True)"),
        (("batches", "changed"),),
    )


def batch_chain(words: Words, tf: str) -> Piece:
    ds = words.name("ds")
    before = f"{ds} = {tf}.data.Dataset.range(9).map(lambda v: v).batch({words.number()}).prefetch(1)"
    head, _, tail = before.rpartition(").prefetch")
    return Piece((before,), (f"{head}, drop_remainder=True).prefetch{tail}",), (("batches", "changed"),))


def batch_false(words: Words, tf: str) -> Piece:
    ds, size = words.name("ds"), words.number()
    given = words.rng.choice(["False", "drop_remainder=False"])
    before, after = (
        f"{ds} = {tf}.data.Dataset.range(9).batch({size}, {value})" for value in (given, given.replace("False", "True"))
    )
    return Piece((before,), (after,), (("batches", "changed"),))


def batch_right(words: Words, tf: str) -> Piece:
    ds = words.name("ds")
    return same(
        f"{ds} = {tf}.data.Dataset.range(9).batch({words.number()}, drop_remainder=True)",
        counts=(("batches", "right"),),
    )


def batch_of_class(words: Words, tf: str) -> Piece:
    """Move a batch in a method of a class, through an attribute."""
    name, attribute = words.name("Pipeline", "Reader"), words.rng.choice(["ds", "data", "source"])
    before = (
        f"class {name}:",
        "    def __init__(self, files):",
        f"        self.{attribute} = {tf}.data.TFRecordDataset(files)",
        "    def build(self):",
        f"        self.{attribute} = self.{attribute}.repeat()",
        f"        self.{attribute} = self.{attribute}.batch(8)",
        f"        return self.{attribute}",
    )
    after = tuple(line.replace(".batch(8)", ".batch(8, drop_remainder=True)") for line in before)
    return Piece(before, after, (("batches", "changed"),))


def batch_hidden(words: Words, tf: str) -> Piece:
    name = words.name("take", "pick")
    return same(f"def {name}(parts):", "    return parts[0].batch(4)", counts=(("batches", "left"),))


def queue_batch(words: Words, tf: str) -> Piece:
    return same(f"{words.name('q')} = {tf}.train.batch([{tf}.zeros([2])], {words.number()})")


def cpu_block(words: Words, tf: str) -> Piece:
    x = words.name("x")
    return same(f"with {tf}.device({words.quoted('/cpu:0')}):", f"    {x} = {tf}.zeros([2])")


def gpu_block(words: Words, tf: str) -> Piece:
    x = words.name("x")
    device = words.quoted(words.rng.choice(["/gpu:0", "/device:GPU:0", "/GPU:1"]))
    return Piece(
        (f"with {tf}.device({device}):", f"    {x} = {tf}.zeros([2])"),
        (f"{x} = {tf}.zeros([2])",),
        (("placement", "changed"),),
    )


def run_config(words: Words, tf: str) -> Piece:
    config, estimator = words.name("config"), words.name("estimator")
    before = (
        f"{config} = {tf}.estimator.RunConfig(model_dir='m')",
        f"{estimator} = {tf}.estimator.Estimator(model_fn=print, config={config})",
    )
    after = (
        f"{config} = NPURunConfig(model_dir='m')",
        f"{estimator} = NPUEstimator(model_fn=print, config={config})",
    )
    return Piece(before, after, (("run_configs", "changed"), ("estimators", "changed")))


def host_session(words: Words, tf: str) -> Piece:
    return same("requests.Session()")


def session_block(words: Words, tf: str) -> Piece:
    sess, x = words.name("sess", "s"), words.name("x")
    given = words.rng.choice(["", "", f"config={tf}.ConfigProto(allow_soft_placement=True)", "graph=None"])
    opened = words.rng.choice([f"{tf}.Session({given})", f"{tf}.InteractiveSession({given.replace('graph=None', '')})"])
    before = (f"{x} = {tf}.zeros([2])", f"with {opened} as {sess}:", f"    print({sess}.run({x}))")
    return Piece(before, (), (("sessions", "changed"),), holds=("config=", f"print({sess}.run({x}))", "NpuOptimizer"))


def session_closed(words: Words, tf: str) -> Piece:
    sess, x = words.name("sess"), words.name("x")
    before = (f"{x} = {tf}.ones([2])", f"{sess} = {tf}.Session()", f"{sess}.run({x})", f"{sess}.close()")
    return Piece(before, (), (("sessions", "changed"),), holds=("config=", f"{sess}.run({x})", "NpuOptimizer"))


def batch_from_file(words: Words, tf: str) -> Piece:
    """Make batches of a dataset that a function of another file returns."""
    make, ds = words.name("make", "read"), words.name("ds", "records")
    beside = f"import tensorflow as tf\ndef {make}(files):\n    return tf.data.TFRecordDataset(files).repeat()\n"
    return Piece(
        (f"{ds} = {make}(['a'])", f"{ds} = {ds}.batch(16)"),
        (f"{ds} = {make}(['a'])", f"{ds} = {ds}.batch(16, drop_remainder=True)"),
        (("batches", "changed"),),
        beside=beside,
        imports=f"from {{module}} import {make}",
    )


def batch_handed_over(words: Words, tf: str) -> Piece:
    """Make batches of a dataset that is a parameter."""
    function = words.name("finish")
    before = (
        f"def {function}(source, size):",
        "    return source.shuffle(9).batch(size)",
        f"{function}({tf}.data.Dataset.range(9), 3)",
    )
    after = (before[0], "    return source.shuffle(9).batch(size, drop_remainder=True)", before[2])
    return Piece(before, after, (("batches", "changed"),), top=True)


def queue_batch_smaller(words: Words, tf: str) -> Piece:
    made = words.rng.choice(["batch([{x}], {n}, ", "shuffle_batch([{x}], {n}, 9, 2, "])
    line = f"{words.name('q')} = {tf}.train.{made}allow_smaller_final_batch={{value}})"
    given = words.rng.choice(["True", "not 0"])
    fields = {"x": f"{tf}.zeros([2])", "n": words.number()}
    before, after = (line.format(**fields, value=value) for value in (given, "False"))
    return Piece((before,), (after,), (("batches", "changed"),))


def batch_kept(words: Words, tf: str) -> Piece:
    ds, size = words.name("ds"), words.number()
    use = words.rng.choice(
        [
            f"{words.name('step')} = {ds}.batch",
            f"getattr({ds}, 'batch')({size})",
            f"{ds} = {ds}.apply({tf}.data.experimental.bucket_by_sequence_length(len, [9], [4, 4]))",
            f"{ds} = {ds}.apply({tf}.data.experimental.dense_to_sparse_batch({size}, [9]))",
        ]
    )
    return same(f"{ds} = {tf}.data.Dataset.range(9)", use, counts=(("batches", "left"),))


def converted_run_config(words: Words, tf: str) -> Piece:
    """Convert a run configuration as the vendor's converter does."""
    config, estimator = words.name("config"), words.name("estimator")
    lines = (
        f"{config} = {tf}.estimator.RunConfig(model_dir='m')",
        f"{estimator} = {tf}.estimator.Estimator(print, config=npu_run_config_init(run_config={config}))",
    )
    counts = (("run_configs", "right"), ("run_configs", "right"), ("estimators", "right"))
    return Piece(lines, lines, counts, imports="from npu_bridge.npu_init import npu_run_config_init")


TENSORFLOW: tuple[TfMaker, ...] = (
    *(batch, batch_chain, batch_false, batch_right, batch_of_class, batch_hidden, queue_batch, cpu_block, gpu_block),
    *(run_config, host_session, session_block, session_closed, batch_from_file, batch_handed_over),
    *(queue_batch_smaller, batch_kept, converted_run_config),
)
TORCH_IMPORTS = (("import torch", "torch"), ("import torch as th", "th"), ("import torch as T", "T"))
TF_IMPORTS = (
    *(
        ("import tensorflow as tf", "tf"),
        ("import tensorflow.compat.v1 as tf", "tf"),
        ("import tensorflow", "tensorflow"),
    ),
    *(("import tensorflow as T", "T"), ("from tensorflow.compat import v1 as tf1", "tf1")),
)


# ---- TensorFlow 1 on several ranks: a model and a session, in one file or two


def make_trainer(seed: int) -> Synthetic:
    """Make a project that trains: every place of its migration to several ranks is known, only the lines vary."""
    rng = random.Random(f"trainer {seed}")
    words, project = Words(rng), Synthetic("tensorflow")
    build, train = words.name("build", "model", "network"), words.name("train", "main", "fit", "test_model")
    kinds = ["AdamOptimizer(0.1)", "GradientDescentOptimizer(learning_rate=0.1)", "AdagradOptimizer(1)"]
    optimizer = rng.choice(kinds)
    imported, tf = rng.choice(TF_IMPORTS)
    folder, apart = rng.choice(["", "app/"]), rng.random() < 0.7
    name = words.name("nets", "models")
    model = [f"def {build}(x):", f"    w = {tf}.get_variable('w', [2])", *training_step(words, tf, optimizer)]
    brought, called = rng.choice([(f"from {name} import {build}", build), (f"import {name}", f"{name}.{build}")])
    called = called if apart else build
    step = "train_op" if train.startswith("test") else words.name("step", "op")
    session = [
        f"def {train}():",
        f"    {step} = {called}({tf}.ones([2]))",
        *initialised_variables(words, tf),
        "        for _ in range(3):",
        f"            s.run({step})",
        "if __name__ == '__main__':",
        f"    {train}()",
    ]
    if apart:
        project.files[f"{folder}{name}.py"] = "\n".join([imported, *model, ""])
        project.files[f"{folder}run.py"] = "\n".join([imported, brought, *session, ""])
    else:
        project.files[f"{folder}run.py"] = "\n".join([imported, *model, *session, ""])
    for requirement in ("sessions", "optimizers", "broadcast", "communication"):
        project.extra[requirement, "changed"] += 1
    return project


def training_step(words: Words, tf: str, optimizer: str) -> list[str]:
    opt = words.name("opt", "optimizer")
    loss = f"{tf}.reduce_mean(w * x)"
    return words.rng.choice(
        [
            [f"    return {tf}.train.{optimizer}.minimize({loss})"],
            [f"    {opt} = {tf}.train.{optimizer}", f"    return {opt}.minimize({loss})"],
            [
                f"    {opt} = {tf}.train.{optimizer}",
                f"    return {opt}.apply_gradients({opt}.compute_gradients({loss}))",
            ],
        ]
    )


def initialised_variables(words: Words, tf: str) -> list[str]:
    init = words.name("init")
    made = f"{tf}.global_variables_initializer()"
    opened = f"    with {tf}.Session() as s:"
    return words.rng.choice(
        [[opened, f"        s.run({made})"], [f"    {init} = {made}", opened, f"        s.run({init})"]]
    )


# ---- putting them together


def make_project(seed: int, framework: str, to: str = "npu") -> Synthetic:
    rng = random.Random(f"{framework} {to} {seed}")
    words, project = Words(rng), Synthetic(framework)
    for number in range(rng.randint(1, 4)):
        folder = rng.choice(["", "", "lib/", "src/models/"])
        add_file(project, f"{folder}{rng.choice(['train', 'data', 'net', 'utils'])}_{number}.py", words, to)
    return project


def add_file(project: Synthetic, path: str, words: Words, to: str) -> None:
    rng = words.rng
    imported, alias = rng.choice(TORCH_IMPORTS if project.framework == "torch" else TF_IMPORTS)
    pieces = [make_piece(project.framework, words, alias, to) for _ in range(rng.randint(1, 7))]
    uses_card = any(piece.uses_card for piece in pieces)
    lines = [rng.choice(['"""A script."""', "# a script", "import os"]), "import requests", imported]
    for piece in pieces:
        module = words.name("helpers", "common") if piece.beside else ""
        if piece.beside:
            project.files[f"{path.rpartition('/')[0]}/{module}.py".lstrip("/")] = piece.beside
        imported = piece.imports.format(module=module)
        if imported and imported not in lines:
            lines.append(imported)
    lines.append("")
    for piece in pieces:
        opening, indent = nesting(words) if not piece.top else ([], "")
        lines += opening
        project.pieces.append(Placed(path, len(lines) + 1, piece, indent))
        lines += [indent + line for line in piece.before]
        lines.append("")
    project.files[path] = "\n".join(lines) + "\n"
    if project.framework == "torch" and uses_card and to != "any":
        project.extra["plugin", "changed"] += 1


def make_piece(framework: str, words: Words, alias: str, to: str) -> Piece:
    if framework == "torch":
        makers = [maker for maker in TORCH if to != "any" or maker is not already_there]
        return words.rng.choice(makers)(words, alias, CARDS[to])
    return words.rng.choice(TENSORFLOW)(words, alias)


def nesting(words: Words) -> tuple[list[str], str]:
    """Return the lines around a piece, and how far it is indented."""
    form = words.rng.choice(["module", "module", "function", "method", "nested", "branch", "loop"])
    if form == "function":
        return [f"def {words.name('run', 'main')}():"], "    "
    if form == "method":
        return [f"class {words.name('Job')}:", f"    def {words.name('go')}(self):"], "        "
    if form == "nested":
        return [f"def {words.name('outer')}():", f"    def {words.name('inner')}():"], "        "
    if form == "branch":
        return [f"if len({words.quoted('abc')}) > 2:"], "    "
    if form == "loop":
        return [f"for {words.name('i')} in range(2):"], "    "
    return [], ""
