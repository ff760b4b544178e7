/**
 * @file Writing the operators of an update: element-wise arithmetic on tensors of one type, in the phase `update`, once per step.
 */
import type { DType } from '../dtype.js';
import type { Attributes, Graph, Node, StatePair, TensorType, Weight } from '../graph.js';
import { constant } from '../ops/constants.js';
import { unusedName } from '../unused-name.js';

/** What an operator of an update belongs to: a weight, or the optimizer as a whole. */
export interface Owner {
  readonly name: string;
  readonly layer: string | null;
  readonly module: readonly string[];
}

/** Grows a copy of a graph by updates and their state. */
export class UpdateWriter {
  private readonly nodes: Node[];
  private readonly tensors: Map<string, TensorType>;
  private readonly weights: Map<string, Weight>;
  private readonly state: StatePair[];
  private readonly scalars = new Map<string, string>();
  /** A truth value; where it is false state stays as it is. */
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
    const known = this.scalars.get(key);
    if (known !== undefined) return known;
    const name = unusedName(this.tensors, `update/constant/${this.scalars.size}`);
    const { data } = constant(dtype, [value], []);
    this.scalars.set(key, name);
    this.tensors.set(name, { dtype, shape: [] });
    this.weights.set(name, { dtype, shape: [], role: 'constant', source: { kind: 'inline', data } });
    return name;
  }

  /** A value that is kept from step to step: `initial` at first. `pair` says what it is in the next. */
  keep(wanted: string, type: TensorType, initial: Weight['source']): string {
    const name = unusedName(this.tensors, wanted);
    this.tensors.set(name, type);
    this.weights.set(name, { ...type, role: 'buffer', source: initial });
    return name;
  }

  /** From here on pairs hold for steps in which `condition` (a truth value, scalar) holds; in others state stays. */
  onlyWhere(condition: string): void {
    this.guard = condition;
  }

  /** In the next step `input` holds what `output` is in this one. */
  pair(input: string, output: string, owner: Owner): void {
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
    owner: Owner,
    op: string,
    inputs: readonly string[],
    type: TensorType = this.typeOf(inputs[0] ?? ''),
    attributes: Attributes = {},
  ): string {
    const name = unusedName(this.tensors, `${owner.name}/update/${op}`);
    this.tensors.set(name, type);
    this.nodes.push({
      name,
      op,
      domain: '',
      attributes,
      inputs,
      outputs: [name],
      module: owner.module,
      layer: owner.layer,
      scope: 'step',
      phase: 'update',
      group: name,
      body: null,
    });
    return name;
  }

  /** The graph with everything added; what is kept for the next step is among the outputs. */
  graph(): Graph {
    const outputs = [...new Set([...this.base.outputs, ...this.state.map(({ output }) => output)])];
    return {
      ...this.base,
      nodes: this.nodes,
      tensors: this.tensors,
      weights: this.weights,
      state: this.state,
      outputs,
    };
  }
}
