"""Several processes: who am I, and sums over all. Everything is a no-op in a single process.

Gradients are summed by explicit all-reduce rather than by DistributedDataParallel's hooks: the
step computes them outside of one autograd graph, on two threads, and the softmax's are sparse.
The result is the same: every process sees the gradient of the global batch.
"""

import os
from datetime import timedelta
from typing import List, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import ElmoError, Errors

#: How long processes wait for each other. The first one alone prepares the text and scores what is
#: held out, which may take hours; torch's own limits are 30 minutes (gloo) and 10 (nccl). A process
#: that dies is noticed without it: its connections break, and torchrun ends the others.
TIMEOUT = timedelta(days=7)


class Group(NamedTuple):
    """This process among all."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = torch.device("cpu")

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def sum(self, tensors: List[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in place."""
        if self.world_size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)

    def sum_values(self, values: List[float]) -> List[float]:
        """Sums of numbers over all processes, which wait for each other here."""
        if self.world_size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return tensor.tolist()


def join(gpu: int = -1) -> Group:
    """Join the group that torchrun describes, or be alone.

    :param gpu: -1 for the CPU; else the GPU to use, the local rank's under torchrun.
    :raises ElmoError: E081 if there is no such GPU.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cpu")
    if gpu >= 0:
        number = int(os.environ.get("LOCAL_RANK", gpu))
        n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if number >= n_gpus:
            raise ElmoError(Errors.E081.format(number=number, n_gpus=n_gpus))
        device = torch.device("cuda", number)
        torch.cuda.set_device(device)
    if world_size == 1:
        return Group(device=device)
    if not dist.is_initialized():
        # Imported by torch at some later time anyway, when it would take the group for the default
        # of arguments: then it outlives `leave`, and its threads may abort the process at exit.
        from torch.distributed import nn  # noqa: F401

        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    return Group(dist.get_rank(), world_size, device)


def available_cores() -> int:
    """Cores for this process: those it may use, shared evenly with torchrun's others here."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def leave() -> None:
    """Leave the group at the end of a run."""
    if dist.is_initialized():
        dist.destroy_process_group()
