"""The record of one accelerator: names of the card, its software and its environment variables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VersionFile:
    """Where the version of a driver or toolkit is written."""

    path: str  # glob pattern; `{machine}` stands for the processor's name, such as x86_64
    pattern: str  # regular expression whose first group is the version
    folders: tuple[str, ...] = ("/",)  # folders that `path` is relative to; the first with a version counts
    variables: tuple[str, ...] = ()  # environment variables with other such folders, which come first


@dataclass(frozen=True)
class Card:
    """Names and properties of one accelerator. An empty value: it has none, or viaduct does not use it."""

    name: str  # as in `--to npu`, `--device npu` and torch.device("npu")
    title: str  # in a sentence: "NPU"
    vendor: str
    backend: str  # collective backend, as in torch.distributed.init_process_group
    visible_variable: str  # environment variable that lists the devices that a process may use
    visible_variables: tuple[str, ...]  # all such variables; the vendor's software reads the first that is set
    interface_variable: str = ""  # environment variable that names the network interface of the collectives
    device_variable: str = ""  # environment variable that selects the device of a TensorFlow 1 process
    rank_table_variable: str = ""  # environment variable with the path of the rank table
    world_group: str = ""  # name that the collective library gives to the group of all ranks
    plugin: str = ""  # the vendor's plug-in for PyTorch, imported after torch: torch_npu
    patch_modules: tuple[str, ...] = ()  # modules whose import redirects torch.cuda to the card; the current one first
    software: str = ""  # the vendor's toolkit that the plug-in needs
    toolkit_version: VersionFile | None = None  # None: torch states it
    driver_version: VersionFile | None = None
    oldest_driver: str = ""  # the oldest driver with which the vendor trains its own ResNet-50; empty: not known
    repair_hint: str = ""  # what to do if the plug-in is installed but does not load
    monitor_command: str = ""  # command that lists the cards and the driver
    device_files: str = ""  # pattern of the cards' files in /dev
    kubernetes_resource: str = ""  # name of one card in Kubernetes
    profiler_activity: str = ""  # name in torch.profiler.ProfilerActivity: NPU
    graph_class: str = ""  # class of captured graphs in torch.npu: NPUGraph
    range_module: str = ""  # module of torch.npu that marks ranges in profiles: mstx
    tensorflow_modules: tuple[str, ...] = ()  # top-level modules of the vendor's TensorFlow 1 adapter
    dtypes: tuple[str, ...] = ()  # types in which the matrix units compute; some only on newer models
    reduced_dtypes: tuple[str, ...] = ()  # types that allreduce accepts; some only on newer models
    exchanged_dtypes: tuple[str, ...] = ()  # types that collectives without arithmetic accept, such as broadcast
    needs_ascending_devices: bool = False  # the list of visible devices must be ascending, else no device is visible

    @property
    def device(self) -> str:
        """Device type, the "npu" of "npu:0"; also the method that moves a tensor or a module there: tensor.npu()."""
        return self.name

    @property
    def container_files(self) -> str:
        """Pattern of the device files that a container needs: /dev/davinci*, /dev/cambricon* (also cambricon_ctl)."""
        return f"/dev/{self.device_files.partition('[')[0].removesuffix('_dev')}*"

    @property
    def tensor_flag(self) -> str:
        """Attribute of tensors that is True on the card: tensor.is_npu."""
        return f"is_{self.name}"

    @property
    def torch_module(self) -> str:
        """Module that the plug-in adds to torch: torch.npu."""
        return f"torch.{self.device}"

    @property
    def plugin_module(self) -> str:
        """Name of `torch_module` in the plug-in: torch_npu.npu."""
        return f"{self.plugin}.{self.device}"
