/**
 * @file mesh.py of an emitted program: its axes and groups, and the part that is the same for every program.
 */

import { STAGE_AXIS } from '../../../program/mesh.js';
import type { ProgramAxes } from '../axes.js';
import { assignment } from '../python.js';

/** The axes of a program and what runs over them. */
export interface MeshTables {
  readonly axes: ProgramAxes;
  /** Axes of groups over which collectives run. */
  readonly groups: readonly (readonly string[])[];
  /** Per stage: the stages that it sends to, in ascending order. */
  readonly receivers: readonly (readonly number[])[];
}

/** mesh.py of a program whose stages are in these modules. */
export function meshFile({ axes: { axes }, groups, receivers }: MeshTables, modules: readonly string[]): string {
  const stages = receivers.length;
  const all = stages > 1 ? [{ name: STAGE_AXIS, size: stages }, ...axes] : axes;
  const table = (name: string, items: readonly string[]) => assignment(name, '(', items, ')');
  const sizes = all.map(({ name, size }) => `("${name}", ${size})`);
  const tuple = (items: readonly (string | number)[]) => `(${items.join(', ')}${items.length === 1 ? ',' : ''})`;
  const lists = groups.map((names) => tuple(names.map((name) => `"${name}"`)));
  const files = modules.map((file) => `"${file.replace(/\.py$/, '')}"`);
  return TEXT.replace('AXES = ()', table('AXES', sizes))
    .replace('GROUPS = ()', table('GROUPS', lists))
    .replace('RECEIVERS = ()', table('RECEIVERS', receivers.map(tuple)))
    .replace('MODULES = ()', table('MODULES', files));
}

