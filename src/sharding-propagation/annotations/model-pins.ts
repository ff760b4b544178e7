/**
 * @file Pins from ONNX's multi-device fields: a file states per node on which devices the shards of its tensors are. Where the
 * devices fill the mesh's axes in order, that is a layout:
 *
 *     mesh dp 2, tp 2; tensor [8, 6], dimension 1 in 2 parts, devices [-1, -2], groups {-1: [0, 2], -2: [1, 3]}
 *     rank 0 1 2 3 has part 0 1 0 1: dimension 1 is sharded over tp, so [-, tp]
 */
import type { Graph, Node } from '../../ir/graph.js';
import { makersOf } from '../../ir/makers-and-readers.js';
import type { NodePlacement, ShardedDimension, ShardingSpec } from '../../ir/onnx/device-annotations.js';
import type { OnnxModel } from '../../ir/onnx/model.js';
import { graphDemand, inFile } from '../file-form.js';
import { deviceCount, indexOn, type Mesh, rankStrides, type SubAxis } from '../mesh.js';
import type { LayoutDemand, OperatorPin, Pin, PinSource, StagePin } from '../pin.js';
import { type AxesOfPieces, demandOfAxes } from './layout-demand.js';
import { doesNotFit, meshText } from './pin-error.js';
import { settled } from './settle.js';

export interface ModelPins {
  readonly pins: readonly Pin[];
  /** Statements of the file that are not used, a line each. */
  readonly notes: readonly string[];
}

/**
 * The pins of the first configuration for as many devices as the stages have; none without such a configuration.
 * @param mesh of one stage: the devices of stage s are those from s · its size on
 * @param stages of the pipeline; 1 without one
 * @throws AutoparError (input) `pin-does-not-fit` where shards do not follow the mesh's axes, `pins-contradict`
 */
export function pinsOfModel(
  { file, multiDevice }: Pick<OnnxModel, 'file' | 'multiDevice'>,
  graph: Graph,
  mesh: Mesh,
  stages = 1,
): ModelPins {
  if (!multiDevice) return { pins: [], notes: [] };
  const { configurations, placements } = multiDevice;
  const devices = deviceCount(mesh) * stages;
  const chosen = configurations.find((configuration) => configuration.devices === devices);
  if (!chosen) {
    const listed = configurations.map(({ name, devices: count }) => `${name || 'unnamed'} for ${count}`).join(', ');
    return {
      pins: [],
      notes: [
        `the model's device configurations (${listed || 'none is declared'}) are not for ${devices} devices: not used`,
      ],
    };
  }
  const found = placedNodes(
    placements.filter(({ configuration }) => configuration === chosen.name),
    graph,
  );
  const lost = found.filter(({ node }) => node === undefined).length;
  const pins = found.flatMap(({ placement, node }) =>
    node ? pinsOfPlacement(placement, node, file, graph, mesh) : [],
  );
  return {
    pins: settled(pins, graph, mesh),
    notes:
      lost === 0
        ? []
        : [`${lost} of the model's device annotations are on nodes that import has folded or joined: not used`],
  };
}

/** The stages of the configuration for so many devices; none without such a configuration. */
export function stagePinsOfModel(
  { file, multiDevice }: Pick<OnnxModel, 'file' | 'multiDevice'>,
  graph: Graph,
  devices: number,
): readonly StagePin[] {
  const chosen = multiDevice?.configurations.find((configuration) => configuration.devices === devices);
  const own = (multiDevice?.placements ?? []).filter(({ configuration }) => configuration === chosen?.name);
  return placedNodes(own, graph).flatMap(({ placement: { stage }, node }) =>
    node && stage !== null ? [{ kind: 'stage', node: node.name, stage, source: nodeSource(node, file) } as const] : [],
  );
}

/** Placements with their nodes; a node that import has folded or joined is undefined. */
function placedNodes(
  placements: readonly NodePlacement[],
  graph: Graph,
): readonly { readonly placement: NodePlacement; readonly node: Node | undefined }[] {
  const makers = makersOf(graph.nodes);
  const byName = new Map(graph.nodes.map((node) => [node.name, node]));
  return placements.map((placement) => {
    const maker = placement.outputs.map((output) => makers.get(output)).find((node) => node !== undefined);
    const named = byName.get(placement.node);
    return { placement, node: maker ?? (named?.op === placement.op ? named : undefined) };
  });
}

function nodeSource({ name }: Node, file: string): PinSource {
  return { file, line: null, text: `device_configurations of ${name}`, priority: 0, why: null };
}

function pinsOfPlacement(placement: NodePlacement, node: Node, file: string, graph: Graph, mesh: Mesh): readonly Pin[] {
  const first = (placement.stage ?? 0) * deviceCount(mesh);
  const source = nodeSource(node, file);
  const specs = new Map(placement.tensors.map((spec) => [spec.tensor, spec]));
  const side = (names: readonly (string | null)[]) =>
    names.map((name): LayoutDemand | null => {
      const found = name === null ? null : inFile(graph, name).find((form) => specs.has(form.name));
      const spec = found && specs.get(found.name);
      return spec ? graphDemand(demandOfSpec(spec, found.shape, mesh, first, source), found.file) : null;
    });
  const [operands, results] = [side(node.inputs), side(node.outputs)];
  const asks = [...operands, ...results].some((demand) => demand !== null);
  const operator: OperatorPin = { kind: 'operator', node: node.name, source, operands, results };
  const { stage } = placement;
  return [
    ...(asks ? [operator] : []),
    ...(stage === null ? [] : [{ kind: 'stage', node: node.name, source, stage } as const]),
  ];
}

