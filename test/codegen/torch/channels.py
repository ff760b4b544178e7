"""Ranks of an emitted program send to all their receivers before they receive: argv is its folder and the number of ranks.

Prints a JSON list: by rank the groups that it made, in order, and by channel what it received.
"""

import json
import os
import signal
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.device_mesh

# More than a connection takes without a receiver.
ELEMENTS = 1 << 21

# Seconds after which a rank that waits ends.
PATIENCE = 60


def results(rank, ranks, meeting):
    signal.alarm(PATIENCE)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    from collectives import receive, send
    from mesh import RECEIVERS, Mesh

    made, new_group = [], dist.new_group

    def recorded(members, *others, **options):
        made.append(members)
        return new_group(members, *others, **options)

    dist.new_group = recorded
    mesh = Mesh("cpu")
    for stage in RECEIVERS[mesh.stage]:
        send(torch.full((ELEMENTS,), rank), mesh.channel_to(stage))
    received = []
    for stage, receivers in enumerate(RECEIVERS):
        if mesh.stage in receivers:
            channel = mesh.channel_from(stage)
            values = receive((ELEMENTS,), torch.int64, channel).unique().tolist()
            received.append([dist.get_process_group_ranks(channel.process_group), values])
    mesh.wait_for_transfers()
    groups = {channel.process_group for channel in mesh.channels.values()}
    dist.destroy_process_group()
    return {"made": made, "channels": [*mesh.channels], "groups": len(groups), "received": received}


torch.set_num_threads(1)
folder, ranks = sys.argv[1], int(sys.argv[2])
sys.path.insert(0, folder)
with tempfile.TemporaryDirectory() as meeting:
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            with open(f"{meeting}/{rank}", "w") as file:
                json.dump(results(rank, ranks, f"{meeting}/meeting"), file)
                file.flush()
                os._exit(0)
        children.append(child)
    failed = [rank for rank, child in enumerate(children) if os.waitpid(child, 0)[1] != 0]
    if failed:
        sys.exit(f"ranks {failed} failed")
    print(json.dumps([json.load(open(f"{meeting}/{rank}")) for rank in range(ranks)]))
