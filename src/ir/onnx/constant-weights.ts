/**
 * @file Weights that a file has as Constant nodes become initializers. paddle2onnx writes all of them so, and without this such a
 * model would have literals and nothing to train.
 */
import { dtypeOfOnnx, isFloating } from '../dtype.js';
import type { ModelProto, NodeProto, TensorProto } from './schema.js';
import { integerOf } from './tensors.js';

/**
 * The model with floating tensors of Constant nodes as initializers, where it holds no other weights. PyTorch's exporters write
 * parameters as initializers: Constant nodes of their files are literals.
 */
export function withConstantWeights(model: ModelProto): ModelProto {
  const { graph, producer_name: producer = '', ir_version: version } = model;
  const held = graph?.initializer ?? [];
  // Before IR 4 every initializer was an input too.
  if (!graph || integerOf(version) < 4 || producer.startsWith('pytorch') || held.some(isWeight)) return model;
  const weights = new Map((graph.node ?? []).flatMap((node) => weightOf(node) ?? []).map((own) => [own.name, own]));
  if (weights.size === 0) return model;
  const node = (graph.node ?? []).filter(({ op_type: op, output }) => op !== 'Constant' || !weights.has(output?.[0]));
  return { ...model, graph: { ...graph, node, initializer: [...held, ...weights.values()] } };
}

/** The tensor of a Constant node under the name of its result; null for other nodes and other constants. */
function weightOf({ op_type: op, domain = '', attribute = [], output = [] }: NodeProto): TensorProto | null {
  const [name] = output;
  if (op !== 'Constant' || (domain !== '' && domain !== 'ai.onnx') || !name) return null;
  const tensor = attribute.find((own) => own.name === 'value')?.t;
  return tensor && isWeight(tensor) ? { ...tensor, name } : null;
}

/** Whether a tensor may be a weight: of floating numbers, and not a single one. */
function isWeight({ data_type: type = 0, dims = [] }: TensorProto): boolean {
  const dtype = dtypeOfOnnx(type);
  return dtype !== undefined && isFloating(dtype) && dims.length > 0;
}
