/**
 * @file Writing the operators of an update: arithmetic on scalars, and for each weight a region of elementwise arithmetic, in the
 * phase `update`, once per step.
 */
import { type DType, onnxOfDtype } from '../dtype.js';
import { REGION_DOMAIN } from '../fused-regions/fused-region.js';
import type { Attributes, Graph, Node, StatePair, TensorType, Weight } from '../graph.js';
import type { RegionKind } from '../operator.js';
import { constant, constantWeight } from '../ops/constants.js';
import { plainNode } from '../plain-node.js';
import { madeOnce } from '../remembered.js';
import { unusedName } from '../unused-name.js';

/** The owner of an operator of an update: a weight, or the optimizer as a whole. */
export interface UpdateOwner {
  readonly name: string;
  readonly layer: string | null;
  readonly module: readonly string[];
  /** The first operator that reads the weight. */
  readonly forward: string | null;
}

/** The owner of operators that belong to no weight. */
export const EVERYWHERE: UpdateOwner = { name: 'optimizer', layer: null, module: ['optimizer'], forward: null };

const UPDATE: RegionKind = 'OptimizerUpdate';

/** Adds updates and their state to a copy of a graph. */
export class UpdateWriter {
  private readonly nodes: Node[];
  private readonly tensors: Map<string, TensorType>;
  private readonly weights: Map<string, Weight>;
  private readonly state: StatePair[];
  private readonly scalars = new Map<string, string>();
  /** Tensors that only bodies of regions mention. */
  private readonly inside = new Set<string>();
  private readonly made = new Map<string, string>();
  private readonly regions = new Map<string, Node>();
  /** A boolean tensor; where it is false, state stays as it is. */
  private guard: string | null = null;

  constructor(private readonly base: Graph) {
    this.nodes = [...base.nodes];
    this.tensors = new Map(base.tensors);
    this.weights = new Map(base.weights);
    this.state = [...base.state];
  }

  typeOf(tensor: string): TensorType {
    const type = this.tensors.get(tensor);
    if (!type) throw new Error(`the update reads ${tensor}, which nothing makes`);
    return type;
  }

  /** A scalar constant, kept once per value and type. */
  scalar(dtype: DType, value: number): string {
    const key = `${dtype} ${value}`;
    return madeOnce(this.scalars, key, () => {
      const name = unusedName(this.tensors, `update/constant/${this.scalars.size}`);
      this.tensors.set(name, { dtype, shape: [] });
      this.weights.set(name, constantWeight(constant(dtype, [value])));
      return name;
    });
  }

  /** State that is kept from step to step: `initial` at first. `pair` sets its value in the next step. */
  keep(wanted: string, type: TensorType, initial: Weight['source']): string {
    const name = unusedName(this.tensors, wanted);
    this.tensors.set(name, type);
    // A weight's moments are shown as the weight is.
    const owner = this.weights.get(wanted.slice(0, wanted.lastIndexOf('/')));
    const like = owner?.file && owner.shape.join() === type.shape.join() ? owner.file : null;
    const file = like ? { file: { ...like, name, result: null } } : {};
    this.weights.set(name, { ...type, role: 'buffer', source: initial, ...file });
    return name;
  }

  /** From here on pairs apply in steps in which `condition` (a boolean scalar) is true; in others state stays. */
  onlyWhere(condition: string): void {
    this.guard = condition;
  }

  /** In the next step `input` holds the value of `output` in this one. */
  pair(input: string, output: string, owner: UpdateOwner): void {
    this.always(
      input,
      this.guard === null ? output : this.add(owner, 'Where', [this.guard, output, input], this.typeOf(input)),
    );
  }

  /** As `pair`, whatever `onlyWhere` says. */
  always(input: string, output: string): void {
    this.state.push({ input, output });
  }