const TEXT = `"""The device mesh: axes outermost first, ranks numbered with the last axis fastest."""

import itertools
import math

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from collectives import all_gather_single, numeric

AXES = ()
STAGE_AXIS = "${STAGE_AXIS}"

# Axes over which collectives run. A group has all ranks that differ only on these. All ranks make groups in this order.
GROUPS = ()

# Per stage, the stages that it sends to.
RECEIVERS = ()

# The module of each stage.
MODULES = ()

WORLD_SIZE = math.prod(size for _, size in AXES)


class Group:
    """A process group; member k is the rank with index k on the axes, which may have another number in the group."""

    def __init__(self, process_group, ranks, rank):
        self.process_group, self.size = process_group, len(ranks)
        self.index, self.first = ranks.index(rank), ranks[0]
        self.order = [sorted(ranks).index(member) for member in ranks]
        self.is_sorted = self.order == sorted(self.order)

    def in_order(self, parts):
        """Parts by rank in the group -> parts by member."""
        return parts if self.is_sorted else parts[self.order]

    def by_rank(self, parts):
        """Parts by member -> parts by rank in the group."""
        return parts if self.is_sorted else parts[[self.order.index(rank) for rank in range(self.size)]]

    def sizes(self, member, size):
        """Sizes of transfers that only one member sends."""
        return [size if rank == self.order[member] else 0 for rank in range(self.size)]


class Channel:
    """One direction between two ranks, in a process group of its own: transfers of one group run one after another."""

    def __init__(self, sender, receiver):
        self.sender, self.receiver = sender, receiver
        self.process_group = dist.new_group([sender, receiver])
        self.sent = None

    def wait(self):
        """Ends the transfer that the last send started."""
        if self.sent is not None:
            self.sent.wait()
            self.sent = None


class Mesh:
    """Made once on every rank, after init_process_group."""

    def __init__(self, device_type):
        self.rank = dist.get_rank()
        names, sizes = [name for name, _ in AXES] or [STAGE_AXIS], [size for _, size in AXES] or [1]
        self.device_mesh = init_device_mesh(device_type, tuple(sizes), mesh_dim_names=tuple(names))
        place = (self.device_mesh.mesh == self.rank).nonzero()[0].tolist()
        self.place = dict(zip(names, place, strict=True))
        self.groups = {axes: self.make_group(axes) for axes in GROUPS}
        self.channels = self.make_channels()

    def make_group(self, axes):
        mine, lists = self.members(axes), []
        others = [range(1) if name in axes else range(size) for name, size in AXES]
        for place in itertools.product(*others):
            lists.append(self.members(axes, dict(zip(dict(AXES), place, strict=True))))
        if len(axes) == 1:
            process_group = self.device_mesh.get_group(axes[0])
        else:
            process_group, _ = dist.new_subgroups_by_enumeration(lists)
        return Group(process_group, mine, self.rank)

    def make_channels(self):
        """By sender and receiver. All ranks make all groups in the order of ranks: a group is named by its number."""
        channels = {}
        for sender in range(WORLD_SIZE):
            place = self.place_of(sender)
            for stage in RECEIVERS[place.get(STAGE_AXIS, 0)]:
                receiver = self.rank_at({**place, STAGE_AXIS: stage})
                channels[sender, receiver] = Channel(sender, receiver)
        return {ranks: channel for ranks, channel in channels.items() if self.rank in ranks}

    def members(self, axes, place=None):
        """The ranks that differ from a place only on these axes, the last axis fastest."""
        place, sizes = place or self.place, dict(AXES)
        indices = itertools.product(*(range(sizes[axis]) for axis in axes))
        return [self.rank_at({**place, **dict(zip(axes, index, strict=True))}) for index in indices]

    def rank_at(self, place):
        rank = 0
        for name, size in AXES:
            rank = rank * size + place[name]
        return rank

    def group(self, *axes):
        return self.groups[axes]

    @property
    def stage(self):
        return self.place.get(STAGE_AXIS, 0)

    def is_first(self, *axes, place=None):
        """Whether a rank is the first on all of these axes."""
        return self.index(axes, place) == 0

    def channel_to(self, stage):
        """To the rank with this rank's place in another stage."""
        return self.channels[self.rank, self.rank_at({**self.place, STAGE_AXIS: stage})]

    def channel_from(self, stage):
        return self.channels[self.rank_at({**self.place, STAGE_AXIS: stage}), self.rank]

    def wait_for_transfers(self):
        for channel in self.channels.values():
            channel.wait()

    def index(self, axes, place=None):
        """The index on a list of axes, the first being major."""
        place, sizes, index = place or self.place, dict(AXES), 0
        for axis in axes:
            index = index * sizes[axis] + place[axis]
        return index

    def coordinate(self, axes, shard_size, bias):
        """The offset of this rank's shard, as data: programs of ranks are equal."""
        return torch.tensor([self.index(axes) * shard_size + bias])

    def place_of(self, rank):
        place = {}
        for name, size in reversed(AXES):
            rank, place[name] = divmod(rank, size)
        return place


def pieces_of(layout):
    """A layout is, per dimension, a list of pieces (size, axes), whose sizes multiply to the dimension."""
    return [piece for pieces in layout for piece in pieces]


def padded(whole, extents):
    """A tensor padded where axes do not divide it: parts (size, valid) of a dimension, with padding at the end."""
    for dim, parts in enumerate(extents or []):
        if parts is not None:
            split = whole.unflatten(dim, [valid for _, valid in parts])
            filled = split.new_zeros([*whole.shape[:dim], *(size for size, _ in parts), *whole.shape[dim + 1 :]])
            filled[(slice(None),) * dim + tuple(slice(valid) for _, valid in parts)] = split
            whole = filled.flatten(dim, dim + len(parts) - 1)
    return whole


def unpadded(whole, extents):
    for dim, parts in enumerate(extents or []):
        if parts is not None:
            split = whole.unflatten(dim, [size for size, _ in parts])
            kept = split[(slice(None),) * dim + tuple(slice(valid) for _, valid in parts)]
            whole = kept.flatten(dim, dim + len(parts) - 1)
    return whole


def reordered(whole, order, back=False):
    """A tensor in zig-zag order along dimensions with (size, minor, pieces): ranks have a first and a last piece."""
    for dim, part in enumerate(order or []):
        if part is not None:
            size, minor, pieces = part
            places = torch.arange(size).reshape(pieces, -1)
            places = torch.stack([places[: pieces // 2], places.flip(0)[: pieces // 2]], 1).flatten()
            places = (places.argsort() if back else places).to(whole.device)
            whole = whole.unflatten(dim, (-1, size, minor)).index_select(dim + 1, places).flatten(dim, dim + 2)
    return whole


def cut(mesh, whole, layout, extents=None, order=None):
    """This rank's shard of an unsharded tensor."""
    pieces = pieces_of(layout)
    shard = padded(reordered(whole, order), extents).reshape([size for size, _ in pieces])
    for dim, (size, axes) in enumerate(pieces):
        parts = math.prod(dict(AXES)[axis] for axis in axes)
        shard = shard.narrow(dim, mesh.index(axes) * (size // parts), size // parts)
    shape = [math.prod(size // math.prod(dict(AXES)[axis] for axis in axes) for size, axes in dim) for dim in layout]
    return shard.reshape(shape).contiguous()


def join(mesh, shard, layout, dtype, stage, extents=None, first=(), order=None):
    """The unsharded tensor of shards on ranks of a stage that are first on some axes. All ranks call it."""
    pieces, sizes = pieces_of(layout), dict(AXES)
    parts = [math.prod(sizes[axis] for axis in axes) for _, axes in pieces]
    local = [size // part for (size, _), part in zip(pieces, parts, strict=True)]
    shard = torch.zeros(local, dtype=dtype) if shard is None else shard.to(mesh.device)
    numbers = numeric(shard)
    gathered = numbers.new_empty(dist.get_world_size() * numbers.numel())
    all_gather_single(gathered, numbers.flatten())
    whole = numbers.new_empty([size for size, _ in pieces])
    for rank, part in enumerate(gathered.reshape(dist.get_world_size(), *local)):
        place = mesh.place_of(rank)
        if place.get(STAGE_AXIS, 0) != stage or not mesh.is_first(*first, place=place):
            continue
        at = [mesh.index(axes, place) * size for (_, axes), size in zip(pieces, local, strict=True)]
        whole[tuple(slice(start, start + size) for start, size in zip(at, local, strict=True))] = part
    whole = whole.reshape([math.prod(size for size, _ in dim) for dim in layout])
    return reordered(unpadded(whole, extents), order, back=True).to(dtype)


def whole_of(mesh, model, name, entry, stage):
    """The unsharded tensor of a parameter, by its entry of weights/index.json. All ranks call it."""
    is_here = stage == mesh.stage and mesh.is_first(*entry["first"])
    shard = model.get_parameter(name).data if is_here else None
    return join(mesh, shard, entry["layout"], getattr(torch, entry["dtype"]), stage, entry["extents"], entry["first"])
`;
