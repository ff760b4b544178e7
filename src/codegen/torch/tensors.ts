/**
 * @file Where emitted code has each tensor of a stage: as a parameter, in a namespace that lasts a step or a micro-batch, or as a
 * variable of a method.
 */
import { appendTo } from '../../ir/group-by.js';
import type { PlacedInstruction } from '../../partition/place-moves.js';
import { inlineValues } from '../../partition/segments.js';
import {
  type ComputeNode,
  type LocalGradient,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedTensor,
} from '../../partition/sharded-graph.js';
import type { StageWalk } from '../../partition/stage-walk.js';
import type { ProgramAxes } from './axes.js';
import type { OptimizerFile } from './optimizer-file.js';
import { type LayerInstructions, readsOfInstruction } from './runs.js';

/** The name of a layer, or '' for the stage itself. */
export type LayerOwner = string;

export interface TorchTensors {
  readonly sharded: ShardedGraph;
  readonly axes: ProgramAxes;
  readonly walk: StageWalk;
  readonly runs: readonly LayerInstructions[];
  /** By segment: its gradients that autograd makes. The last micro-batch may run equal nodes in segments of its own. */
  readonly gradients: ReadonlyMap<PlacedSegment, SegmentGradients>;
  /** By result of an operator: the operator. */
  readonly nodeOf: ReadonlyMap<string, ComputeNode>;
  /** The operators that read a tensor. */
  readonly readers: ReadonlyMap<string, readonly ComputeNode[]>;
  /** Functions that update parameters. */
  readonly optimizer: OptimizerFile;
  /** Values that are part of the code. */
  readonly inline: ReadonlyMap<string, Uint8Array>;
  /** By weight and state: the module that owns its parameter. */
  readonly parameters: ReadonlyMap<string, LayerOwner>;
  /** By result of an instruction: the run that makes it (for a collective, that starts it), the last where several do. */
  readonly madeIn: ReadonlyMap<string, LayerInstructions>;
  /** All runs that make it: one in each form of a micro-batch, of which the last may have its own. */
  readonly makers: ReadonlyMap<string, ReadonlySet<LayerInstructions>>;
  /** Collectives' results that other runs wait for. */
  readonly pending: ReadonlySet<string>;
  /** By tensor: the runs that read it, in order. */
  readonly readIn: ReadonlyMap<string, readonly LayerInstructions[]>;
  /** Tensors that are there when the step ends: outputs, and next values of state that no layer's own method stores. */
  readonly readAtStepEnd: ReadonlySet<string>;
  /** By run: the state whose next value it stores at its end. */
  readonly stores: ReadonlyMap<LayerInstructions, readonly StoredState[]>;
  /** Next values of state that runs store. */
  readonly stored: ReadonlySet<string>;
  /** State that has its next value when the step ends. */
  readonly storedLast: readonly StoredState[];
}

export type PlacedSegment = Extract<PlacedInstruction, { readonly kind: 'segment' }>;

export interface SegmentGradients {
  /** By node in whose place it stands: gradients that are one call. */
  readonly calls: ReadonlyMap<ComputeNode, GradientCall>;
  /** Operators whose gradients are made of what autograd keeps of them. */
  readonly recordings: ReadonlyMap<ComputeNode, Recording>;
  /** By node in whose place a call stands: the record that it is made of. */
  readonly recordOf: ReadonlyMap<ComputeNode, string>;
}

/** Nodes of a segment that are one call. */
export interface GradientCall {
  readonly gradient: LocalGradient;
  readonly nodes: readonly ComputeNode[];
  /** The operands whose gradients are read. */
  readonly wanted: readonly number[];
}

/** What autograd keeps of an operator, under a name like a tensor's, and the call that reads it. */
export interface Recording {
  readonly name: string;
  readonly call: GradientCall;
}

export interface StoredState {
  readonly from: string;
  readonly to: string;
}

function ownerOf({ layer }: LayerInstructions): LayerOwner {
  return layer ?? '';
}

export function tensorOf({ tensors }: ShardedGraph, name: string): ShardedTensor {
  const tensor = tensors.get(name);
  if (!tensor) throw new Error(`sharded graph has no tensor ${name}`);
  return tensor;
}

