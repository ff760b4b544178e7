/**
 * @file sharded graph → program: order, segments, instructions, and where everything is found.
 */
import type { ConstantTensor, Graph } from '../ir/graph.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import type { LoweredStage } from '../partition/lower-stages.js';
import { orderPhase, phasesOf, type Step } from '../partition/order.js';
import { isInlined, readersOutside } from '../partition/segments.js';
import type { ComputeNode, ShardedGraph, ShardedTensor } from '../partition/sharded-graph.js';
import { STAGE_AXIS } from '../program/mesh.js';
import {
  type Instruction,
  PROGRAM_VERSION,
  type Program,
  type ProgramAction,
  type ProgramSegment,
  type ProgramStage,
  type ProgramTensor,
} from '../program/program.js';
import type { Action } from '../schedule/schedule.js';
import { makeMesh } from '../sharding-propagation/mesh.js';
import { type WrittenList, withFrees } from './frees.js';
import { placedSchedule, wholeSchedule } from './program-schedule.js';
import { makeSegment, type Segment, type Surroundings } from './segment.js';
import { placeWeights } from './weights.js';

/** A program and the segment models that it names by file. */
export interface GeneratedProgram {
  readonly program: Program;
  /** By file, relative to program.json. */
  readonly segments: ReadonlyMap<string, Uint8Array>;
}

/**
 * Generates the program of a graph's stages; of one that is the whole graph, or of a pipeline's, each of which runs its `actions`
 * in their order, transfers placed between them. `model` names it in program.json.
 */
export function programOf(
  lowered: readonly LoweredStage[],
  model: Program['model'],
  actions: readonly (readonly Action[])[] = [],
): GeneratedProgram {
  const files = new Map<string, Uint8Array>();
  const lists = lowered.map((stage) => writtenLists(stage, files));
  const schedules = schedulesOf(lowered, lists, actions);
  const written = lowered.map((stage, index) => {
    const prefix = lowered.length > 1 ? `stage-${index}-` : '';
    return stageOf(stage, lists[index] as WrittenLists, schedules[index] ?? [], prefix);
  });
  const [first] = lowered;
  const axes = first?.sharded.mesh.axes ?? [];
  const mesh = lowered.length > 1 ? [...makeMesh([[STAGE_AXIS, lowered.length]]).axes, ...axes] : axes;
  const state = lowered.flatMap(({ sharded }, stage) => sharded.state.map(({ from, to }) => ({ stage, from, to })));
  const program: Program = {
    format: 'autopar-program',
    version: PROGRAM_VERSION,
    model,
    mesh: mesh.map((axis) => ({ axis: axis.name, size: axis.size, subAxes: axis.subAxes })),
    inputs: lowered.flatMap(({ sharded }, stage) => inputsOf(sharded, stage)),
    outputs: lowered.flatMap(({ sharded }, stage) => outputsOf(sharded, stage)),
    ...(state.length > 0 ? { state } : {}),
    stages: written,
    schedule: schedules.flat(),
  };
  return { program, segments: files };
}

function inputsOf(sharded: ShardedGraph, stage: number): Program['inputs'] {
  const kept = new Set(sharded.state.map(({ to }) => to));
  return sharded.inputs
    .filter(({ tensor, input }) => !kept.has(tensor) && input !== sharded.microBatches?.index)
    .map(({ tensor, input }) => valueRecord(sharded, stage, tensor, input));
}

function outputsOf(sharded: ShardedGraph, stage: number): Program['outputs'] {
  const left = new Set(sharded.state.map(({ from }) => from));
  return sharded.outputs
    .filter(({ tensor }) => !left.has(tensor))
    .map(({ tensor, output }) => valueRecord(sharded, stage, tensor, output));
}

function schedulesOf(
  lowered: readonly LoweredStage[],
  lists: readonly WrittenLists[],
  actions: readonly (readonly Action[])[],
): readonly (readonly ProgramAction[])[] {
  const [first] = lowered;
  if (first && !first.sharded.pipeline) return [wholeSchedule(first.sharded)];
  return placedSchedule(
    lowered.map(({ sharded }, index) => ({ sharded, lists: lists[index]?.lists ?? [] })),
    actions,
  );
}

/** The lists of a stage before frees are placed. */
interface WrittenLists {
  readonly lists: readonly WrittenList[];
  readonly segments: Readonly<Record<string, ProgramSegment>>;
  /** Weights that instructions bind. */
  readonly bound: ReadonlySet<string>;
}

