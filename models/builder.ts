/**
 * @file Builds graphs operator by operator, as an exporter would: nodes named by their module path, types inferred by the
 * registry, weights drawn from a seeded generator that gives the same bytes on every machine.
 */
import type { DType } from '../src/ir/dtype.js';
import type { Attributes, ConstantTensor, Graph, Node, TensorType, Weight } from '../src/ir/graph.js';
import { operatorOf } from '../src/ir/operator-of.js';
import { constant, numbersOf } from '../src/ir/ops/constants.js';
import { entryOf } from '../src/ir/ops/index.js';

/** Builds one graph; `build` returns it. */
export class GraphBuilder {
  private readonly nodes: Node[] = [];
  private readonly tensors = new Map<string, TensorType>();
  private readonly inputs: string[] = [];
  private readonly outputs: string[] = [];
  private readonly weights = new Map<string, Weight>();
  private readonly path: string[] = [];
  private readonly uniform = new Map<string, string>();
  private readonly ordinals = new Map<string, number>();
  private readonly random: () => number;

  /** @param values `absent`: parameters have no values, as planning needs none; then a model of any size is small. */
  constructor(
    private readonly name: string,
    seed: number,
    /** `absent`: weights have no values. `exported`: parameters of equal values are stored once, shared ones twice. */
    private readonly values: 'random' | 'absent' | 'exported' = 'random',
  ) {
    this.random = evenly(seed);
  }

  /** A data input; returns its name. */
  input(name: string, dtype: DType, shape: readonly number[]): string {
    this.tensors.set(name, { dtype, shape });
    this.inputs.push(name);
    return name;
  }

  /** Everything that `body` adds belongs to the module `step` of the current one. */
  within<Result>(step: string, body: () => Result): Result {
    this.path.push(step);
    const result = body();
    this.path.pop();
    return result;
  }

  /** A float32 parameter of the current module: roughly normal around `mean` with the deviation given. */
  parameter(name: string, shape: readonly number[], { mean = 0, deviation = 0.2 } = {}): string {
    const full = [...this.path, name].join('.');
    if (this.values === 'absent') return this.absent(full, shape, 'parameter');
    const count = shape.reduce((product, size) => product * size, 1);
    const values = Array.from({ length: count }, () => mean + deviation * this.normal());
    return this.addWeight(full, constant('float32', values, shape), 'parameter');
  }

  /** A float32 table that is not a parameter (angles of positions): computed only if parameters have values. */
  table(name: string, shape: readonly number[], values: () => readonly number[]): string {
    const full = [...this.path, name].join('.');
    if (this.values === 'absent') return this.absent(full, shape, 'buffer');
    return this.addWeight(full, constant('float32', values(), shape), 'buffer');
  }

  /**
   * A float32 parameter with one initial value throughout. As exporters write it, all parameters of one value and shape are the
   * first of them, whatever module they belong to.
   */
  uniformParameter(name: string, shape: readonly number[], value: number): string {
    const key = `${value} [${shape}]`;
    const first = this.values === 'exported' ? this.uniform.get(key) : undefined;
    if (first !== undefined) return first;
    const values = Array.from({ length: shape.reduce((product, size) => product * size, 1) }, () => value);
    const made = this.addWeight([...this.path, name].join('.'), constant('float32', values, shape), 'parameter');
    this.uniform.set(key, made);
    return made;
  }

  /** The transpose of another module's parameter; as exporters write it, a copy of its values named `name`. */
  transposed(name: string, of: string): string {
    if (this.values !== 'exported') return this.operator('Transpose', [of], { perm: [1, 0] });
    const weight = this.weights.get(of);
    const [rows = 1, columns = 1] = weight?.shape ?? [];
    if (weight?.source.kind !== 'inline') throw new Error(`no weight ${of} with values`);
    const values = numbersOf({ ...weight, data: weight.source.data });
    const turned = Array.from(
      { length: rows * columns },
      (_, at) => values[(at % rows) * columns + Math.floor(at / rows)] ?? 0,
    );
    const copy = constant(weight.dtype, turned, [columns, rows]);
    return this.addWeight([...this.path, name].join('.'), copy, 'parameter');
  }

  /** A float32 scalar, stored once per value. */
  scalar(value: number): string {
    const name = `scalar.${value}`;
    return this.tensors.has(name) ? name : this.addWeight(name, floats([value]), 'constant');
  }

