/**
 * @file sharded graph → program: order, segments, instructions, and where everything is found.
 */

import { createHash } from 'node:crypto';
import { isFloating } from '../ir/dtype.js';
import type { Graph } from '../ir/graph.js';
import { passOf } from '../ir/graph.js';
import { tableRows } from '../ir/table-rows.js';
import { withoutUndefined } from '../ir/without-undefined.js';
import type { LoweredStage } from '../partition/lower-stages.js';
import type { SecondHalf } from '../partition/ordered-list.js';
import type { PlacedInstruction } from '../partition/place-moves.js';
import { actionsOf } from '../partition/placed-actions.js';
import { inlineValues } from '../partition/segments.js';
import type { CommunicationNode, ComputeNode, ShardedGraph, ShardedTensor } from '../partition/sharded-graph.js';
import { type StageWalk, walkStage } from '../partition/stage-walk.js';
import { STAGE_AXIS } from '../program/mesh.js';
import {
  type Instruction,
  PROGRAM_VERSION,
  type Program,
  type ProgramAxis,
  type ProgramCollective,
  type ProgramSegment,
  type ProgramStage,
  type ProgramTensor,
} from '../program/program.js';
import { coordinateType, typeText } from '../program/tensor-type.js';
import type { Action } from '../schedule/schedule.js';
import { type MeshAxis, makeMesh } from '../sharding-propagation/mesh.js';
import { sharedMesh } from '../sharding-propagation/stage-meshes.js';
import { makeSegment, type Segment, type SegmentContext } from './segment.js';
import { placeWeights } from './weights.js';

/** A program and the segment models that it names by file. */
export interface GeneratedProgram {
  readonly program: Program;
  /** By file, relative to program.json. */
  readonly segments: ReadonlyMap<string, Uint8Array>;
}

/**
 * Generates the program of a graph's stages; of one that is the whole graph, or of a pipeline's, each of which runs its `actions`
 * in their order, transfers placed between them. `model` names it in program.json; `secondsOf` says what an operator of the
 * sharded graph is predicted to take. With `sendsFilled`, rows that are zero are not sent to experts and back.
 */
export function programOf(
  lowered: readonly LoweredStage[],
  model: Program['model'],
  actions: readonly (readonly Action[])[] = [],
  secondsOf?: (node: ComputeNode, stage: LoweredStage) => number,
  sendsFilled = false,
): GeneratedProgram {
  const files = new Map<string, Uint8Array>();
  const order = actionsOf(lowered, actions);
  const walks = lowered.map(({ sharded }, stage) => walkStage(sharded, order[stage] ?? []));
  const written = lowered.map((stage, index) =>
    stageOf(
      stage,
      walks[index] as StageWalk,
      files,
      lowered.length > 1 ? `stage-${index}-` : '',
      sendsFilled,
      secondsOf,
    ),
  );
  const meshes = lowered.map(({ sharded }) => sharded.mesh);
  const shared = sharedMesh(meshes);
  const { axes } = shared;
  const mesh = lowered.length > 1 ? [...makeMesh([[STAGE_AXIS, lowered.length]]).axes, ...axes] : axes;
  const state = lowered.flatMap(({ sharded }, stage) => sharded.state.map(({ from, to }) => ({ stage, from, to })));
  const program: Program = {
    format: 'autopar-program',
    version: PROGRAM_VERSION,
    model,
    mesh: mesh.map(axisRecord),
    inputs: lowered.flatMap((part, stage) => inputsOf(part, stage)),
    outputs: lowered.flatMap(({ sharded }, stage) => outputsOf(sharded, stage)),
    ...(state.length > 0 ? { state } : {}),
    stages: written.map((stage, index) => {
      const own = meshes[index];
      return own && shared !== meshes[0] ? { mesh: own.axes.map(axisRecord), ...stage } : stage;
    }),
    schedule: walks.flatMap((walk, stage) =>
      walk.actions.map(({ chunk, microBatch, list }) => ({ stage, chunk, microBatch, phase: list })),
    ),
  };
  return { program, segments: files };
}

