/**
 * @file Biases that PyTorch's exporter has dropped because they are zero: an operator of the traced program reads one, and the
 * operator in the file has none. Training updates them, so they are restored.
 */
import { byteLength } from '../dtype.js';
import type { Initializer, InputKind, OnnxModel, SourceNode } from '../onnx/model.js';
import { recordedReads } from './recorded.js';

export interface RestoredBiases {
  readonly nodes: readonly SourceNode[];
  readonly initializers: ReadonlyMap<string, Initializer>;
  readonly kinds: ReadonlyMap<string, InputKind>;
}

/** The number of biases that a kernel has, by operator. */
const CHANNELS: Readonly<Record<string, (node: SourceNode, shape: readonly number[]) => number | undefined>> = {
  Gemm: ({ attributes }, shape) => shape[attributes['transB'] === 1 ? 0 : 1],
  Conv: (_, shape) => shape[0],
  ConvTranspose: ({ attributes }, shape) =>
    (shape[1] ?? 0) * (typeof attributes['group'] === 'number' ? attributes['group'] : 1),
};

/** The operators with biases of zeros, and these as initializers that the exporter calls parameters. */
export function withDroppedBiases(model: OnnxModel, nodes: readonly SourceNode[]): RestoredBiases {
  const { initializers } = model.graph;
  const reads = recordedReads(model, nodes);
  const restored = new Map<string, Initializer>();
  const whole = nodes.map((node): SourceNode => {
    const [data, kernel, bias] = node.inputs;
    const held = initializers.get(kernel ?? '');
    const [name, ...others] = reads.get(node.traced ?? '')?.lacking ?? [];
    const channels = node.domain === '' && held && !bias ? CHANNELS[node.op]?.(node, held.shape) : undefined;
    if (!data || !kernel || !held || !channels || !name || others.length > 0) return node;
    const { dtype } = held;
    const bytes = new Uint8Array(byteLength(dtype, channels));
    restored.set(name, { dtype, shape: [channels], source: { kind: 'inline', data: bytes } });
    return { ...node, inputs: [data, kernel, name] };
  });
  return {
    nodes: whole,
    initializers: new Map([...initializers, ...restored]),
    kinds: new Map([...model.kinds, ...[...restored.keys()].map((name) => [name, 'parameter'] as const)]),
  };
}