  /** A value that is baked into the model: a table, a mask, a scalar. */
  constant(name: string, value: ConstantTensor): string {
    return this.addWeight([...this.path, name].join('.'), value, 'constant');
  }

  /** Adds an operator with one result; returns the result's name. */
  operator(op: string, inputs: readonly (string | null)[], attributes: Attributes = {}): string {
    return this.operators(op, inputs, attributes, 1)[0] as string;
  }

  /** Adds an operator with several results, of ONNX's own domain where none is named; returns their names. */
  operators(
    op: string,
    inputs: readonly (string | null)[],
    attributes: Attributes,
    results: number,
    domain = '',
  ): readonly string[] {
    const name = this.nodeName(op);
    const outputs = Array.from({ length: results }, (_, index) => `${name}_output${index === 0 ? '' : `_${index}`}`);
    const node: Node = {
      name,
      op,
      domain,
      attributes,
      inputs,
      outputs,
      module: [...this.path],
      layer: null,
      phase: 'forward',
      forward: null,
      group: name,
      body: null,
    };
    const types = entryOf(op, domain)?.infer(operatorOf({ tensors: this.tensors }, node)) ?? [];
    this.nodes.push(node);
    for (const [index, output] of outputs.entries()) {
      const type = types[index];
      if (!type) throw new Error(`the registry infers no result ${index} for ${op}`);
      this.tensors.set(output, type);
    }
    return outputs;
  }

  /** Makes a tensor a graph output under the name given. */
  output(name: string, tensor: string): void {
    const producer = this.nodes.findIndex(({ outputs }) => outputs.includes(tensor));
    const node = this.nodes[producer];
    const type = this.tensors.get(tensor);
    if (!node || !type) throw new Error(`no operator computes ${tensor}`);
    const rename = (names: readonly (string | null)[]) => names.map((item) => (item === tensor ? name : item));
    for (const [index, item] of this.nodes.entries()) {
      this.nodes[index] = { ...item, inputs: rename(item.inputs), outputs: rename(item.outputs) };
    }
    this.tensors.delete(tensor);
    this.tensors.set(name, type);
    this.outputs.push(name);
  }

  /** The sizes of a tensor that was added. */
  shapeOf(tensor: string): readonly number[] {
    const type = this.tensors.get(tensor);
    if (!type) throw new Error(`no tensor ${tensor}`);
    return type.shape;
  }

  build(): Graph {
    return {
      name: this.name,
      nodes: this.nodes,
      tensors: this.tensors,
      inputs: this.inputs,
      outputs: this.outputs,
      weights: this.weights,
      state: [],
      batch: this.inputs.map((input) => ({ input, axis: 0 })),
    };
  }

  private addWeight(name: string, value: ConstantTensor, role: Weight['role']): string {
    const { dtype, shape, data } = value;
    if (this.tensors.has(name)) throw new Error(`two weights are named ${name}`);
    this.tensors.set(name, { dtype, shape });
    this.weights.set(name, { dtype, shape, role, source: { kind: 'inline', data } });
    return name;
  }

  private absent(name: string, shape: readonly number[], role: Weight['role']): string {
    if (this.tensors.has(name)) throw new Error(`two weights are named ${name}`);
    this.tensors.set(name, { dtype: 'float32', shape });
    this.weights.set(name, { dtype: 'float32', shape, role, source: { kind: 'absent' } });
    return name;
  }

  /** `/layers.0/self_attn/q_proj/MatMul`, and `MatMul_1` for the second one of a module. */
  private nodeName(op: string): string {
    const stem = `/${[...this.path, op].join('/')}`;
    const ordinal = this.ordinals.get(stem) ?? 0;
    this.ordinals.set(stem, ordinal + 1);
    return ordinal === 0 ? stem : `${stem}_${ordinal}`;
  }

  /** The sum of twelve uniform numbers, less six: only additions, so that no libm can change a bit. */
  private normal(): number {
    let sum = -6;
    for (let count = 0; count < 12; count++) sum += this.random();
    return sum;
  }
}

/** Dropout as exporters write it for evaluation: an operator without effect. */
export function dropout(builder: GraphBuilder, input: string, ratio: number): string {
  return builder.within('dropout', () => builder.operator('Dropout', [input, builder.scalar(ratio)]));
}

/** Scalars and small tables of float32. */
export function floats(values: readonly number[], shape: readonly number[] = []): ConstantTensor {
  return constant('float32', values, shape);
}

/** Uniform numbers in [0, 1) from a 32-bit state (mulberry32). */
function evenly(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), bits | 61)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}