function axisRecord({ name, size, subAxes }: MeshAxis): ProgramAxis {
  return { axis: name, size, subAxes };
}

function inputsOf({ graph, sharded }: LoweredStage, stage: number): Program['inputs'] {
  const kept = new Set(sharded.state.map(({ to }) => to));
  return sharded.inputs
    .filter(({ tensor, input }) => !kept.has(tensor) && input !== sharded.microBatches?.index)
    .map(({ tensor, input }) => {
      const value = valueRecord(sharded, stage, tensor, input);
      const rows = isFloating(value.dtype) ? null : tableRows(graph, input);
      return rows === null ? value : { ...value, rows };
    });
}

function outputsOf(sharded: ShardedGraph, stage: number): Program['outputs'] {
  const left = new Set(sharded.state.map(({ from }) => from));
  return sharded.outputs
    .filter(({ tensor }) => !left.has(tensor))
    .map(({ tensor, output }) => valueRecord(sharded, stage, tensor, output));
}

/** A collective, where it is a dispatch between experts with the mark that sends only filled rows. */
function filledOnly(
  { collective, axes, input }: CommunicationNode,
  { mesh, tensors }: ShardedGraph,
): ProgramCollective {
  const isTheirs = axes.every((axis) => mesh.experts?.includes(axis));
  const width = tensors.get(input)?.localShape.at(-1) ?? 1;
  const isRows = collective.kind === 'all-to-all' && width > 1 && collective.split.inner % width === 0;
  return isTheirs && isRows ? { ...collective, filled: width } : collective;
}

