"""The record of one accelerator: what it, its software and its environment variables are called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """Names and abilities of one accelerator. An empty string means that it has no such thing."""

    name: str  # as in `--to npu`, `--device npu` and torch.device("npu")
    title: str  # in a sentence: "NPU"
    vendor: str
    backend: str  # of collectives: the name that torch.distributed.init_process_group takes
    visible: str  # the environment variable that lists the devices a process may use
    hiding: tuple[str, ...] = ()  # all variables that limit the visible devices, in the order in which they are read
    interface: str = ""  # the variable that names the network interface of its collectives
    device_choice: str = ""  # the variable that gives a TensorFlow 1 process its device
    rank_table: str = ""  # the variable that holds the path of the rank table
    world_group: str = ""  # the collective library's group of all ranks
    module: str = ""  # PyTorch's plug-in, imported after torch
    patches: tuple[str, ...] = ()  # modules whose import makes a CUDA script run on the card; the current one first
    software: str = ""  # the vendor's software beneath the plug-in
    tool: str = ""  # the command that lists the cards and the driver
    device_files: str = ""  # pattern of the cards' files in /dev
    resource: str = ""  # what Kubernetes calls one card
    activity: str = ""  # its name in torch.profiler.ProfilerActivity: NPU
    graph: str = ""  # the class of captured graphs, below torch.npu: NPUGraph
    marks: str = ""  # the module of ranges for the profiler, below torch.npu: mstx
    tensorflow_modules: tuple[str, ...] = ()  # top-level modules of the vendor's TensorFlow 1 adapter
    dtypes: tuple[str, ...] = ()  # the types that its matrix units compute in; some of them on newer models only
    reduced_dtypes: tuple[str, ...] = ()  # what its collectives reduce; some of them on newer models only
    exchanged_dtypes: tuple[str, ...] = ()  # what its collectives send without computing: broadcast, allgather, …
    ascending: bool = False  # the list of visible devices must be strictly ascending, else no device is visible

    @property
    def device(self) -> str:
        """Type of its devices: the "npu" of "npu:0"."""
        return self.name

    @property
    def method(self) -> str:
        """Method of tensors and modules that moves them to the card: tensor.npu()."""
        return self.name

    @property
    def is_attr(self) -> str:
        """Attribute that is True for tensors on the card: tensor.is_npu."""
        return f"is_{self.name}"

    @property
    def root(self) -> str:
        """Module of torch for the card: torch.npu for torch.cuda."""
        return f"torch.{self.device}"

    @property
    def package(self) -> str:
        """Module of the plug-in that becomes `root` of torch: torch_npu.npu, which can be imported by its own name."""
        return f"{self.module}.{self.device}"