  /** An operator of the update of `owner`. Its result has `type`, or that of its first operand. */
  add(
    owner: UpdateOwner,
    op: string,
    inputs: readonly string[],
    type: TensorType = this.typeOf(inputs[0] ?? ''),
    attributes: Attributes = {},
  ): string {
    const name = unusedName(this.tensors, `${owner.name}/update/${op}`);
    this.tensors.set(name, type);
    const { module, layer, forward } = owner;
    const place = { module, layer, phase: 'update', forward } as const;
    this.nodes.push(plainNode({ name, op, attributes, inputs, outputs: [name], ...place }));
    return name;
  }

  /** The tensor in another type; itself where it has that. */
  cast(owner: UpdateOwner, tensor: string, to: DType): string {
    const { dtype, shape } = this.typeOf(tensor);
    return dtype === to ? tensor : this.add(owner, 'Cast', [tensor], { dtype: to, shape }, { to: onnxOfDtype(to) });
  }

  /** A scalar that all updates read: made once for the same operands. Must be called before the region that reads it is begun. */
  shared(op: string, inputs: readonly string[], dtype: DType, attributes: Attributes = {}): string {
    const key = JSON.stringify([op, inputs, dtype, attributes]);
    return madeOnce(this.made, key, () => this.add(EVERYWHERE, op, inputs, { dtype, shape: [] }, attributes));
  }

  /**
   * One region of all operators that `write` adds, which read only each other, `operands` (as first inputs) and scalars. Its
   * results are the paired state, in the order of the operands that it replaces, then the tensors that `write` returns.
   */
  region(
    owner: UpdateOwner,
    attributes: Attributes,
    operands: readonly string[],
    write: () => readonly string[],
  ): void {
    const [firstNode, firstPair] = [this.nodes.length, this.state.length];
    const more = write();
    const nodes = this.nodes.splice(firstNode);
    const made = new Set(nodes.flatMap(({ outputs }) => outputs as readonly string[]));
    const read = new Set(nodes.flatMap((node) => node.inputs as readonly string[]).filter((name) => !made.has(name)));
    const constants = new Map([...read].flatMap((name) => this.scalarOf(name)));
    const inputs = [...new Set([...operands, ...read])].filter((name) => read.has(name) && !constants.has(name));
    const paired = new Map(this.state.slice(firstPair).map(({ input, output }) => [input, output]));
    const outputs = [...inputs.flatMap((input) => paired.get(input) ?? []), ...more];
    const body: Graph = {
      name: UPDATE,
      nodes,
      tensors: new Map([...read, ...made].map((name) => [name, this.typeOf(name)])),
      inputs,
      outputs,
      weights: constants,
      state: [],
      batch: [],
    };
    const leaves = new Set(outputs);
    for (const name of made) if (!leaves.has(name)) this.inside.add(name);
    const name = unusedName(this.regions, `${owner.name}/update`);
    const { module, layer, forward } = owner;
    const place = { module, layer, forward, phase: 'update' } as const;
    const node: Node = {
      ...{ ...place, name, op: UPDATE, domain: REGION_DOMAIN },
      ...{ attributes, inputs, outputs, group: name, body },
    };
    this.regions.set(name, node);
    this.nodes.push(node);
  }

  /** The graph with everything added; state for the next step is among the outputs. */
  graph(): Graph {
    const outputs = [...new Set([...this.base.outputs, ...this.state.map(({ output }) => output)])];
    const read = new Set(this.nodes.flatMap(({ inputs }) => inputs));
    const unread = [...this.scalars.values()].filter((name) => !read.has(name));
    const left = new Set([...this.inside, ...unread]);
    const stays = <Value>([name]: readonly [string, Value]) => !left.has(name);
    return {
      ...this.base,
      nodes: this.nodes,
      tensors: new Map([...this.tensors].filter(stays)),
      weights: new Map([...this.weights].filter(stays)),
      state: this.state,
      outputs,
    };
  }

  /** The scalar constant of this name, which moves into a body: devices have it in the kernel. Empty for other tensors. */
  private scalarOf(name: string): readonly (readonly [string, Weight])[] {
    const weight = this.weights.get(name);
    const isInline = weight?.role === 'constant' && weight.source.kind === 'inline';
    return isInline && weight.shape.length === 0 ? [[name, weight]] : [];
  }
}