/** Writes segments to `files`; `prefix` begins the names of the stage's weight files. */
function stageOf(
  stage: LoweredStage,
  walk: StageWalk,
  files: Map<string, Uint8Array>,
  prefix: string,
  sendsFilled: boolean,
  secondsOf?: (node: ComputeNode, stage: LoweredStage) => number,
): ProgramStage {
  const { graph, sharded } = stage;
  const inline = inlineValues(sharded);
  const bound = new Set(sharded.weights.map((weight) => weight.tensor).filter((tensor) => !inline.has(tensor)));
  const kept = new Set(sharded.state.map(({ to }) => to));
  const around: SegmentContext = { graph: sharded, bound, inline, models: new Map() };
  const segments: Record<string, ProgramSegment> = {};
  const types = typesIn(sharded);
  // A pipeline has a list per pass.
  const hasPasses = !sharded.pipeline && sharded.nodes.some(({ phase }) => phase !== 'forward');
  const written = (instruction: PlacedInstruction): Unmarked => {
    if (instruction.kind === 'wait') return { kind: 'wait', id: instruction.id };
    if (instruction.kind === 'send' || instruction.kind === 'recv') {
      const { name, tensor, stage: other } = instruction.transfer;
      return { kind: instruction.kind, tensor, stage: other, label: name };
    }
    if (instruction.kind === 'start') {
      const { node } = instruction;
      const { axes, input, output } = node;
      const collective = sendsFilled ? filledOnly(node, sharded) : node.collective;
      return {
        ...{
          kind: 'start',
          id: instruction.id,
          collective,
          axes,
          input,
          output,
          label: labelOf(node.layer, node.origin),
        },
        ...(instruction.last ? { last: true } : {}),
        ...(instruction.bucket === undefined ? {} : { bucket: instruction.bucket }),
      };
    }
    if (instruction.kind === 'move') {
      const { input, output, layer, origin } = instruction.node;
      return { kind: 'move', input, output, label: labelOf(layer, origin) };
    }
    if (instruction.kind === 'accumulate') {
      const { inputs, outputs, layer, origin } = instruction.node;
      return {
        kind: 'accumulate',
        input: inputs[0] as string,
        output: outputs[0] as string,
        label: labelOf(layer, origin),
      };
    }
    const segment = makeSegment(instruction, around);
    const record = segmentRecord(segment, types);
    const plainFile = record.file.replace(/onnx$/, 'plain.onnx');
    if (!files.has(record.file)) {
      files.set(record.file, segment.model);
      const written = segment.plain();
      if (written) files.set(plainFile, written);
    }
    const id = shortHash(JSON.stringify([record.sha256, record.types]));
    const plain = (model = files.get(plainFile)) => model && { plain: { file: plainFile, sha256: hashOf(model) } };
    const seconds = () =>
      secondsOf && { seconds: instruction.nodes.reduce((sum, node) => sum + secondsOf(node, stage), 0) };
    segments[id] ??= { ...record, ...plain(), ...seconds() };
    const first = instruction.nodes[0] as ComputeNode;
    return {
      kind: 'compute',
      segment: id,
      inputs: segment.inputs.map((binding) => binding.tensor),
      weights: segment.weights.map((binding) => binding.tensor),
      outputs: segment.outputs.map((binding) => binding.tensor),
      label: labelOf(first.layer, first.origin),
      ...(hasPasses ? { pass: passOf(first.phase) } : {}),
    };
  };
  const free = (tensors: readonly string[]): readonly Unmarked[] =>
    tensors.length > 0 ? [{ kind: 'free', tensors }] : [];
  const phases: Record<string, readonly Instruction[]> = {};
  for (const { name, unread, instructions } of walk.lists)
    phases[name] = [
      ...unread.flatMap(({ half, tensors }) => marked(free(tensors), half)),
      ...instructions.flatMap(({ instruction, frees }) =>
        marked([written(instruction), ...free(frees)], instruction.half),
      ),
    ];
  const instructions = Object.values(phases).flat();
  const coordinates = Object.fromEntries(
    sharded.coordinates.map(({ name, axes, block, bias }) => [name, { axes, block, bias }]),
  );
  return {
    tensors: tensorRecords(graph, sharded, instructions, walk.lifetimeOf),
    segments,
    weights: placeWeights(graph, sharded, new Set([...bound, ...kept]), prefix),
    coordinates,
    ...(sharded.microBatches?.index === undefined ? {} : { microBatch: sharded.microBatches.index }),
    phases,
  };
}

/** An instruction of whichever half. */
type Unmarked = Exclude<Instruction, { readonly half: 1 }>;

function marked(instructions: readonly Unmarked[], half: SecondHalf | undefined): readonly Instruction[] {
  return half === undefined ? instructions : instructions.map((instruction) => ({ ...instruction, half }));
}

/** Equal models share a file; those that were made for other types are segments of their own. */
function segmentRecord(segment: Segment, typeOf: (tensor: string) => string): ProgramSegment {
  const { sha256 } = segment;
  const names = (bindings: Segment['inputs']) => bindings.map(({ inside }) => inside);
  const types = (bindings: Segment['inputs']) => bindings.map(({ tensor }) => typeOf(tensor));
  return {
    file: `segments/${sha256.slice(0, HASH_DIGITS)}.onnx`,
    inputs: names(segment.inputs),
    weights: names(segment.weights),
    outputs: names(segment.outputs),
    sha256,
    types: { inputs: types(segment.inputs), weights: types(segment.weights), outputs: types(segment.outputs) },
    temporaryBytes: segment.temporaryBytes,
    flops: segment.flops,
    operators: segment.operators,
    nodes: segment.nodes,
  };
}

const HASH_DIGITS = 16;

function shortHash(text: string): string {
  return hashOf(text).slice(0, HASH_DIGITS);
}

function hashOf(content: string | Uint8Array): string {
  return createHash('sha256').update(content).digest('hex');
}

