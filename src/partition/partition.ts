/**
 * @file graph + assignment → sharded graph: every operator lowered under its strategy, every reshard written out.
 *
 * A tensor is resharded once per shared reshard, when its first reader needs it. Weights are sharded when they are loaded: each
 * distinct layout that readers require of a weight becomes one sharded weight; a held weight has one layout, from which its
 * readers reshard. Lowered copies of small constants that are equal are kept once.
 */

import { byteLength, dtypeBits } from '../ir/dtype.js';
import type { ConstantTensor, Graph, Node, Phase } from '../ir/graph.js';
import { elementCount, isOnceAStep, typeOf } from '../ir/graph.js';
import { appendTo } from '../ir/group-by.js';
import { needed } from '../ir/needed.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { isStateWeight, stateWeights } from '../ir/passes/state-weights.js';
import type { Layout } from '../sharding-propagation/layout.js';
import { layoutKey, localShape, replicated, sameShards } from '../sharding-propagation/layout.js';
import type { Resharder } from '../sharding-propagation/resharding.js';
import { REPLICATED } from '../sharding-propagation/strategy.js';
import type { Assignment, SharedReshard, TensorReader } from './assignment.js';
import { Fragment } from './fragment.js';
import { type LocalTensor, localGradient, writtenOut } from './local-operator.js';
import { lowerNode } from './lower-operator.js';
import { lowerReshardOps } from './lower-reshard.js';
import {
  type Coordinate,
  type LocalGradient,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
  type ShardedTensor,
  type ShardedWeight,
  type WrittenOut,
} from './sharded-graph.js';

/**
 * Lowers a graph.
 * @param whole the graph that it is a stage of, whose kernels are decided before it is cut; the graph itself by default
 * @throws Error (internal error) where the assignment is illegal or incomplete.
 */
export function partition(
  graph: Graph,
  assignment: Assignment,
  resharder: Resharder,
  whole: Graph = graph,
): ShardedGraph {
  return new Partitioning(graph, assignment, resharder, whole).run();
}

/** Where a node of the sharded graph comes from. */
type NodeOrigin = Pick<Node, 'layer' | 'phase'> & { readonly origin: string };

/** One lowering under way: the sharded graph so far and the available forms of each tensor. */
class Partitioning {
  private readonly nodes: ShardedNode[] = [];
  private readonly tensors = new Map<string, ShardedTensor>();
  private readonly coordinates = new Map<string, Coordinate>();
  private readonly constants = new Map<string, ConstantTensor>();
  private readonly constantNames = new Map<string, string>();
  private readonly weights = new Map<string, ShardedWeight>();
  /** Names of sharded weights. */
  private readonly weightTensors = new Set<string>();
  /** By reshard: the resharded tensor, once its first reader came; separately for the backward, where it gathers again. */
  private readonly served = new Map<SharedReshard, string>();
  private readonly servedAgain = new Map<SharedReshard, string>();
  /** By operator, then by operand; and by output. */
  private readonly operandReshards = new Map<string, SharedReshard[]>();
  private readonly outputReshards = new Map<string, SharedReshard>();
  private readonly gradients = new Map<string, LocalGradient>();
  private readonly writtenOut = new Map<string, WrittenOut>();
  /** By operator's name: the node, and its clones. */
  private readonly originals: ReadonlyMap<string, readonly Node[]>;
  /** By result of an operator: when it is whole. */
  private readonly phases: ReadonlyMap<string | null, Phase>;
  /** Names of operators whose results gradients of activations wait for. */
  private readonly awaited: ReadonlySet<string>;

  constructor(
    private readonly graph: Graph,
    private readonly assignment: Assignment,
    private readonly resharder: Resharder,
    private readonly whole: Graph,
  ) {
    this.phases = new Map(
      graph.nodes.flatMap((node) =>
        node.outputs.map((output) => [output, isAccumulator(node) ? 'update' : node.phase] as const),
      ),
    );
    this.awaited = new Set(graph.nodes.flatMap(({ name, phase }) => (phase === 'backward-input' ? [name] : [])));
    const originals = new Map<string, Node[]>();
    for (const node of graph.nodes) {
      const name = node.phase === 'recompute' ? node.forward : node.forward === null ? node.name : null;
      if (name !== null) appendTo(originals, name, node);
    }
    this.originals = originals;
    for (const reshard of assignment.sharedReshards)
      for (const reader of reshard.readers) this.keepReshard(reshard, reader);
  }

