/**
 * @file Gradients of fused regions, as regions: one node whose body recomputes the activations that the forward did not store,
 * so that tensors inside of fused kernels are never alive between forward and backward.
 *
 *     attention        q, k, v, its result, two numbers a row (saved-rows.ts)   FlashAttention-2's backward (Dao 2023)
 *     normalisation    data, scale, and the statistics where it has them as results
 *     GELU, SwiGLU     their operands
 *     rotary           the angles: a rotation back
 *     loss             logits and labels
 *
 * An operator that is such a region by itself has its registry entry's gradient as the body.
 */
import { REGION_DOMAIN } from '../fused-regions/fused-region.js';
import { rememberedRule } from '../fused-regions/remembered-rule.js';
import { elementCount, type Graph, type Node, type TensorType, type Weight } from '../graph.js';
import { needed } from '../needed.js';
import { isDifferentiable } from '../operator.js';
import { operatorEntry } from '../ops/index.js';
import { unusedName } from '../unused-name.js';
import { backpropagate, type RegionGradient, type RegionRequest } from './backpropagation.js';
import { type Pieces, rowsGradient, type SavedRows, savedRows, sinkGradient, withoutSoftmax } from './saved-rows.js';

/**
 * The gradient of a region; null for operators that are not regions. Where the operators of the gradient split dimensions in ways
 * that do not nest, these operators are returned instead of one node.
 */
export function regionGradient(request: RegionRequest): RegionGradient | null {
  const { node, results, wanted } = request;
  const entry = operatorEntry(node);
  const kind = entry.region;
  if (!kind || (node.body === null && !isDifferentiable(entry))) return null;
  const name = unusedName(request.tensors, `${node.name}/gradient`);
  const rows = node.body && kind === 'Attention' ? savedRows(node, node.body, name) : null;
  const inner = node.body
    ? again(request, node.body, name, rows)
    : { ...shell(request), nodes: [{ ...node, name: `${name}/inside` }] };
  const read = node.inputs.map((input, operand) => (wanted[operand] ? input : null));
  const made = backpropagate(inner, {
    seeds: new Map(
      inner.outputs.flatMap((output, index) => (results[index] ? [[output, results[index]] as const] : [])),
    ),
    wanted: [...new Set(read.filter((input) => input !== null))],
    prefix: `${name}/`,
    taken: request.tensors,
    own: (item) =>
      rows && item.name === rows.softmax ? (operator) => rowsGradient(operator, rows, results[0] ?? null) : undefined,
  });
  const pieces: Pieces = { ...made, nodes: node.body ? [...made.forward, ...made.nodes] : made.nodes };
  const written = rows ? withoutSoftmax(pieces, rows) : pieces;
  const region = asRegion(request, `${kind}Gradient`, name, written, made.gradients, rows);
  return rows?.sink ? withSink(request, region, rows) : region;
}

/** The gradient with that of the attention sink, which is not part of the region. */
function withSink(
  { node, wanted, results, tensors }: RegionRequest,
  region: RegionGradient,
  rows: SavedRows,
): RegionGradient {
  const place = node.inputs.indexOf(rows.sink);
  const [resultGradient] = results;
  if (!wanted[place] || !resultGradient) return region;
  const near: Node = { ...node, phase: 'backward-weight', forward: node.name };
  const made = sinkGradient(rows, resultGradient, new Map([...tensors, ...region.tensors]), near);
  return {
    ...region,
    nodes: [...region.nodes, ...made.nodes],
    tensors: new Map([...region.tensors, ...made.tensors]),
    gradients: region.gradients.map((gradient, index) => (index === place ? made.gradient : gradient)),
  };
}

/** A graph without operators, with the types and constants around a region. */
function shell({ node, results, tensors, weights }: RegionRequest): Graph {
  const names = [...node.inputs, ...node.outputs, ...results].filter((name) => name !== null);
  return {
    name: node.name,
    nodes: [],
    tensors: new Map(names.flatMap((name) => [[name, tensors.get(name) as TensorType] as const])),
    weights: new Map(
      names.flatMap((name) => (weights.has(name) ? [[name, weights.get(name) as Weight] as const] : [])),
    ),
    inputs: node.inputs.filter((name) => name !== null),
    outputs: node.outputs.map((output) => output ?? ''),
    state: [],
    batch: [],
  };
}

