/**
 * @file A stage as one ONNX graph over local shapes: its operators in their order, and its collectives as operators between them.
 * The stage's ranks differ only in values of weights and coordinates, which each rank's model gets (rank-models.ts).
 */
import { byteLength } from '../../ir/dtype.js';
import type { Graph, Node, TensorType, Weight } from '../../ir/graph.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { inlineValues } from '../../partition/segments.js';
import type { ComputeNode, ShardedGraph, StageTransfer } from '../../partition/sharded-graph.js';
import { walkStage } from '../../partition/stage-walk.js';
import { groupOf, rankCount, stageAxes } from '../../program/mesh.js';
import type { Program, ProgramAxis } from '../../program/program.js';
import { lacksPlan } from '../target-lacks.js';
import { linksOf, type RankGroups } from './collectives.js';

/** A stage's graph, and the roles of its inputs and outputs. */
export interface OnnxStageGraph {
  readonly graph: Graph;
  /** Results of collectives, whose types readers of the file cannot infer. */
  readonly exchanged: readonly string[];
  readonly receives: readonly RankTransfer[];
  readonly sends: readonly RankTransfer[];
  /** By tensor of the sharded graph that leaves the stage: the graph's output. */
  readonly outputs: ReadonlyMap<string, string>;
}

/** A tensor of the graph that comes from, or goes to, the same rank of another stage. */
export interface RankTransfer {
  readonly tensor: string;
  readonly stage: number;
  /** The name by which both ends know it. */
  readonly label: string;
}

/** Axes of the ranks of a stage. */
export function axesOfStage({ mesh, stages }: Program, stage: number): readonly ProgramAxis[] {
  return stages[stage]?.mesh ?? stageAxes(mesh, stages.length);
}

/** @throws AutoparError `target-lacks-plan` for a step that is not a single pass through the stages */
export function stageGraph({ sharded }: LoweredStage, stage: number, program: Program): OnnxStageGraph {
  const actions = program.schedule.filter((action) => action.stage === stage);
  refuseUnsupported(sharded, stage, actions);
  const builder = new Builder(sharded, groupsIn(program, stage));
  const lists = new Map(
    walkStage(
      sharded,
      actions.map(({ chunk, microBatch, phase }) => ({ chunk, microBatch, list: phase })),
    ).lists.map((list) => [list.name, list]),
  );
  for (const { instruction } of actions.flatMap(({ phase }) => lists.get(phase)?.instructions ?? [])) {
    if (instruction.kind === 'segment') for (const node of instruction.nodes) builder.compute(node);
    else if (instruction.kind === 'start') builder.collective(instruction.node);
    else if (instruction.kind === 'move') builder.same(instruction.node.input, instruction.node.output);
    else if (instruction.kind === 'recv') builder.receives.push(transferOf(instruction.transfer));
    else if (instruction.kind === 'send') builder.sends.push(transferOf(instruction.transfer));
    else if (instruction.kind === 'accumulate')
      throw new Error(`${instruction.node.name} sums micro-batches in a step of one`);
  }
  return builder.finish();
}

function transferOf({ tensor, stage, name }: StageTransfer): RankTransfer {
  return { tensor, stage, label: name };
}

/** An ONNX graph has no loop over micro-batches, and a tensor that leaves it does not come back. */
function refuseUnsupported(sharded: ShardedGraph, stage: number, actions: Program['schedule']): void {
  const node = sharded.nodes[0]?.origin ?? '';
  const phases = actions.map(({ phase }) => phase);
  // First, as it refuses every number of micro-batches.
  if (sharded.pipeline?.receives.some((transfer) => transfer.stage > stage)) {
    const subject = 'transfers from a later stage: training over several stages, and virtual stages';
    throw lacksPlan('onnx', subject, node, 'give --pp 1');
  }
  if ((sharded.microBatches?.count ?? 1) > 1 || new Set(phases).size < phases.length)
    throw lacksPlan('onnx', 'several micro-batches', node, 'give --micro-batches 1');
  if ([...sharded.tensors.values()].some((tensor) => tensor.first))
    throw lacksPlan('onnx', 'a parameter server (--gradient-sync parameter-server)', node);
}

/** The groups of some axes: ranks are counted in the program. */
function groupsIn(program: Program, stage: number): (axes: readonly string[]) => RankGroups {
  const own = axesOfStage(program, stage);
  const count = rankCount(own);
  const known = new Map<string, RankGroups>();
  return (axes) => {
    const key = axes.join();
    const groups = known.get(key) ?? {
      groups: Array.from({ length: count }, (_, rank) => groupOf(own, axes, rank))
        .filter((members, rank) => members[0] === rank)
        .map((members) => members.map((rank) => stage * count + rank)),
      ranks: rankCount(program.mesh),
    };
    known.set(key, groups);
    return groups;
  };
}