  private keepReshard(reshard: SharedReshard, { kind, name, operand }: TensorReader): void {
    if (kind === 'output') this.outputReshards.set(name, reshard);
    else {
      const reshards = this.operandReshards.get(name) ?? [];
      reshards[operand] = reshard;
      this.operandReshards.set(name, reshards);
    }
  }

  run(): ShardedGraph {
    const { graph } = this;
    const held = stateWeights(graph);
    const inputs = graph.inputs.flatMap((input) => {
      const type = typeOf(graph, input);
      const layout = this.assignment.inputs.get(input) ?? replicated(type.shape);
      this.declare(input, type, layout);
      if (!held.has(input)) return [{ tensor: input, input }];
      this.keepWeight(input, { tensor: input, weight: input });
      return [];
    });
    const stateInputs = new Map(graph.state.map(({ input, output }) => [output, input]));
    for (const node of graph.nodes) this.lower(node);
    const outputs = graph.outputs.map((output) => {
      const reader: TensorReader = { kind: 'output', name: output, operand: 0 };
      const origin = this.originOfOutput(output);
      const kept = stateInputs.get(output);
      const layout = kept === undefined ? undefined : this.assignment.inputs.get(kept);
      const tensor = this.computed(this.demand(output, reader, layout, origin), origin);
      if (this.get(tensor).layout.partial.length > 0) throw new Error(`graph output ${output} is partial`);
      return { tensor, output };
    });
    // A collective may serve an operand that a lowered operator does not use.
    const ends = outputs.map(({ tensor }) => tensor);
    const tensorOf = new Map(outputs.map(({ tensor, output }) => [output, tensor]));
    const nodes = needed(this.nodes, ends, readsOf, resultsOf);
    return {
      mesh: this.assignment.mesh,
      nodes: graph.microBatches ? microFirst(nodes) : nodes,
      tensors: this.tensors,
      coordinates: [...this.coordinates.values()],
      weights: [...this.weights.values()],
      constants: this.constants,
      inputs,
      outputs,
      state: graph.state
        .filter((pair) => !isStateWeight(pair))
        .map(({ input, output }) => ({
          from: tensorOf.get(output) ?? output,
          to: input,
        })),
      ...(graph.microBatches ? { microBatches: graph.microBatches } : {}),
      ...(graph.ordered ? { ordered: graph.ordered } : {}),
      ...(graph.domains ? { domains: graph.domains } : {}),
      ...(this.gradients.size > 0 ? { gradients: this.gradients } : {}),
      ...(this.writtenOut.size > 0 ? { writtenOut: this.writtenOut } : {}),
    };
  }

  private lower(node: Node): void {
    const strategy = this.assignment.strategies.get(node.group) ?? REPLICATED;
    const lowered = lowerNode(this.whole, node, strategy, this.assignment.mesh);
    const origin: NodeOrigin = { origin: node.name, layer: node.layer, phase: node.phase };
    const names = new Map<string, string>();
    node.inputs.forEach((input, operand) => {
      const layout = lowered.operandLayouts[operand];
      if (input === null || !layout) return;
      const name = lowered.fragment.inputs[operand];
      const tensor = this.demand(input, { kind: 'operator', name: node.name, operand }, layout, origin);
      if (name) names.set(name, tensor);
    });
    node.outputs.forEach((output, index) => {
      const name = lowered.fragment.outputs[index];
      if (output !== null && name) names.set(name, output);
    });
    const made = this.adopt(lowered.fragment, node.name, names, origin);
    const { fragment } = lowered;
    const tensorOf = (inside: string): LocalTensor | undefined => {
      const name = names.get(inside) ?? '';
      const tensor = this.tensors.get(name);
      return tensor && { name, dtype: tensor.dtype, shape: tensor.localShape };
    };
    const own = { fragment, tensorOf, nodes: made };
    for (const forward of this.originals.get(node.forward ?? '') ?? []) {
      const gradient = localGradient(this.graph, node, forward, own);
      if (gradient) this.gradients.set(node.name, gradient);
    }
    const whole = writtenOut(this.graph, node, own);
    if (whole) this.writtenOut.set(node.name, whole);
  }