/** The region's operators once more, under new names; from outside they read the operands of the region. */
function again(request: RegionRequest, body: Graph, name: string, rows: SavedRows | null): Graph {
  const { node } = request;
  const around = shell(request);
  const nodes = rows?.nodes ?? body.nodes;
  const made = new Set(nodes.flatMap((inner) => inner.outputs));
  const renamed = (tensor: string | null) => (tensor !== null && made.has(tensor) ? `${name}/${tensor}` : tensor);
  const tensors = new Map([...around.tensors, ...(rows?.tensors ?? [])]);
  for (const [tensor, type] of body.tensors) tensors.set(renamed(tensor) ?? tensor, type);
  return {
    ...around,
    nodes: nodes.map((inner) => ({
      ...inner,
      name: `${name}/${inner.name}`,
      inputs: inner.inputs.map(renamed),
      outputs: inner.outputs.map(renamed),
      module: node.module,
    })),
    tensors,
    weights: new Map([...around.weights, ...body.weights]),
    outputs: body.outputs.map((output) => renamed(output) ?? output),
  };
}

/** The operators that lead to the gradients as one node, or as they are. */
function asRegion(
  { node, wanted, tensors: outside }: RegionRequest,
  kind: string,
  name: string,
  made: Pieces,
  gradientOf: ReadonlyMap<string, string>,
  rows: SavedRows | null,
): RegionGradient {
  const all = made.tensors;
  const found = node.inputs.map((input, operand) => (wanted[operand] ? (gradientOf.get(input ?? '') ?? null) : null));
  const ends = new Set(found.filter((tensor) => tensor !== null));
  const { layer, module } = node;
  const place = { layer, module, phase: 'backward-weight' as const, forward: node.name };
  const nodes = needed(made.nodes, ends).map((inner) => ({ ...inner, ...place, group: inner.name }));
  const produced = new Set(nodes.flatMap((inner) => inner.outputs));
  const read = new Set(nodes.flatMap((inner) => inner.inputs).filter((item) => item !== null && !produced.has(item)));
  const constants = new Map([...made.weights].filter(([item]) => read.has(item) && !outside.has(item)));
  const named = [...node.inputs, ...(rows?.forward ?? node).outputs].filter((item) => item !== null && read.has(item));
  const inputs = [...new Set([...named, ...read])].filter((item) => item !== null && !constants.has(item)) as string[];
  const outputs = [...ends].filter((item) => produced.has(item));
  const types = (names: Iterable<string | null>) =>
    new Map(
      [...names].flatMap((item) => (item === null || !all.has(item) ? [] : [[item, all.get(item) as TensorType]])),
    );
  const body: Graph = {
    name: kind,
    nodes,
    tensors: types([...read, ...produced]),
    inputs,
    outputs,
    weights: constants,
    state: [],
    batch: [],
  };
  // An operand that is read twice gets one gradient.
  const seen = new Set<string | null>();
  const gradients = found.map((tensor, operand) => {
    const input = node.inputs[operand] ?? null;
    const first = !seen.has(input);
    seen.add(input);
    return first ? tensor : null;
  });
  const forward = rows?.forward ?? null;
  const saved = types(rows?.forward.outputs.slice(node.outputs.length) ?? []);
  if (!standsAlone(kind, body))
    return {
      forward,
      nodes,
      tensors: types([...produced, ...saved.keys(), ...constants.keys()]),
      weights: constants,
      gradients,
    };
  const region: Node = {
    name,
    op: kind,
    domain: REGION_DOMAIN,
    attributes: node.body ? node.attributes : {},
    inputs,
    outputs,
    differentiated: outputs.map((item) => found.indexOf(item)),
    ...place,
    group: name,
    body,
  };
  return { forward, nodes: [region], tensors: types([...outputs, ...saved.keys()]), weights: new Map(), gradients };
}

function standsAlone(kind: string, body: Graph): boolean {
  if (body.nodes.length < 2) return false;
  if ([...body.weights.values()].some(({ shape }) => elementCount(shape) !== 1)) return false;
  return ruleOfBody(kind, body) !== null;
}

const ruleOfBody = rememberedRule((op, domain) => operatorEntry({ op, domain }));
