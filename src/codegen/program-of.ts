/**
 * @file sharded graph → program: order, segments, instructions, and where everything is found.
 */
import type { ConstantTensor, Graph, Scope } from '../ir/graph.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { orderPhase, phasesOf, type Step } from '../partition/order.js';
import { isInlined, readersOutside } from '../partition/segments.js';
import type { ComputeNode, ShardedGraph, ShardedTensor } from '../partition/sharded-graph.js';
import {
  type Instruction,
  PROGRAM_VERSION,
  type Program,
  type ProgramSegment,
  type ProgramTensor,
} from '../program/program.js';
import { makeSegment, type Segment, type Surroundings } from './segment.js';
import { placeWeights } from './weights.js';

/** A program and the segment models that it names by file. */
export interface GeneratedProgram {
  readonly program: Program;
  /** By file, relative to program.json. */
  readonly segments: ReadonlyMap<string, Uint8Array>;
}

/** Generates the program of a graph that is one stage. `model` names it in program.json. */
export function programOf(graph: Graph, sharded: ShardedGraph, model: Program['model']): GeneratedProgram {
  const inline = inlineValues(graph, sharded);
  const bound = new Set(sharded.weights.map((weight) => weight.tensor).filter((tensor) => !inline.has(tensor)));
  const kept = new Set(sharded.state.map(({ to }) => to));
  const left = new Set(sharded.state.map(({ from }) => from));
  const ordered = phasesOf(sharded).map(({ phase, scope }) => ({ phase, scope, steps: orderPhase(sharded, scope) }));
  const everyStep = ordered.flatMap(({ steps }) => steps);
  const around: Surroundings = { graph: sharded, bound, inline, readOutside: readersOutside(sharded, everyStep) };
  const files = new Map<string, Uint8Array>();
  const segments: Record<string, ProgramSegment> = {};
  const written = (step: Step): Instruction => {
    if (step.kind === 'wait') return { kind: 'wait', id: step.id };
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
    segments[segment.id] = segmentRecord(segment, file);
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
  const lists = ordered.map(({ phase, scope, steps }) => ({ phase, scope, list: steps.map(written) }));
  const phases = Object.fromEntries(
    lists.map(({ phase, scope, list }) => [phase, withFrees(list, sharded, keptBehind(sharded, scope, lists))]),
  );
  const instructions = Object.values(phases).flat();
  const coordinates = Object.fromEntries(
    sharded.coordinates.map(({ name, axes, block, bias }) => [name, { axes, block, bias }]),
  );
  const program: Program = {
    format: 'autopar-program',
    version: PROGRAM_VERSION,
    model,
    mesh: sharded.mesh.axes.map((axis) => ({ axis: axis.name, size: axis.size, subAxes: axis.subAxes })),
    inputs: sharded.inputs
      .filter(({ tensor, input }) => !kept.has(tensor) && input !== sharded.microBatches?.index)
      .map(({ tensor, input }) => valueRecord(sharded, tensor, input)),
    outputs: sharded.outputs
      .filter(({ tensor }) => !left.has(tensor))
      .map(({ tensor, output }) => valueRecord(sharded, tensor, output)),
    ...(sharded.state.length > 0 ? { state: sharded.state.map(({ from, to }) => ({ stage: 0, from, to })) } : {}),
    stages: [
      {
        tensors: tensorRecords(graph, sharded, instructions),
        segments,
        weights: placeWeights(sharded, new Set([...bound, ...kept])),
        coordinates,
        ...(sharded.microBatches?.index === undefined ? {} : { microBatch: sharded.microBatches.index }),
        phases,
      },
    ],
    schedule: scheduleOf(sharded),
  };
  return { program, segments: files };
}

function scheduleOf({ microBatches }: ShardedGraph): Program['schedule'] {
  const action = { stage: 0, chunk: 0 } as const;
  if (!microBatches) return [{ ...action, microBatch: 0, phase: 'forward' }];
  const micro = Array.from({ length: microBatches.count }, (_, microBatch) => ({
    ...action,
    microBatch,
    phase: 'micro',
  }));
  return [...micro, { ...action, microBatch: 0, phase: 'step' }];
}

/**
 * Tensors that a phase must leave behind: for a micro-batch's what the next one reads again (the state), what it adds to, and what
 * the step's own operators read.
 */
function keptBehind(
  sharded: ShardedGraph,
  scope: Scope | undefined,
  lists: readonly { readonly scope: Scope | undefined; readonly list: readonly Instruction[] }[],
): ReadonlySet<string> {
  if (scope !== 'micro') return new Set();
  const later = lists.filter((other) => other.scope !== 'micro').flatMap(({ list }) => list);
  const own = lists.filter((other) => other.scope === 'micro').flatMap(({ list }) => list);
  return new Set([
    ...sharded.state.map(({ to }) => to),
    ...own.flatMap((instruction) => (instruction.kind === 'accumulate' ? [instruction.output] : [])),
    ...later.flatMap((instruction) =>
      instruction.kind === 'compute' ? instruction.inputs : instruction.kind === 'start' ? [instruction.input] : [],
    ),
  ]);
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

/** Adds a `free` behind the last reader of every tensor but those `left`. A collective's operand is kept until its wait. */
function withFrees(
  instructions: readonly Instruction[],
  sharded: ShardedGraph,
  left: ReadonlySet<string>,
): readonly Instruction[] {
  const kept = new Set([
    ...left,
    ...sharded.outputs.map((output) => output.tensor),
    ...sharded.coordinates.map((coordinate) => coordinate.name),
  ]);
  const operandOf = new Map<number, { readonly input: string; readonly output: string }>();
  const lastUse = new Map<string, number>();
  const use = (tensor: string, position: number) => !kept.has(tensor) && lastUse.set(tensor, position);
  // An input that no phase reads is freed at once; with micro-batches each phase is handed those that it reads.
  if (!sharded.microBatches) for (const { tensor } of sharded.inputs) use(tensor, -1);
  instructions.forEach((instruction, position) => {
    if (instruction.kind === 'compute') {
      for (const tensor of [...instruction.inputs, ...instruction.outputs]) use(tensor, position);
    } else if (instruction.kind === 'accumulate') {
      for (const tensor of [instruction.input, instruction.output]) use(tensor, position);
    } else if (instruction.kind === 'start') {
      operandOf.set(instruction.id, instruction);
    } else if (instruction.kind === 'wait') {
      const operand = operandOf.get(instruction.id);
      if (operand) for (const tensor of [operand.input, operand.output]) use(tensor, position);
    }
  });
  const frees = new Map<number, string[]>();
  for (const [tensor, position] of lastUse) frees.set(position, [...(frees.get(position) ?? []), tensor]);
  const result: Instruction[] = [];
  const free = (position: number) => {
    const tensors = frees.get(position);
    if (tensors) result.push({ kind: 'free', tensors });
  };
  free(-1);
  instructions.forEach((instruction, position) => {
    result.push(instruction);
    free(position);
  });
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

/** The graph's tensor that a tensor is a block of: itself, or where a collective brought it into another layout what that read. */
function sources(graph: Graph, { nodes, tensors, microBatches }: ShardedGraph): (name: string) => string | undefined {
  const moved = new Map(
    nodes.flatMap((node) => (node.kind === 'communicate' ? [[node.output, node.input] as const] : [])),
  );
  const inMicroBatch = new Set(
    nodes.flatMap((node) => {
      if (node.scope !== 'micro' || (node.kind === 'compute' && isAccumulator(node))) return [];
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

function valueRecord(sharded: ShardedGraph, tensor: string, name: string) {
  const { dtype, shape } = tensorOf(sharded, tensor);
  const axis = sharded.microBatches?.cut.get(name);
  const count = sharded.microBatches?.count ?? 1;
  if (axis === undefined) return { name, dtype, shape, stage: 0, tensor };
  const whole = shape.map((size, index) => (index === axis ? size * count : size));
  return { name, dtype, shape: whole, stage: 0, tensor, microBatches: { axis, count } };
}

function labelOf(layer: string | null, origin: string): string {
  return layer === null ? origin : `${layer}: ${origin}`;
}

function tensorOf(sharded: ShardedGraph, name: string): ShardedTensor {
  const tensor = sharded.tensors.get(name);
  if (!tensor) throw new Error(`sharded graph has no tensor ${name}`);
  return tensor;
}
