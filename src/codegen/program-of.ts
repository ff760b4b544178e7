/**
 * @file sharded graph → program: order, segments, instructions, and where everything is found.
 */
import { createHash } from 'node:crypto';
import type { ConstantTensor, Graph } from '../ir/graph.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import type { LoweredStage } from '../partition/lower-stages.js';
import { BEGIN, listName, orderPhase, type PhaseList, phasesOf, type Step, UPDATE } from '../partition/order.js';
import { isInlined, readersOutside } from '../partition/segments.js';
import type { ComputeNode, ShardedGraph, ShardedTensor } from '../partition/sharded-graph.js';
import { STAGE_AXIS } from '../program/mesh.js';
import {
  type Instruction,
  PROGRAM_VERSION,
  type Program,
  type ProgramSegment,
  type ProgramStage,
  type ProgramTensor,
} from '../program/program.js';
import { coordinateType, typeText } from '../program/tensor-type.js';
import { makeMesh } from '../sharding-propagation/mesh.js';
import { makeSegment, type Segment, type Surroundings } from './segment.js';
import { placeWeights } from './weights.js';

/** A program and the segment models that it names by file. */
export interface GeneratedProgram {
  readonly program: Program;
  /** By file, relative to program.json. */
  readonly segments: ReadonlyMap<string, Uint8Array>;
}

/** An action of a pipeline's schedule: a phase of one micro-batch through one chunk of a stage. */
export interface ScheduledAction {
  readonly stage: number;
  readonly chunk: number;
  readonly microBatch: number;
  readonly phase: string;
}

/**
 * Generates the program of a graph's stages; of one that is the whole graph, or of a pipeline's, each of which runs its `actions`
 * in their order. `model` names it in program.json.
 */