/** Writes the lists, and their segments to `files`. */
function writtenLists({ graph, sharded }: LoweredStage, files: Map<string, Uint8Array>): WrittenLists {
  const inline = inlineValues(graph, sharded);
  const bound = new Set(sharded.weights.map((weight) => weight.tensor).filter((tensor) => !inline.has(tensor)));
  const ordered = phasesOf(sharded).map((list) => ({ list, steps: orderPhase(sharded, list) }));
  const everyStep = ordered.flatMap(({ steps }) => steps);
  const around: Surroundings = { graph: sharded, bound, inline, readOutside: readersOutside(sharded, everyStep) };
  const segments: Record<string, ProgramSegment> = {};
  const written = (step: Step): Instruction => {
    if (step.kind === 'wait') return { kind: 'wait', id: step.id };
    if (step.kind === 'send' || step.kind === 'recv') {
      const { name, tensor, stage } = step.transfer;
      return { kind: step.kind, tensor, stage, label: name };
    }
    if (step.kind === 'start') {
      const { node } = step;
      const { collective, axes, input, output } = node;
      return { kind: 'start', id: step.id, collective, axes, input, output, label: labelOf(node.layer, node.origin) };
    }
    if (step.kind === 'accumulate') {
      const { inputs, outputs, layer, origin } = step.node;
      return {
        kind: 'accumulate',
        input: inputs[0] as string,
        output: outputs[0] as string,
        label: labelOf(layer, origin),
      };
    }
    const segment = makeSegment(step.nodes, around);
    const file = `segments/${segment.id}.onnx`;
    files.set(file, segment.model);
    segments[segment.id] ??= segmentRecord(segment, file);
    const first = step.nodes[0] as ComputeNode;
    return {
      kind: 'compute',
      segment: segment.id,
      inputs: segment.inputs.map((binding) => binding.tensor),
      weights: segment.weights.map((binding) => binding.tensor),
      outputs: segment.outputs.map((binding) => binding.tensor),
      label: labelOf(first.layer, first.origin),
    };
  };
  const lists = ordered.map(({ list, steps }) => ({ ...list, instructions: steps.map(written) }));
  return { lists, segments, bound };
}

/** @param prefix begins the names of the stage's weight files */
function stageOf(
  { graph, sharded }: LoweredStage,
  { lists, segments, bound }: WrittenLists,
  schedule: readonly ProgramAction[],
  prefix: string,
): ProgramStage {
  const kept = new Set(sharded.state.map(({ to }) => to));
  const phases = withFrees(lists, schedule, sharded);
  const instructions = Object.values(phases).flat();
  const coordinates = Object.fromEntries(
    sharded.coordinates.map(({ name, axes, block, bias }) => [name, { axes, block, bias }]),
  );
  return {
    tensors: tensorRecords(graph, sharded, instructions),
    segments,
    weights: placeWeights(sharded, new Set([...bound, ...kept]), prefix),
    coordinates,
    ...(sharded.microBatches?.index === undefined ? {} : { microBatch: sharded.microBatches.index }),
    phases,
  };
}

/** Values that become part of segments: constants of the lowering, and small replicated constants of the graph. */
function inlineValues(graph: Graph, sharded: ShardedGraph): ReadonlyMap<string, Uint8Array> {
  const result = new Map<string, Uint8Array>();
  for (const [name, value] of sharded.constants) result.set(name, (value as ConstantTensor).data);
  for (const stored of sharded.weights) {
    const source = graph.weights.get(stored.weight)?.source;
    if (source?.kind === 'inline' && isInlined(stored, sharded)) result.set(stored.tensor, source.data);
  }
  return result;
}

function segmentRecord(segment: Segment, file: string): ProgramSegment {
  return {
    file,
    inputs: segment.inputs.map((binding) => binding.inside),
    weights: segment.weights.map((binding) => binding.inside),
    outputs: segment.outputs.map((binding) => binding.inside),
    temporaryBytes: segment.temporaryBytes,
    flops: segment.flops,
    operators: segment.operators,
    nodes: segment.nodes,
  };
}

/** Types of all tensors that instructions name, and of inputs and outputs. */
function tensorRecords(
  graph: Graph,
  sharded: ShardedGraph,
  instructions: readonly Instruction[],
): Readonly<Record<string, ProgramTensor>> {
  const names = new Set([...sharded.inputs, ...sharded.outputs].map((value) => value.tensor));
  for (const instruction of instructions) {
    if (instruction.kind === 'compute')
      for (const name of [...instruction.inputs, ...instruction.outputs]) names.add(name);
    if (instruction.kind === 'start' || instruction.kind === 'accumulate')
      for (const name of [instruction.input, instruction.output]) names.add(name);
    if (instruction.kind === 'send' || instruction.kind === 'recv') names.add(instruction.tensor);
  }
  const sourceOf = sources(graph, sharded);
  const result: Record<string, ProgramTensor> = {};
  for (const name of names) {
    const { dtype, localShape, shape, layout } = tensorOf(sharded, name);
    const source = sourceOf(name);
    result[name] = { dtype, localShape, shape, layout, ...(source === undefined ? {} : { source }) };
  }
  return result;
}

/**
 * The graph's tensor that a tensor is a block of: itself, or where a collective brought it into another layout what that read.
 */
function sources(graph: Graph, { nodes, tensors, microBatches }: ShardedGraph): (name: string) => string | undefined {
  const moved = new Map(
    nodes.flatMap((node) => (node.kind === 'communicate' ? [[node.output, node.input] as const] : [])),
  );
  const inMicroBatch = new Set(
    nodes.flatMap((node) => {
      if (node.phase === 'update' || (node.kind === 'compute' && isAccumulator(node))) return [];
      return node.kind === 'compute' ? node.outputs : [node.output];
    }),
  );
  return (name) => {
    let source: string | undefined = name;
    while (source !== undefined && !graph.tensors.has(source)) source = moved.get(source);
    if (source === undefined) return undefined;
    const isWhole = !graph.weights.has(source) && tensors.get(name)?.varying === undefined;
    if (!isWhole || microBatches === undefined) return isWhole ? source : undefined;
    // What a micro-batch makes is a part of the model's tensor, which has another shape; so is what is fed to it.
    const isPart = inMicroBatch.has(name) || microBatches.cut.has(source) || source === microBatches.index;
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
