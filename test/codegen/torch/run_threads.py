"""Runs emitted programs with ranks as threads of one process: a JSON list of jobs on stdin, {folder, ranks, options}."""

import importlib
import json
import sys
from types import SimpleNamespace

import torch
from torch.testing._internal.common_distributed import spawn_threads_and_init_comms

MODULES = ("main", "mesh", "model", "values", "collectives", "operators")


def run(folder, ranks, options):
    sys.path.insert(0, folder)
    main = importlib.import_module("main")

    @spawn_threads_and_init_comms(world_size=ranks)
    def on_threads(_):
        main.run(SimpleNamespace(**options))

    on_threads(None)
    sys.path.pop(0)
    for name in MODULES:
        sys.modules.pop(name, None)


torch.set_num_threads(1)
for job in json.load(sys.stdin):
    run(job["folder"], job["ranks"], job["options"])