  /** The tensor in the layout that a reader requires (undefined: as its reshard has it). */
  private demand(tensor: string, reader: TensorReader, layout: Layout | undefined, origin: NodeOrigin): string {
    if (this.graph.weights.has(tensor)) return this.weight(tensor, layout);
    const { kind, name, operand } = reader;
    const reshard = kind === 'output' ? this.outputReshards.get(name) : this.operandReshards.get(name)?.[operand];
    // Tensors computed when a step begins are in the layouts of their readers before the first micro-batch.
    const at: NodeOrigin = this.phases.get(tensor) === 'begin' ? { ...origin, phase: 'begin' } : origin;
    const resharded = reshard ? this.serve(reshard, tensor, at) : tensor;
    return layout ? this.reshard(resharded, layout, `${reader.name}:${reader.operand}`, at) : resharded;
  }

  /** A graph output that is a weight is copied, so that every output is a node's result or an input. */
  private computed(tensor: string, origin: NodeOrigin): string {
    if (!this.weightTensors.has(tensor)) return tensor;
    const fragment = new Fragment(this.assignment.mesh);
    const type = this.get(tensor);
    fragment.tensor(type, type.layout, 'in0');
    fragment.add({ op: 'Identity', inputs: ['in0'], results: [{ name: 'out0', type, layout: type.layout }] });
    const name = this.unused(`${tensor}@output`);
    this.adopt(
      fragment,
      name,
      new Map([
        ['in0', tensor],
        ['out0', name],
      ]),
      origin,
    );
    return name;
  }

  /** The reshard of an output runs with the output's operator; sums over micro-batches are complete once a step. */
  private originOfOutput(output: string): NodeOrigin {
    const phase = this.phases.get(output) ?? (this.graph.microBatches ? 'update' : 'forward');
    return { origin: output, layer: null, phase };
  }

  /** A reshard whose first reader is the output runs as soon as the tensor is computed, whichever reader needs it first. */
  private serve(reshard: SharedReshard, tensor: string, asked: NodeOrigin): string {
    const served = this.isGatheredAgain(reshard, tensor, asked) ? this.servedAgain : this.served;
    const known = served.get(reshard);
    if (known !== undefined) return known;
    const origin = reshard.readers[0]?.kind === 'output' ? this.originOfOutput(tensor) : this.originFor(reshard, asked);
    const result = this.reshard(tensor, reshard.layout, this.unused(`${tensor}@resharded`), origin);
    served.set(reshard, result);
    return result;
  }

  /** Gradients of weights may wait for others, but not with what those others read too. */
  private originFor({ readers }: SharedReshard, asked: NodeOrigin): NodeOrigin {
    if (asked.phase !== 'backward-weight') return asked;
    return readers.some(({ name }) => this.awaited.has(name)) ? { ...asked, phase: 'backward-input' } : asked;
  }

  /** Whether the backward needs more of a tensor than the shard that the forward stores. */
  private isGatheredAgain({ layout }: SharedReshard, tensor: string, { phase }: NodeOrigin): boolean {
    if (!this.assignment.gathersAgain || this.phases.get(tensor) !== 'forward' || phase === 'forward') return false;
    const { shape, layout: from, localShape: kept } = this.get(tensor);
    const gathered = localShape(shape, layout, this.assignment.mesh);
    return from.partial.length === 0 && elementCount(gathered) > elementCount(kept);
  }

  private reshard(tensor: string, layout: Layout, label: string, origin: NodeOrigin): string {
    const from = this.get(tensor);
    if (sameShards(from.layout, layout, this.assignment.mesh)) return tensor;
    const ops = this.resharder.ops(from.layout, layout, from.shape, dtypeBits(from.dtype));
    if (ops.length === 0) return tensor;
    const fragment = new Fragment(this.assignment.mesh);
    fragment.tensor(from, from.layout, 'in0');
    const last = lowerReshardOps(fragment, 'in0', ops, 'out0');
    const name = this.unused(label.includes('@') ? label : `${tensor}@${label}`);
    this.adopt(
      fragment,
      name,
      new Map([
        ['in0', tensor],
        [last, name],
      ]),
      origin,
    );
    return name;
  }