class Builder {
  readonly receives: RankTransfer[] = [];
  readonly sends: RankTransfer[] = [];
  private readonly nodes: Node[] = [];
  private readonly exchanged: string[] = [];
  private readonly types = new Map<string, TensorType>();
  private readonly made = new Set<string>();

  constructor(
    private readonly sharded: ShardedGraph,
    private readonly groupsOf: (axes: readonly string[]) => RankGroups,
  ) {
    for (const [name, { dtype, localShape }] of sharded.tensors) this.types.set(name, { dtype, shape: localShape });
  }

  compute({ name, op, domain, attributes, inputs, outputs, phase }: ComputeNode): void {
    this.push({ name, op, domain, attributes, inputs, phase, outputs });
  }

  collective(node: Parameters<typeof linksOf>[0]): void {
    const result = this.typeOf(node.output);
    const links = linksOf(node, this.typeOf(node.input), result.shape, this.groupsOf(node.axes));
    if (!links) throw new Error(`${node.name}: only a parameter server has ${node.collective.kind}`);
    let input = node.input;
    links.forEach(({ op, domain, attributes, type }, index) => {
      const isLast = index === links.length - 1;
      const output = isLast ? node.output : this.fresh(`${node.output}/${op}`);
      this.types.set(output, type);
      if (domain !== '') this.exchanged.push(output);
      const name = isLast ? node.name : output;
      this.push({ name, op, domain, attributes, inputs: [input], outputs: [output], phase: node.phase });
      input = output;
    });
    if (links.length === 0) this.same(node.input, node.output);
  }

  same(input: string, output: string): void {
    this.types.set(output, this.typeOf(input));
    const own = { op: 'Identity', domain: '', attributes: {}, phase: 'forward' } as const;
    this.push({ ...own, name: output, inputs: [input], outputs: [output] });
  }

  finish(): OnnxStageGraph {
    const { sharded } = this;
    const outputs = new Map<string, string>();
    const leaving = [...sharded.outputs, ...sharded.state.map(({ from }) => ({ tensor: from })), ...this.sends];
    for (const { tensor } of leaving) {
      if (outputs.has(tensor)) continue;
      const own = this.made.has(tensor) ? tensor : this.fresh(`${tensor}/same`);
      if (own !== tensor) this.same(tensor, own);
      outputs.set(tensor, own);
    }
    const inputs = [...new Set([...sharded.inputs, ...this.receives].map(({ tensor }) => tensor))];
    const graph: Graph = {
      name: 'stage',
      nodes: this.nodes,
      tensors: this.types,
      inputs,
      outputs: [...outputs.values()],
      weights: this.weights(),
      state: [],
      batch: [],
      ...(sharded.domains ? { domains: sharded.domains } : {}),
    };
    const { exchanged, receives, sends } = this;
    return { graph, exchanged, receives, sends, outputs };
  }

  /** Tensors that no operator computes: constants with their values, and tensors whose values are in a rank's model. */
  private weights(): ReadonlyMap<string, Weight> {
    const { sharded } = this;
    const read = new Set(this.nodes.flatMap(({ inputs }) => inputs));
    const weights = new Map<string, Weight>();
    const inline = inlineValues(sharded);
    for (const { name } of sharded.coordinates) {
      const type = { dtype: 'int64', shape: [1] } as const;
      const data = new Uint8Array(byteLength(type.dtype, 1));
      this.types.set(name, type);
      if (read.has(name)) weights.set(name, { ...type, source: { kind: 'inline', data }, role: 'constant' });
    }
    for (const [name, data] of inline)
      if (read.has(name))
        weights.set(name, { ...this.typeOf(name), source: { kind: 'inline', data }, role: 'constant' });
    for (const name of [...sharded.weights.map(({ tensor }) => tensor), ...sharded.state.map(({ to }) => to)])
      if (read.has(name) && !inline.has(name))
        weights.set(name, { ...this.typeOf(name), source: { kind: 'absent' }, role: 'parameter' });
    return weights;
  }

  private push(node: Pick<Node, 'name' | 'op' | 'domain' | 'attributes' | 'inputs' | 'outputs' | 'phase'>): void {
    for (const output of node.outputs) if (output !== null) this.made.add(output);
    this.nodes.push({ ...node, module: [], layer: null, forward: null, group: node.name, body: null });
  }

  private fresh(wanted: string): string {
    let name = wanted;
    for (let ordinal = 2; this.types.has(name); ordinal++) name = `${wanted}.${ordinal}`;
    return name;
  }

  private typeOf(tensor: string): TensorType {
    const type = this.types.get(tensor);
    if (!type) throw new Error(`sharded graph has no tensor ${tensor}`);
    return type;
  }
}
