"""One of two processes that train together; says what it saw as JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from hadamard import diagnose, hadamardize


def network() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
    hadamardize(net, where="2")
    return net


def refusal(model: nn.Module) -> str:
    try:
        hadamardize(model)
    except TypeError as error:
        return str(error)
    return ""


def train(model: nn.Module, x: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(rank: int, store: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(10)
    same, own = torch.randn(64, 6), torch.randn(64, 6) + rank
    seen: dict[str, Any] = {}

    ddp = DistributedDataParallel(network())
    seen["ddp refused"] = refusal(ddp)
    train(ddp, own)
    report = diagnose(ddp, same)
    seen["ddp"] = report.to_dict()["layers"]
    seen["ddp inner"] = diagnose(ddp.module, same).to_dict()["layers"]
    train(ddp, own)  # a diagnosis leaves the synchronization of gradients intact
    seen["ddp weights"] = float(sum(p.detach().double().sum() for p in ddp.parameters()))

    plain, sharded = network(), network()
    for layer in (sharded[0], sharded[2], sharded[4]):
        fully_shard(layer)
    fully_shard(sharded)
    seen["fsdp refused"] = refusal(sharded)
    train(plain, same)
    train(sharded, same)
    seen["fsdp"] = diagnose(sharded, same).to_dict()["layers"]
    seen["fsdp expected"] = diagnose(plain, same).to_dict()["layers"]
    train(sharded, same)
    seen["fsdp shards"] = [type(p).__name__ for p in sharded.parameters()]
    dist.barrier()
    print(json.dumps(seen), flush=True)
    os._exit(0)  # gloo's threads may abort a process that ends in order


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