/** Types as the program's records say them. */
function typesIn(sharded: ShardedGraph): (tensor: string) => string {
  const coordinates = new Map(sharded.coordinates.map((coordinate) => [coordinate.name, coordinate]));
  return (tensor) => {
    const coordinate = coordinates.get(tensor);
    return coordinate ? coordinateType(coordinate) : typeText(tensorOf(sharded, tensor));
  };
}

/** Types of all tensors that instructions name, and of inputs and outputs. */
function tensorRecords(
  graph: Graph,
  sharded: ShardedGraph,
  instructions: readonly Instruction[],
  lifetimeOf: StageWalk['lifetimeOf'],
): Readonly<Record<string, ProgramTensor>> {
  const names = new Set([...sharded.inputs, ...sharded.outputs].map((value) => value.tensor));
  for (const instruction of instructions) {
    if (instruction.kind === 'compute')
      for (const name of [...instruction.inputs, ...instruction.outputs]) names.add(name);
    if (instruction.kind === 'start' || instruction.kind === 'accumulate' || instruction.kind === 'move')
      for (const name of [instruction.input, instruction.output]) names.add(name);
    if (instruction.kind === 'send' || instruction.kind === 'recv') names.add(instruction.tensor);
  }
  const sourceOf = sources(graph, sharded, lifetimeOf);
  const outside = new Map([
    ...sharded.inputs.map(({ tensor, input }) => [tensor, input] as const),
    ...sharded.outputs.map(({ tensor, output }) => [tensor, output] as const),
  ]);
  const result: Record<string, ProgramTensor> = {};
  for (const name of names) {
    const { dtype, localShape, shape, layout, varying, border, first, place } = tensorOf(sharded, name);
    const source = sourceOf(name);
    const order = sharded.ordered?.get(outside.get(name) ?? source ?? name);
    result[name] = {
      dtype,
      localShape,
      shape,
      layout: order ? { ...layout, order } : layout,
      lifetime: lifetimeOf(name),
      ...withoutUndefined({ place, varying, border, first, source }),
    };
  }
  return result;
}

/**
 * The graph's tensor that a tensor is a shard of: itself, or the operand of the collective that resharded it.
 */
function sources(
  graph: Graph,
  { nodes, tensors, microBatches }: ShardedGraph,
  lifetimeOf: StageWalk['lifetimeOf'],
): (name: string) => string | undefined {
  const moved = new Map(nodes.flatMap((node) => (node.kind === 'compute' ? [] : [[node.output, node.input] as const])));
  return (name) => {
    let source: string | undefined = name;
    while (source !== undefined && !graph.tensors.has(source)) source = moved.get(source);
    if (source === undefined) return undefined;
    const isWhole = !graph.weights.has(source) && tensors.get(name)?.varying === undefined;
    if (!isWhole || microBatches === undefined) return isWhole ? source : undefined;
    // A micro-batch makes and receives parts of the model's tensor, which has another shape; so does its input.
    const isPart = lifetimeOf(name) === 'micro' || microBatches.cut.has(source) || source === microBatches.index;
    return isPart ? undefined : source;
  };
}

function valueRecord(sharded: ShardedGraph, stage: number, tensor: string, name: string): Program['inputs'][number] {
  const { dtype, shape } = tensorOf(sharded, tensor);
  const axis = sharded.microBatches?.cut.get(name);
  const count = sharded.microBatches?.count ?? 1;
  if (axis === undefined) return { name, dtype, shape, stage, tensor };
  const whole = shape.map((size, index) => (index === axis ? size * count : size));
  return { name, dtype, shape: whole, stage, tensor, microBatches: { axis, count } };
}

function labelOf(layer: string | null, origin: string): string {
  return layer === null ? origin : `${layer}: ${origin}`;
}

function tensorOf(sharded: ShardedGraph, name: string): ShardedTensor {
  const tensor = sharded.tensors.get(name);
  if (!tensor) throw new Error(`sharded graph has no tensor ${name}`);
  return tensor;
}