export function tensorsOf(
  sharded: ShardedGraph,
  axes: ProgramAxes,
  walk: StageWalk,
  runs: readonly LayerInstructions[],
  optimizer: OptimizerFile,
): TorchTensors {
  const inline = inlineValues(sharded);
  const madeIn = new Map<string, LayerInstructions>();
  const makers = new Map<string, Set<LayerInstructions>>();
  const make = (name: string, run: LayerInstructions) => {
    madeIn.set(name, run);
    makers.set(name, (makers.get(name) ?? new Set()).add(run));
  };
  const pending = new Set<string>();
  const readIn = new Map<string, LayerInstructions[]>();
  const freedIn = new Map<string, LayerInstructions>();
  const readers = new Map<string, ComputeNode[]>();
  const nodeOf = new Map<string, ComputeNode>();
  for (const run of runs)
    for (const { instruction, makes, inside, frees } of run.instructions) {
      for (const node of instruction.kind === 'segment' ? instruction.nodes : []) {
        for (const name of readsOf(node)) appendTo(readers, name, node);
        for (const name of resultsOf(node)) nodeOf.set(name, node);
      }
      for (const name of frees) freedIn.set(name, run);
      for (const name of readsOfInstruction(instruction)) {
        const known = readIn.get(name);
        if (!known) readIn.set(name, [run]);
        else if (known.at(-1) !== run) known.push(run);
      }
      if (instruction.kind === 'start') make(instruction.node.output, run);
      else if (instruction.kind === 'wait') {
        if (!makers.get(instruction.node.output)?.has(run)) pending.add(instruction.node.output);
      } else for (const name of [...makes, ...inside]) make(name, run);
    }
  const kept = [...sharded.weights.map(({ tensor }) => tensor), ...sharded.state.map(({ to }) => to)];
  const parameters = new Map(
    kept.filter((name) => !inline.has(name)).map((name) => [name, onlyOwner(readIn.get(name) ?? [])] as const),
  );
  const stores = new Map<LayerInstructions, StoredState[]>();
  const storedLast: StoredState[] = [];
  for (const pair of sharded.state) {
    const run = storingRun(pair, { madeIn, freedIn, parameters, pending });
    if (run) stores.set(run, [...(stores.get(run) ?? []), pair]);
    else storedLast.push(pair);
  }
  const asked = new Set([...sharded.outputs.map(({ tensor }) => tensor), ...storedLast.map(({ from }) => from)]);
  const stored = new Set([...stores.values()].flat().map(({ from }) => from));
  for (const from of stored)
    if (!sharded.outputs.some(({ tensor, output }) => tensor === from && !isState(sharded, output))) asked.delete(from);
  return {
    sharded,
    axes,
    walk,
    runs,
    optimizer,
    inline,
    parameters,
    madeIn,
    makers,
    pending,
    readIn,
    readAtStepEnd: asked,
    stores,
    stored,
    storedLast,
    ...{ readers, nodeOf },
    gradients: new Map(),
  };
}

/** Whether an output is the next value of state alone. */
function isState({ state, outputs }: ShardedGraph, output: string): boolean {
  const tensor = outputs.find((item) => item.output === output)?.tensor;
  return state.some(({ from }) => from === tensor);
}

function onlyOwner(readers: readonly LayerInstructions[]): LayerOwner {
  const owners = new Set(readers.map(ownerOf));
  const [owner = ''] = owners;
  return owners.size === 1 ? owner : '';
}

/** The layer's run that makes the next value of its own state, where nothing reads the old value later. */
function storingRun(
  { from, to }: StoredState,
  {
    madeIn,
    freedIn,
    parameters,
    pending,
  }: Pick<TorchTensors, 'madeIn' | 'parameters' | 'pending'> & {
    readonly freedIn: ReadonlyMap<string, LayerInstructions>;
  },
): LayerInstructions | null {
  const run = madeIn.get(from);
  if (!run || pending.has(from) || run.layer === null || parameters.get(to) !== run.layer) return null;
  return freedIn.get(to) === run ? run : null;
}
