"""Runs emitted programs: a JSON list of jobs on stdin, {folder, ranks, runs}, each run being options of main.py.

Ranks are forks of one process, so that torch is imported once and not once per rank.
"""

import contextlib
import importlib
import json
import os
import sys
import tempfile
import traceback
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
import torch.distributed.device_mesh
import torch.distributed.tensor


def rank_of(folder, rank, ranks, runs, meeting):
    sys.path.insert(0, folder)
    try:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
        for options in runs:
            with contextlib.redirect_stdout(None):
                importlib.import_module("steps").run(SimpleNamespace(**options))
        dist.destroy_process_group()
    except BaseException:
        print(f"{folder}: rank {rank} fails:\n{traceback.format_exc()[-3000:]}", flush=True)
        os._exit(1)
    os._exit(0)


torch.set_num_threads(1)
for job in json.load(sys.stdin):
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(job["ranks"]):
            child = os.fork()
            if child == 0:
                rank_of(job["folder"], rank, job["ranks"], job["runs"], f"{folder}/meeting")
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
