"""Run twice at once by test_distributed.py, as the two tasks of a SLURM step: prints what each process got."""

from __future__ import annotations

import json
from collections.abc import Callable

from supertrainer.core import distributed
from supertrainer.core.errors import ConfigError, Problem


def outcome(function: Callable[[], object]) -> list[object]:
    try:
        return ["value", distributed.on_main_then_broadcast(function)]
    except BaseException as error:
        return [type(error).__name__, str(error)]


def refuse() -> None:
    raise ConfigError([Problem("a=1", "two", "a=2"), Problem("b=1")])


def fail() -> None:
    raise KeyError("column")


def leave() -> None:
    raise SystemExit(3)


if __name__ == "__main__":
    distributed.initialize(device="cpu")
    distributed.initialize(device="cpu")  # a second call changes nothing
    import torch

    rank = distributed.rank()
    got: dict[str, object] = {
        "place": [rank, distributed.world_size(), distributed.local_rank(), distributed.is_main()],
        "broadcast": distributed.broadcast_object({"from": rank}),
        "broadcast from 1": distributed.broadcast_object({"from": rank}, source=1),
        "gathered": distributed.all_gather_object(f"of {rank}"),
        "sum": distributed.all_reduce_sum(torch.tensor([1.0, rank])).tolist(),
        "main": outcome(lambda: f"by {rank}"),
        "none": outcome(lambda: None),
        "refused": outcome(refuse),
        "failed": outcome(fail),
        "left": outcome(leave),
        "unpicklable": outcome(lambda: lambda: 1)[0],
    }
    distributed.barrier()
    distributed.shutdown()
    got["connected"] = torch.distributed.is_initialized()
    distributed.shutdown()
    print(json.dumps(got))
