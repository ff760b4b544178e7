/**
 * @file collectives.py of an emitted program: the same for every program.
 */

export const COLLECTIVES = `"""One function per typed transition between layouts, on torch.distributed.

Functions view a shard as rows: \`outer\` is the product of its sizes in front of the dimension that is cut or joined.
With wait=False a function returns while its collective runs: wait() returns the result.
"""

import torch
import torch.distributed as dist

# Their names from torch 2.13 on.
all_gather_single = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
reduce_scatter_single = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)

OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


class Pending:
    """A running collective. It holds its operand until it ends."""

    def __init__(self, work, operand, finish):
        self.work, self.operand, self.finish = work, operand, finish

    def wait(self):
        self.work.wait()
        return self.finish()


def started(work, operand, finish, wait):
    pending = Pending(work, operand, finish)
    return pending.wait() if wait else pending


# Backends support no booleans, few short or unsigned integers, and no numbers of 8 bits with a point.
CARRIED = {
    torch.bool: torch.uint8,
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
    torch.float8_e4m3fn: torch.float16,
    torch.float8_e4m3fnuz: torch.float16,
    torch.float8_e5m2: torch.float16,
    torch.float8_e5m2fnuz: torch.float16,
}


def numeric(x):
    return x.to(CARRIED.get(x.dtype, x.dtype))


def all_reduce(x, group, operation="sum", wait=True):
    """partial -> replicated"""
    result = numeric(x).clone(memory_format=torch.contiguous_format)
    work = dist.all_reduce(result, OPERATIONS[operation], group.process_group, async_op=True)
    return started(work, None, lambda: result.to(x.dtype), wait)


def all_gather(x, group, outer, shape, wait=True):
    """sharded -> replicated"""
    operand = numeric(x).flatten()
    gathered = operand.new_empty(group.size * operand.numel())
    work = all_gather_single(gathered, operand, group.process_group, async_op=True)

    def finish():
        parts = group.in_order(gathered.reshape(group.size, outer, -1))
        return parts.transpose(0, 1).reshape(shape).to(x.dtype)

    return started(work, operand, finish, wait)


def reduce_scatter(x, group, outer, shape, operation="sum", wait=True):
    """partial -> sharded"""
    parts = numeric(x).reshape(outer, group.size, -1).transpose(0, 1)
    operand = group.by_rank(parts).contiguous().flatten()
    result = operand.new_empty(operand.numel() // group.size)
    work = reduce_scatter_single(result, operand, OPERATIONS[operation], group.process_group, async_op=True)
    return started(work, operand, lambda: result.reshape(shape).to(x.dtype), wait)


def all_to_all(x, group, outer, joined_outer, shape, wait=True):
    """sharded -> sharded along another dimension"""
    parts = numeric(x).reshape(outer, group.size, -1).transpose(0, 1)
    operand = group.by_rank(parts).contiguous().flatten()
    exchanged = torch.empty_like(operand)
    work = dist.all_to_all_single(exchanged, operand, group=group.process_group, async_op=True)

    def finish():
        slices = group.in_order(exchanged.reshape(group.size, joined_outer, -1))
        return slices.transpose(0, 1).reshape(shape).to(x.dtype)

    return started(work, operand, finish, wait)


def permute(x, group, to, wait=True):
    """Member k of the group sends its shard to member to[k]."""
    operand = numeric(x).flatten()
    result = torch.empty_like(operand)
    sizes = group.sizes(to[group.index], operand.numel())
    sources = group.sizes(to.index(group.index), operand.numel())
    work = dist.all_to_all_single(result, operand, sources, sizes, group.process_group, async_op=True)
    return started(work, operand, lambda: result.reshape(x.shape).to(x.dtype), wait)


def reduce(x, group, operation="sum", wait=True):
    """partial -> complete on the first member, None on the others"""
    result = numeric(x).clone(memory_format=torch.contiguous_format)
    work = dist.reduce(result, group.first, OPERATIONS[operation], group.process_group, async_op=True)
    return started(work, None, lambda: result.to(x.dtype) if group.index == 0 else None, wait)


def broadcast(x, group, shape, dtype, wait=True):
    """complete on the first member -> replicated"""
    if group.index == 0:
        result = numeric(x).clone(memory_format=torch.contiguous_format)
    else:
        result = torch.empty(shape, dtype=CARRIED.get(dtype, dtype))
    work = dist.broadcast(result, group.first, group.process_group, async_op=True)
    return started(work, None, lambda: result.to(dtype), wait)


def send(x, channel):
    """To the same place in another stage: returns while a copy is sent, once the one before it has arrived.

    Transfers have the same order at both ends, so that ranks end even where each send waits for its receiver.
    """
    channel.wait()
    operand = numeric(x).clone(memory_format=torch.contiguous_format)
    work = dist.isend(operand, channel.receiver, channel.process_group)
    channel.sent = Pending(work, operand, lambda: None)


def receive(shape, dtype, channel):
    """From the same place in another stage."""
    result = torch.empty(shape, dtype=CARRIED.get(dtype, dtype))
    dist.recv(result, channel.sender, channel.process_group)
    return result.to(dtype)
`;
