"""The record of one accelerator: names of the card, its software and its environment variables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """Names and properties of one accelerator. An empty value: the accelerator does not have it."""

    name: str  # as in `--to npu`, `--device npu` and torch.device("npu")
    title: str  # in a sentence: "NPU"
    vendor: str
    backend: str  # collective backend, as in torch.distributed.init_process_group
    visible: str  # environment variable that lists the devices of a process
    hiding: tuple[str, ...] = ()  # all variables that limit the visible devices, in the order in which they are read
    interface: str = ""  # environment variable that names the network interface of its collectives
    device_choice: str = ""  # environment variable that selects the device of a TensorFlow 1 process
    rank_table: str = ""  # environment variable with the path of the rank table
    world_group: str = ""  # the collective library's group of all ranks
    module: str = ""  # PyTorch's plug-in, imported after torch
    patches: tuple[str, ...] = ()  # modules whose import makes a CUDA script run on the card; the current one first
    software: str = ""  # the vendor's toolkit that the plug-in needs
    tool: str = ""  # command that lists the cards and the driver
    device_files: str = ""  # pattern of the cards' files in /dev
    resource: str = ""  # name of one card in Kubernetes
    activity: str = ""  # name in torch.profiler.ProfilerActivity: NPU
    graph: str = ""  # class of captured graphs, below torch.npu: NPUGraph
    marks: str = ""  # module of profiler ranges, below torch.npu: mstx
    tensorflow_modules: tuple[str, ...] = ()  # top-level modules of the vendor's TensorFlow 1 adapter
    dtypes: tuple[str, ...] = ()  # types in which its matrix units compute; some only on newer models
    reduced_dtypes: tuple[str, ...] = ()  # types that its collectives reduce; some only on newer models
    exchanged_dtypes: tuple[str, ...] = ()  # types that broadcast, allgather and the like transfer
    ascending: bool = False  # the list of visible devices must be strictly ascending, else no device is visible

    @property
    def device(self) -> str:
        """Device type: the "npu" of "npu:0"."""
        return self.name

    @property
    def method(self) -> str:
        """Method of tensors and modules that moves them to the card: tensor.npu()."""
        return self.name

    @property
    def is_attr(self) -> str:
        """Attribute of tensors that is True on the card: tensor.is_npu."""
        return f"is_{self.name}"

    @property
    def root(self) -> str:
        """Module of the card in torch: torch.npu."""
        return f"torch.{self.device}"

    @property
    def package(self) -> str:
        """Name of `root` in the plug-in: torch_npu.npu is torch.npu."""
        return f"{self.module}.{self.device}"
