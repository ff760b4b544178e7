/**
 * @file Small models with quantised weights and activations (QuantizeLinear and DequantizeLinear around every operator), as
 * ONNX Runtime's quantiser writes them.
 */
import type { DType } from '../../src/ir/dtype.js';
import type { GraphProto, ModelProto, NodeProto, TensorProto } from '../../src/ir/onnx/schema.js';
import { type Given, model, node, tensor, value } from '../ir/model-maker.js';

/** Writes a quantised graph operator by operator; activations are named by the quantised tensor. */
class QuantisedGraph {
  readonly nodes: NodeProto[] = [];
  readonly initializers: TensorProto[] = [];
  private seed = 1;

  constructor(private readonly activations: DType) {}

  /** Activations as quantised numbers: `tensor` (floats) divided by `scale`. */
  quantise(floats: string, scale: number): string {
    const name = `${floats}.q`;
    this.nodes.push(node('QuantizeLinear', [floats, ...this.steps(name, [], [scale], this.activations)], [name]));
    return name;
  }

  /** A DequantizeLinear of its own for each reader, as the quantiser writes. */
  dequantise(name: string, readers = 1): readonly string[] {
    return Array.from({ length: readers }, (_, reader) => {
      const floats = `${name}.dq${reader}`;
      this.nodes.push(node('DequantizeLinear', [name, `${name}.scale`, `${name}.zero`], [floats]));
      return floats;
    });
  }

  /**
   * An int8 weight with a scale per slice of its first dimension, or one scale; dequantised. Its values have 7 bits: on CPUs
   * without VNNI, ONNX Runtime's integer kernels add pairs of products in 16 bit, which larger weights overflow.
   */
  weight(name: string, shape: readonly number[], perChannel: boolean): string {
    const count = shape.reduce((product, size) => product * size, 1);
    const [channels = 1] = shape;
    this.initializers.push(tensor(name, shape, this.draw(count, 63), 'int8'));
    const scales = perChannel ? this.draw(channels, 40).map((part) => 0.002 + Math.abs(part) / 10_000) : [0.004];
    const steps = this.steps(name, perChannel ? [channels] : [], scales, 'int8');
    this.nodes.push(node('DequantizeLinear', [name, ...steps], [`${name}.dq`], perChannel ? { axis: 0 } : {}));
    return `${name}.dq`;
  }

  /** A bias of int32, whose scale is the product of those of the data and the weight. */
  bias(name: string, data: string, weight: string, size: number): string {
    const scale = (of: string): readonly number[] => this.values.get(`${of}.scale`) ?? [1];
    const product = scale(weight).map((part) => part * (scale(data)[0] ?? 1));
    this.initializers.push(tensor(name, [size], this.draw(size, 4000), 'int32'));
    const steps = this.steps(name, product.length > 1 ? [size] : [], product, 'int32');
    this.nodes.push(node('DequantizeLinear', [name, ...steps], [`${name}.dq`], product.length > 1 ? { axis: 0 } : {}));
    return `${name}.dq`;
  }

  add(op: string, inputs: readonly string[], output: string, attributes: Readonly<Record<string, Given>> = {}): string {
    this.nodes.push(node(op, inputs, [output], attributes));
    return output;
  }

  model(graph: Pick<GraphProto, 'input' | 'output'>): ModelProto {
    return model({ ...graph, node: this.nodes, initializer: this.initializers }, 21, { ir_version: 10 });
  }

  private readonly values = new Map<string, readonly number[]>();

  private steps(name: string, shape: readonly number[], scales: readonly number[], dtype: DType): readonly string[] {
    const zero = dtype === 'uint8' ? 128 : 0;
    this.values.set(`${name}.scale`, scales);
    this.initializers.push(
      tensor(`${name}.scale`, shape, scales),
      tensor(
        `${name}.zero`,
        shape,
        scales.map(() => zero),
        dtype,
      ),
    );
    return [`${name}.scale`, `${name}.zero`];
  }

  /** Whole numbers of [-most, most], the same in every run. */
  private draw(count: number, most: number): readonly number[] {
    return Array.from({ length: count }, () => {
      this.seed = (this.seed * 48271) % 2147483647;
      return (this.seed % (2 * most + 1)) - most;
    });
  }
}

/** A quantised model, and the step of its output. */
export interface QuantisedModel {
  readonly name: string;
  readonly model: ModelProto;
  readonly step: number;
  /** Elements of its weights of int8. */
  readonly weightElements: number;
}

/** An inverted bottleneck: 1×1, depthwise 3×3 and 1×1 convolutions with scales per channel, and what skips them added. */
export function convolutions(activations: DType): QuantisedModel {
  const write = new QuantisedGraph(activations);
  const scale = activations === 'int16' ? 0.0004 : 0.05;
  const image = write.quantise('image', activations === 'int16' ? 0.0001 : 0.01);
  const [first = '', skipped = ''] = write.dequantise(image, 2);
  const wide = [write.weight('expand', [32, 16, 1, 1], true), write.bias('expand.bias', image, 'expand', 32)];
  const expanded = write.quantise(
    write.add('Relu', [write.add('Conv', [first, ...wide], 'expanded.sum')], 'expanded'),
    scale,
  );
  const deep = [
    write.weight('depthwise', [32, 1, 3, 3], true),
    write.bias('depthwise.bias', expanded, 'depthwise', 32),
  ];
  const windows = { group: 32, pads: [1, 1, 1, 1], kernel_shape: [3, 3] };
  const filtered = write.quantise(
    write.add('Conv', [...write.dequantise(expanded), ...deep], 'filtered', windows),
    scale,
  );
  const narrow = [write.weight('project', [16, 32, 1, 1], true), write.bias('project.bias', filtered, 'project', 16)];
  const projected = write.quantise(write.add('Conv', [...write.dequantise(filtered), ...narrow], 'projected'), scale);
  const sum = write.quantise(write.add('Add', [skipped, ...write.dequantise(projected)], 'sum'), scale);
  const [result = ''] = write.dequantise(sum);
  return {
    name: `convolutions, activations of ${activations}`,
    model: write.model({ input: [value('image', [2, 16, 8, 8])], output: [value(result, [2, 16, 8, 8])] }),
    step: scale,
    weightElements: 32 * 16 + 32 * 9 + 16 * 32,
  };
}

/** Two matmuls: one whose matrix is transposed with a scale per column and a bias, and one with a single scale. */
export function products(activations: DType): QuantisedModel {
  const write = new QuantisedGraph(activations);
  const scale = activations === 'int16' ? 0.0004 : 0.05;
  const rows = write.quantise('rows', activations === 'int16' ? 0.0001 : 0.01);
  const up = [write.weight('up', [64, 32], true), write.bias('up.bias', rows, 'up', 64)];
  const hidden = write.quantise(
    write.add('Relu', [write.add('Gemm', [...write.dequantise(rows), ...up], 'hidden.sum', { transB: 1 })], 'hidden'),
    scale,
  );
  const down = write.weight('down', [64, 32], false);
  const last = write.quantise(write.add('MatMul', [...write.dequantise(hidden), down], 'last'), scale);
  const [result = ''] = write.dequantise(last);
  return {
    name: `products, activations of ${activations}`,
    model: write.model({ input: [value('rows', [4, 32])], output: [value(result, [4, 32])] }),
    step: scale,
    weightElements: 2 * 64 * 32,
  };
}
