/**
 * @file A segment: consecutive operators of one layer as a plain ONNX model over local shapes. Names inside are canonical
 * and small replicated constants are part of it, so that its identity is its structure: equal layers share one file.
 */
import { createHash } from 'node:crypto';
import type { Graph, Node, TensorType, Weight } from '../ir/graph.js';
import { writeOnnx } from '../ir/onnx/writer.js';
import { graphInPlainOperators } from '../ir/onnx/written-out.js';
import { structureOf } from '../ir/structure-key.js';
import type { PlacedInstruction } from '../partition/place-moves.js';
import { textOf } from '../partition/segments.js';
import type { ShardedGraph } from '../partition/sharded-graph.js';
import type { ProgramNode } from '../program/program.js';

export interface Segment {
  readonly model: Uint8Array;
  /** The same in plainer operators; null where the registry has no expansion. */
  readonly plain: () => Uint8Array | null;
  /** SHA-256 of `model`, in hex. */
  readonly sha256: string;
  /** Tensors of the sharded graph behind the model's inputs, weights and outputs, in order; and their names inside. */
  readonly inputs: readonly Binding[];
  readonly weights: readonly Binding[];
  readonly outputs: readonly Binding[];
  /** Most bytes of results that only the segment reads. */
  readonly temporaryBytes: number;
  readonly flops: number;
  readonly operators: readonly string[];
  /** The model's nodes behind its operators, in their order. */
  readonly nodes: readonly ProgramNode[];
}

export interface Binding {
  readonly tensor: string;
  readonly inside: string;
}

/** The context of a segment for codegen: the tensors around it. */
export interface SegmentContext {
  readonly graph: ShardedGraph;
  /** Weights that are not part of the segment's structure: their shards are bound when it is loaded. */
  readonly bound: ReadonlySet<string>;
  /** Values that are part of the structure. */
  readonly inline: ReadonlyMap<string, Uint8Array>;
  /** Models so far, by structure: those of equal layers are written once. */
  readonly models: Map<string, Pick<Segment, 'model' | 'sha256'>>;
}

/** Builds the ONNX model of a run of compute nodes. */
export function makeSegment(
  { nodes, results }: Extract<PlacedInstruction, { readonly kind: 'segment' }>,
  around: SegmentContext,
): Segment {
  const names = new Map<string, string>();
  const inputs: Binding[] = [];
  const weights: Binding[] = [];
  const types = new Map<string, TensorType>();
  const graphWeights = new Map<string, Weight>();
  const localType = (tensor: string): TensorType => {
    const type = around.graph.tensors.get(tensor);
    if (!type) throw new Error(`sharded graph has no tensor ${tensor}`);
    return { dtype: type.dtype, shape: type.localShape };
  };
  const declare = (tensor: string, prefix: string): string => {
    const inside = `${prefix}${names.size}`;
    names.set(tensor, inside);
    types.set(inside, localType(tensor));
    return inside;
  };
  const read = (tensor: string): string => {
    const known = names.get(tensor);
    if (known !== undefined) return known;
    const value = around.inline.get(tensor);
    const inside = declare(tensor, value || around.bound.has(tensor) ? 'w' : 'i');
    const type = localType(tensor);
    if (value) graphWeights.set(inside, { ...type, source: { kind: 'inline', data: value }, role: 'constant' });
    else if (around.bound.has(tensor)) {
      graphWeights.set(inside, { ...type, source: { kind: 'absent' }, role: 'parameter' });
      weights.push({ tensor, inside });
    } else inputs.push({ tensor, inside });
    return inside;
  };
  const inner: Node[] = nodes.map((node, index) => ({
    name: `${node.op}_${index}`,
    op: node.op,
    domain: node.domain,
    attributes: node.attributes,
    inputs: node.inputs.map((input) => (input === null ? null : read(input))),
    // ONNX Runtime crashes on some operators whose unused results have no name.
    outputs: node.outputs.map((output, position) => (output === null ? `u${index}_${position}` : declare(output, 't'))),
    module: [],
    layer: null,
    phase: node.phase,
    forward: null,
    group: `${node.op}_${index}`,
    body: null,
  }));
  const outputs = results.outputs.map((tensor) => ({ tensor, inside: names.get(tensor) as string }));
  const graph: Graph = {
    name: 'segment',
    nodes: inner,
    tensors: types,
    inputs: inputs.map((input) => input.inside),
    outputs: outputs.map((output) => output.inside),
    weights: graphWeights,
    state: [],
    batch: [],
    ...(around.graph.domains ? { domains: around.graph.domains } : {}),
  };
  const describe = (inside: string) => {
    const source = graphWeights.get(inside)?.source;
    return [types.get(inside), source?.kind === 'inline' ? textOf(source.data) : (source?.kind ?? null)];
  };
  const { key: structure } = structureOf(inner, describe, { outputs: graph.outputs });
  const known = around.models.get(structure) ?? modelOf(graph);
  around.models.set(structure, known);
  return {
    ...known,
    plain: () => {
      const written = graphInPlainOperators(graph);
      return written && writeOnnx(written, { weights: 'external' });
    },
    inputs,
    weights,
    outputs,
    temporaryBytes: results.insideBytes,
    flops: nodes.reduce((sum, node) => sum + node.flops, 0),
    operators: [...new Set(nodes.map((node) => node.op))].sort(),
    nodes: nodes.map((node) => ({
      name: node.origin,
      op: node.domain === '' ? node.op : `${node.domain}.${node.op}`,
      dtypes: [
        ...new Set(
          [...node.inputs, ...node.outputs].flatMap((tensor) => (tensor === null ? [] : [localType(tensor).dtype])),
        ),
      ],
    })),
  };
}

function modelOf(graph: Graph): Pick<Segment, 'model' | 'sha256'> {
  const model = writeOnnx(graph, { weights: 'external' });
  return { model, sha256: createHash('sha256').update(model).digest('hex') };
}