  /** One sharded weight per distinct layout. */
  private weight(weight: string, layout: Layout | undefined): string {
    const type = typeOf(this.graph, weight);
    const wanted = layout ?? replicated(type.shape);
    const key = `${weight}\u0000${layoutKey(wanted)}`;
    const known = this.weights.get(key);
    if (known) return known.tensor;
    const name = this.unused(weight);
    this.declare(name, type, wanted);
    const { role, source } = this.graph.weights.get(weight) ?? {};
    const value = role === 'constant' && source?.kind === 'inline' ? { constant: source.data } : {};
    this.keepWeight(key, { tensor: name, weight, ...value });
    return name;
  }

  private keepWeight(key: string, weight: ShardedWeight): void {
    this.weights.set(key, weight);
    this.weightTensors.add(weight.tensor);
  }

  /** Copies a fragment in, its names replaced by those given and else prefixed. Returns the nodes' names. */
  private adopt(
    fragment: Fragment,
    prefix: string,
    names: Map<string, string>,
    origin: NodeOrigin,
  ): ReadonlySet<string> {
    for (const [name, coordinate] of fragment.coordinates) {
      this.coordinates.set(name, coordinate);
      names.set(name, name);
    }
    for (const [name, value] of fragment.constants) names.set(name, this.constant(value));
    for (const [name, tensor] of fragment.tensors) {
      const known = names.get(name);
      const final = known ?? this.unused(`${prefix}/${name}`);
      if (known === undefined) names.set(name, final);
      if (!this.tensors.has(final)) this.tensors.set(final, tensor);
    }
    const rename = (name: string) => names.get(name) as string;
    const { origin: of, layer, phase } = origin;
    const made = new Set<string>();
    // Spelled out: a second spread into one record takes ten times as long as the first.
    for (const node of fragment.nodes) {
      const name = this.nextName(prefix);
      made.add(name);
      if (node.kind === 'compute') {
        const inputs = node.inputs.map((input) => (input === null ? null : rename(input)));
        const outputs = node.outputs.map((output) => (output === null ? null : rename(output)));
        this.nodes.push({ ...node, name, origin: of, layer, phase, inputs, outputs });
      } else {
        this.nodes.push({
          ...node,
          name,
          origin: of,
          layer,
          phase,
          input: rename(node.input),
          output: rename(node.output),
        });
      }
    }
    return made;
  }

  private constant(value: ConstantTensor): string {
    const key = `${value.dtype}[${value.shape}]${Buffer.from(value.data).toString('base64')}`;
    const known = this.constantNames.get(key);
    if (known !== undefined) return known;
    const name = this.unused(`constant/${this.constants.size}`);
    this.constants.set(name, value);
    this.constantNames.set(key, name);
    this.declare(name, value, replicated(value.shape));
    return name;
  }

  private declare(
    name: string,
    type: { readonly dtype: ShardedTensor['dtype']; readonly shape: readonly number[] },
    layout: Layout,
  ): void {
    this.tensors.set(name, {
      dtype: type.dtype,
      shape: type.shape,
      layout,
      localShape: localShape(type.shape, layout, this.assignment.mesh),
    });
  }

  private get(name: string): ShardedTensor {
    const tensor = this.tensors.get(name);
    if (!tensor) throw new Error(`sharded graph has no tensor ${name}`);
    return tensor;
  }

  /** A name that neither the sharded graph nor a computed tensor of the unsharded one has. */
  private unused(name: string): string {
    const taken = (candidate: string) =>
      this.tensors.has(candidate) || (this.graph.tensors.has(candidate) && !this.graph.weights.has(candidate));
    let result = name;
    for (let ordinal = 1; taken(result); ordinal++) result = `${name}#${ordinal}`;
    return result;
  }

  private readonly ordinals = new Map<string, number>();

  private nextName(prefix: string): string {
    const ordinal = this.ordinals.get(prefix) ?? 0;
    this.ordinals.set(prefix, ordinal + 1);
    return ordinal === 0 ? prefix : `${prefix}/${ordinal}`;
  }
}

/** Reshards of a micro-batch's outputs are written last and run with the micro-batch. */
function microFirst(nodes: readonly ShardedNode[]): readonly ShardedNode[] {
  return [
    ...nodes.filter(({ phase }) => phase === 'begin'),
    ...nodes.filter(({ phase }) => !isOnceAStep(phase)),
    ...nodes.filter(({ phase }) => phase === 'update'),
  ];
}

/** Bytes of one rank's shard of a tensor. */
export function localBytes(tensor: ShardedTensor): number {
  return byteLength(tensor.dtype, elementCount(tensor.localShape));
}