/** A dimension's piece, and the number of parts into which it is split. */
interface PinnedPiece {
  readonly axis: number;
  readonly size: number;
  readonly parts: number;
}

function demandOfSpec(
  spec: ShardingSpec,
  shape: readonly number[],
  mesh: Mesh,
  first: number,
  source: PinSource,
): LayoutDemand {
  const cuts = spec.dims.flatMap((dim) => cutsOf(dim, spec.tensor, shape, source));
  if (spec.devices.length === 0) {
    const counts = shape.map((_, axis) =>
      cuts.filter((cut) => cut.axis === axis).reduce((product, { parts }) => product * parts, 1),
    );
    return { kind: 'split', counts };
  }
  const shardOf = shardsByRank(spec, cuts, mesh, first, source);
  const axesOf = axesOfCuts(cuts, shardOf, mesh);
  if (!axesOf)
    throw doesNotFit(
      source,
      `the shards of ${spec.tensor} do not follow the axes of the mesh (${meshText(mesh)})`,
      'choose the degrees that the annotations were made for, or remove the annotations from the model',
    );
  const dims = shape.map((size, axis): AxesOfPieces => {
    const own = cuts.flatMap((cut, index) =>
      cut.axis === axis ? [{ size: cut.size, axes: axesOf[index] ?? [] }] : [],
    );
    return own.length > 0 ? own : [{ size, axes: [] }];
  });
  return demandOfAxes(dims, { says: spec.tensor, shape }, mesh, source);
}

function cutsOf(
  { axis: written, pieces }: ShardedDimension,
  tensor: string,
  shape: readonly number[],
  source: PinSource,
): readonly PinnedPiece[] {
  const axis = written < 0 ? written + shape.length : written;
  const whole = shape[axis];
  const known = pieces.reduce((product, { size }) => product * (size ?? 1), 1);
  const open = pieces.filter(({ size }) => size === null).length;
  const rest = (whole ?? 0) / known;
  const sizes = pieces.map(({ size }) => size ?? rest);
  const fits =
    whole !== undefined &&
    pieces.length > 0 &&
    open <= 1 &&
    Number.isInteger(rest) &&
    (open === 1 || rest === 1) &&
    pieces.every(({ parts }, index) => parts >= 1 && parts <= (sizes[index] ?? 0));
  if (!fits)
    throw doesNotFit(
      source,
      `the sharding of ${tensor} [${shape.join(', ')}] along dimension ${written} does not fit its shape`,
      'the model was changed after it was annotated; remove the annotations',
    );
  return pieces.map(({ parts }, index) => ({ axis, size: sizes[index] ?? 1, parts }));
}

/**
 * The shard that each rank of a stage holds: shards are numbered row by row over the cuts.
 * @param first device of the stage
 */
function shardsByRank(
  spec: ShardingSpec,
  cuts: readonly PinnedPiece[],
  mesh: Mesh,
  first: number,
  source: PinSource,
): readonly number[] {
  const total = cuts.reduce((product, { parts }) => product * parts, 1);
  const holders = spec.devices.map((device) => spec.groups.get(device) ?? [device]);
  const shardOf = new Array<number>(deviceCount(mesh)).fill(-1);
  let sound = holders.length === total;
  for (const [shard, ranks] of holders.entries()) {
    for (const device of ranks) {
      const rank = device - first;
      if (shardOf[rank] === -1) shardOf[rank] = shard;
      else sound = false;
    }
  }
  if (sound && shardOf.length === deviceCount(mesh) && !shardOf.includes(-1)) return shardOf;
  throw doesNotFit(
    source,
    `the devices of ${spec.tensor} do not include each of the ${deviceCount(mesh)} ` +
      `devices${first > 0 ? ` from ${first} on` : ''} exactly once, in ${total} shards`,
    'the annotations are damaged, or leave devices idle, which no plan does; remove them from the model',
  );
}

/** Per cut: the sub-axes, major to minor, whose coordinates number its parts; null if none. */
function axesOfCuts(
  cuts: readonly PinnedPiece[],
  shardOf: readonly number[],
  mesh: Mesh,
): readonly (readonly SubAxis[])[] | null {
  const below = cuts.map((_, index) => cuts.slice(index + 1).reduce((product, { parts }) => product * parts, 1));
  const partOf = (rank: number, index: number) =>
    Math.floor((shardOf[rank] ?? 0) / (below[index] ?? 1)) % (cuts[index]?.parts ?? 1);
  const steps = [...rankStrides(mesh)];
  const axes = cuts.map((_, index) =>
    steps
      .map(([name, step]) => ({ name, weight: partOf(step, index) }))
      .filter(({ weight }) => weight > 0)
      .sort((a, b) => b.weight - a.weight)
      .map(({ name }) => name),
  );
  const isEqual = shardOf.every((_, rank) =>
    cuts.every((_, index) => partOf(rank, index) === indexOn(mesh, axes[index] ?? [], rank)),
  );
  return isEqual ? axes : null;
}
