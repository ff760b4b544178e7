/**
 * @file Loops whose number of iterations is known before the run become their bodies, one after another:
 *
 *     Loop(M, cond, v)     v₁, s₁ = body(0, true, v)   v₂, s₂ = body(1, true, v₁)   …   s = [s₁, s₂, …]
 *
 * A Loop ends by its trip count or by its condition, whichever comes first; both may be computed, as long as they follow
 * from constants. Each body is resolved before the next one, so that the condition it leaves is known.
 */
import type { AutoparError } from '../error.js';
import type { TensorType } from '../graph.js';
import { makersOf } from '../makers-and-readers.js';
import type { SourceNode } from '../onnx/model.js';
import { iterationStep } from '../onnx/module-path.js';
import { constant, numbersOf } from '../ops/constants.js';
import type { Rewrite, RewriteContext } from './rewrite.js';
import { bodyOf, instantiate, nodeCount, refusedControl, type SubgraphBody } from './subgraph-body.js';
import { checkLength, countUnrolled } from './unroll-limit.js';

export const unrollLoop: Rewrite = async (node, context) => {
  const body = await bodyOf(node, 'body', context);
  const initial = node.inputs.slice(2);
  checkBody(body, 2 + initial.length, 1 + initial.length, context);
  const trips = await tripCount(node, context);
  let condition = node.inputs[1] ?? null;
  if (endsByCount(body) && (await goesOn(condition, 0, body, context)))
    checkLength(node, trips, nodeCount(body.graph), context);
  const scanned = body.graph.outputs.slice(1 + initial.length).map((): string[] => []);
  let carried: readonly (string | null)[] = initial;
  for (let iteration = 0; iteration < trips; iteration++) {
    if (!(await goesOn(condition, iteration, body, context))) break;
    const results = await runIteration(body, iteration, loopBindings(body, iteration, carried, context), context);
    condition = results[0] ?? null;
    carried = results.slice(1, 1 + initial.length);
    results.slice(1 + initial.length).forEach((name, index) => {
      scanned[index]?.push(name);
    });
  }
  nameResults(node, carried, context);
  for (const [index, names] of scanned.entries()) {
    const position = initial.length + index;
    const bindings = (): readonly (string | null)[] => loopBindings(body, 0, initial, context);
    if (names.length > 0) await stack(node, position, names, 0, context);
    else await stackNothing(body, position, 1 + position, 0, bindings, context);
  }
  return [];
};

/** SequenceMap: the body once per element. Operands are sequences of equal length, or tensors that every element sees. */
export const unrollSequenceMap: Rewrite = async (node, context) => {
  const body = await bodyOf(node, 'body', context);
  checkBody(body, node.inputs.length, node.outputs.length, context);
  const operands = node.inputs.map((name) => (name === null ? null : context.elementsOf(name)));
  const length = operands[0]?.length;
  if (length === undefined) throw refusedControl(node, context, 'needs a sequence whose length is known');
  checkLength(node, length, nodeCount(body.graph), context);
  const mapped = body.graph.outputs.map((): string[] => []);
  for (let index = 0; index < length; index++) {
    const bindings = node.inputs.map((name, operand) => {
      const elements = operands[operand];
      return elements ? (elements[index] ?? null) : name;
    });
    const results = await runIteration(body, index, bindings, context);
    results.forEach((name, output) => {
      mapped[output]?.push(name);
    });
  }
  mapped.forEach((names, output) => {
    const name = node.outputs[output];
    if (name) context.sequence(name, names);
  });
  return [];
};

/** Inserts the body once more and resolves it; returns the names of its results. */
export async function runIteration(
  body: SubgraphBody,
  iteration: number,
  bindings: readonly (string | null)[],
  context: RewriteContext,
): Promise<readonly string[]> {
  const { node } = body;
  countUnrolled(node, nodeCount(body.graph), `is at iteration ${iteration}`, context);
  const step = iterationStep((node.name || node.op).split('/').at(-1) ?? node.op, iteration);
  const { nodes, results } = instantiate(body, context.prefix(`${body.prefix}/${iteration}`), bindings, context, [
    ...node.module,
    step,
  ]);
  await context.resolve(nodes);
  return results;
}

/** Throws where the body takes another number of values than the operator passes to it, or makes too few. */
export function checkBody({ node, graph }: SubgraphBody, takes: number, makes: number, context: RewriteContext): void {
  if (graph.inputs.length === takes && graph.outputs.length >= makes) return;
  throw refusedControl(
    node,
    context,
    `needs a body of ${takes} inputs and ${makes} outputs, but has one of ${graph.inputs.length} and ${graph.outputs.length}`,
    'the file is damaged or was edited; export the model again',
  );
}

/** The results of the operator get the names that the file gives them. */
export function nameResults(node: SourceNode, results: readonly (string | null)[], context: RewriteContext): void {
  results.forEach((result, index) => {
    const name = node.outputs[index];
    if (!name) return;
    if (result === null) context.absent(name);
    else context.alias(name, result);
  });
}