export function programOf(
  lowered: readonly LoweredStage[],
  model: Program['model'],
  actions: readonly (readonly ScheduledAction[])[] = [],
): GeneratedProgram {
  const files = new Map<string, Uint8Array>();
  const written = lowered.map((stage, index) => stageOf(stage, files, lowered.length > 1 ? `stage-${index}-` : ''));
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
    schedule: lowered.flatMap(({ sharded }, stage) =>
      scheduleOf(sharded, written[stage]?.phases ?? {}, stage, actions[stage] ?? []),
    ),
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

/** Writes segments to `files`; `prefix` begins the names of the stage's weight files. */
function stageOf({ graph, sharded }: LoweredStage, files: Map<string, Uint8Array>, prefix: string): ProgramStage {
  const inline = inlineValues(graph, sharded);
  const bound = new Set(sharded.weights.map((weight) => weight.tensor).filter((tensor) => !inline.has(tensor)));
  const kept = new Set(sharded.state.map(({ to }) => to));
  const ordered = phasesOf(sharded).map((list) => ({ list, steps: orderPhase(sharded, list) }));
  const everyStep = ordered.flatMap(({ steps }) => steps);
  const around: Surroundings = { graph: sharded, bound, inline, readOutside: readersOutside(sharded, everyStep) };
  const segments: Record<string, ProgramSegment> = {};
  const types = typesIn(sharded);
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
    const record = segmentRecord(segment, types);
    files.set(record.file, segment.model);
    const id = shortHash(JSON.stringify([record.sha256, record.types]));
    segments[id] ??= record;
    const first = step.nodes[0] as ComputeNode;
    return {
      kind: 'compute',
      segment: id,
      inputs: segment.inputs.map((binding) => binding.tensor),
      weights: segment.weights.map((binding) => binding.tensor),
      outputs: segment.outputs.map((binding) => binding.tensor),
      label: labelOf(first.layer, first.origin),
    };
  };
  const phases = withFrees(
    ordered.map(({ list, steps }) => ({ ...list, instructions: steps.map(written) })),
    sharded,
  );
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

/** Of the whole graph: each micro-batch, then the step's own list. Of a pipeline's stage: its actions between what runs once. */
function scheduleOf(
  { microBatches, pipeline }: ShardedGraph,
  phases: ProgramStage['phases'],
  stage: number,
  actions: readonly ScheduledAction[],
): Program['schedule'] {
  const once = (phase: string) => ({ stage, chunk: 0, microBatch: null, phase });
  if (pipeline) {
    const isThere = (phase: string) => (phases[phase] ?? []).length > 0;
    const inTurn = actions.map(({ chunk, microBatch, phase }) => {
      return { stage, chunk, microBatch: microBatches ? microBatch : null, phase: listName(phase, chunk) };
    });
    return [...(isThere(BEGIN) ? [once(BEGIN)] : []), ...inTurn, ...(isThere(UPDATE) ? [once(UPDATE)] : [])];
  }
  if (!microBatches) return [once('forward')];
  const micro = Array.from({ length: microBatches.count }, (_, microBatch) => ({
    ...once('micro'),
    microBatch,
  }));
  return [...micro, once('step')];
}

/** A list with its instructions. */
interface WrittenList extends PhaseList {
  readonly instructions: readonly Instruction[];
}

/**
 * Adds a `free` behind the last reader of every tensor, in whichever list that is. What a micro-batch makes is freed in a list of
 * micro-batches; what its lists must leave behind is what the next micro-batch reads again (the state), what it adds to, and
 * what the step's own operators read.
 */
function withFrees(
  lists: readonly WrittenList[],
  sharded: ShardedGraph,
): Readonly<Record<string, readonly Instruction[]>> {
  const always = new Set([
    ...sharded.outputs.map((output) => output.tensor),
    ...sharded.coordinates.map((coordinate) => coordinate.name),
  ]);
  const given = sharded.inputs.map(({ tensor }) => tensor);
  if (!sharded.microBatches) return Object.fromEntries(freed(lists, always, given));
  const micro = lists.filter(({ runs }) => runs === 'micro');
  const step = lists.filter(({ runs }) => runs === 'step');
  const sums = micro.flatMap(({ instructions }) =>
    instructions.flatMap((instruction) => (instruction.kind === 'accumulate' ? [instruction.output] : [])),
  );
  const leftBehind = new Set([
    ...always,
    ...sharded.state.map(({ to }) => to),
    ...sums,
    ...step.flatMap(({ instructions }) => instructions.flatMap(readBy)),
    ...receivedAtFirst(sharded),
  ]);
  const ofStep = new Set([...always, ...receivedAtFirst(sharded)]);
  return Object.fromEntries([...freed(micro, leftBehind, []), ...freed(step, ofStep, [])]);
}

/** What every micro-batch reads of what another stage sends before the first. */
function receivedAtFirst({ pipeline }: ShardedGraph): readonly string[] {
  return (pipeline?.receives ?? []).flatMap(({ tensor, when }) => (when === 'begin' ? [tensor] : []));
}

function readBy(instruction: Instruction): readonly string[] {
  if (instruction.kind === 'compute') return instruction.inputs;
  if (instruction.kind === 'send') return [instruction.tensor];
  return instruction.kind === 'start' || instruction.kind === 'accumulate' ? [instruction.input] : [];
}

/**
 * Lists that run one after the other, with frees of all that they make but what is `kept`, and of what is `given` to them. A
 * collective's operand is held until its wait.
 */
function freed(
  lists: readonly WrittenList[],
  kept: ReadonlySet<string>,
  given: readonly string[],
): readonly (readonly [string, readonly Instruction[]])[] {
  const lastUse = new Map<string, Instruction | null>();
  const use = (tensor: string, at: Instruction | null) => !kept.has(tensor) && lastUse.set(tensor, at);
  // An input that no list reads is freed at once.
  for (const tensor of given) use(tensor, null);
  for (const { instructions } of lists) {
    const operandOf = new Map<number, { readonly input: string; readonly output: string }>();
    for (const instruction of instructions) {
      if (instruction.kind === 'compute') {
        for (const tensor of [...instruction.inputs, ...instruction.outputs]) use(tensor, instruction);
      } else if (instruction.kind === 'accumulate') {
        for (const tensor of [instruction.input, instruction.output]) use(tensor, instruction);
      } else if (instruction.kind === 'send' || instruction.kind === 'recv') {
        use(instruction.tensor, instruction);
      } else if (instruction.kind === 'start') {
        operandOf.set(instruction.id, instruction);
      } else if (instruction.kind === 'wait') {
        const operand = operandOf.get(instruction.id);
        if (operand) for (const tensor of [operand.input, operand.output]) use(tensor, instruction);
      }
    }
  }
  const frees = new Map<Instruction | null, string[]>();
  for (const [tensor, at] of lastUse) frees.set(at, [...(frees.get(at) ?? []), tensor]);
  const free = (at: Instruction | null): readonly Instruction[] => {
    const tensors = frees.get(at);
    return tensors ? [{ kind: 'free', tensors }] : [];
  };
  const first = lists.findIndex(({ instructions }) => instructions.length > 0);
  return lists.map(({ phase, instructions }, index) => [
    phase,
    [
      ...(index === first ? free(null) : []),
      ...instructions.flatMap((instruction) => [instruction, ...free(instruction)]),
    ],
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
  return createHash('sha256').update(text).digest('hex').slice(0, HASH_DIGITS);
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
    const { dtype, localShape, shape, layout, varying } = tensorOf(sharded, name);
    const source = sourceOf(name);
    result[name] = {
      dtype,
      localShape,
      shape,
      layout,
      ...(varying ? { varying } : {}),
      ...(source === undefined ? {} : { source }),
    };
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