/** An output of the operator: the values named, joined along a new dimension. `axis` counts it. */
export async function stack(
  node: SourceNode,
  output: number,
  names: readonly string[],
  axis: number,
  context: RewriteContext,
): Promise<void> {
  const name = node.outputs[output];
  if (!name) return;
  const prefix = context.prefix(name);
  const raised = names.map((_, index) => `${prefix}/${index}`);
  const unsqueezed = names.map((value, index) =>
    plain(node, 'Unsqueeze', { axes: [axis] }, [value], [raised[index] ?? '']),
  );
  await context.resolve([...unsqueezed, plain(node, 'Concat', { axis }, raised, [name])]);
}

/** An output of an operator that never runs its body: no elements of the type that the body would have made. */
export async function stackNothing(
  body: SubgraphBody,
  output: number,
  result: number,
  axis: number,
  bindings: () => readonly (string | null)[],
  context: RewriteContext,
): Promise<void> {
  const name = body.node.outputs[output];
  if (!name) return;
  const { dtype, shape } = declaredType(body, result) ?? (await trialType(body, result, bindings(), context));
  const empty = shape.toSpliced(axis < 0 ? axis + shape.length + 1 : axis, 0, 0);
  context.alias(name, context.literal(`${name}/none`, { dtype, shape: empty, data: new Uint8Array(0) }));
}

function declaredType({ graph }: SubgraphBody, result: number): TensorType | null {
  const { dtype = null, shape = null } = graph.outputs[result] ?? {};
  const sizes = shape?.filter((size) => typeof size === 'number') ?? [];
  return dtype !== null && shape !== null && sizes.length === shape.length ? { dtype, shape: sizes } : null;
}

/** The type of a result, from an iteration that nothing reads and that is therefore dropped. */
async function trialType(
  body: SubgraphBody,
  result: number,
  bindings: readonly (string | null)[],
  context: RewriteContext,
): Promise<TensorType> {
  const results = await runIteration(body, 0, bindings, context);
  return context.typeOf(results[result] ?? '');
}

/** A node of ONNX's own domain in the place of `node`. */
export function plain(
  node: SourceNode,
  op: string,
  attributes: SourceNode['attributes'],
  inputs: readonly (string | null)[],
  outputs: readonly string[],
): SourceNode {
  return { ...node, name: outputs[0] ?? '', op, domain: '', attributes, inputs, outputs };
}

async function tripCount(node: SourceNode, context: RewriteContext): Promise<number> {
  const [name] = node.inputs;
  if (!name) return Infinity;
  const value = await context.valueOf(name);
  if (value) return Math.max(0, numbersOf(value)[0] ?? 0);
  throw dependent(node, context, 'runs for a number of iterations that depends on the data');
}

/** Whether the iteration takes place. */
async function goesOn(
  condition: string | null,
  iteration: number,
  { node }: SubgraphBody,
  context: RewriteContext,
): Promise<boolean> {
  if (condition === null) return true;
  const value = await context.valueOf(condition);
  if (value) return value.data[0] !== 0;
  const when = iteration === 0 ? '' : ` after iteration ${iteration - 1}`;
  throw dependent(node, context, `has a condition that depends on the data${when}`);
}

/** Whether the body leaves the condition as it is, so that only the trip count ends the loop. */
function endsByCount({ graph }: SubgraphBody): boolean {
  const makers = makersOf(graph.nodes);
  let name = graph.outputs[0]?.name ?? '';
  for (let steps = 0; steps <= graph.nodes.length; steps++) {
    const maker = makers.get(name);
    if (!maker) break;
    if (maker.op === 'Constant') return true;
    if (maker.op !== 'Identity') return false;
    name = maker.inputs[0] ?? '';
  }
  const input = graph.inputs.findIndex((value) => value.name === name);
  return input === 1 || input < 0;
}

/** The inputs of an iteration: its number, a condition that is true, and the carried values. */
function loopBindings(
  { graph, prefix }: SubgraphBody,
  iteration: number,
  carried: readonly (string | null)[],
  context: RewriteContext,
): readonly (string | null)[] {
  const scalar = (index: number): readonly number[] => (graph.inputs[index]?.shape?.length === 1 ? [1] : []);
  return [
    context.literal(`${prefix}/iteration`, constant('int64', [iteration], scalar(0))),
    context.literal(`${prefix}/condition`, constant('bool', [1], scalar(1))),
    ...carried,
  ];
}

function dependent(node: SourceNode, context: RewriteContext, why: string): AutoparError {
  return refusedControl(
    node,
    context,
    `${why}, which a static plan cannot follow`,
    'make it a constant: bind dimensions with --dim, give an input with --const, or export with the loop unrolled',
  );
}
