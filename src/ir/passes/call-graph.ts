/**
 * @file Which functions call which: the size of a model after inlining, known before it is done. Twenty functions that
 * call the next one twice are a million nodes; one that calls itself never ends.
 */
import { AutoparError } from '../error.js';
import {
  functionKey,
  isSourceGraph,
  MOST_NODES,
  type OnnxModel,
  type SourceFunction,
  type SourceNode,
} from '../onnx/model.js';
import { tooManyNodes } from '../onnx/scanner.js';

/** How deep calls may nest; modules nest about ten deep. */
const DEEPEST = 256;

/** The function that a node calls. */
export function definitionOf(node: SourceNode, model: OnnxModel): SourceFunction | undefined {
  if (model.functions.size === 0) return undefined;
  return model.functions.get(functionKey(node.domain, node.op, node.overload));
}

/** A function's size once its calls are expanded. */
interface FunctionSize {
  readonly nodes: number;
  /** Calls below it. */
  readonly depth: number;
}

/** Throws `recursive-function` with the cycle, `functions-too-deep`, `too-many-nodes`. */
export function checkCalls(model: OnnxModel): void {
  const extents = new Map<SourceFunction, FunctionSize>();
  for (const definition of calledInOrder(model)) extents.set(definition, extentOf(definition.nodes, model, extents));
  const whole = extentOf(model.graph.nodes, model, extents);
  if (whole.depth > DEEPEST) {
    throw new AutoparError(
      'functions-too-deep',
      'input',
      `functions call each other ${whole.depth} deep; autopar expands calls up to ${DEEPEST} deep`,
      { file: model.file },
      'export the model with fewer levels of functions',
    );
  }
  if (whole.nodes > MOST_NODES) {
    const more = model.graph.nodes.length < whole.nodes ? ', its function calls expanded' : '';
    throw tooManyNodes(`${whole.nodes} nodes${more}`, model.file);
  }
}

function extentOf(
  nodes: readonly SourceNode[],
  model: OnnxModel,
  extents: ReadonlyMap<SourceFunction, FunctionSize>,
): FunctionSize {
  let [count, depth] = [0, 0];
  for (const node of everyNode(nodes)) {
    const definition = definitionOf(node, model);
    const called = definition && extents.get(definition);
    count += called ? called.nodes : 1;
    if (called) depth = Math.max(depth, called.depth + 1);
  }
  return { nodes: count, depth };
}

/** The functions that the main graph needs, each after those that it calls. Throws `recursive-function`. */
function calledInOrder(model: OnnxModel): readonly SourceFunction[] {
  if (model.functions.size === 0) return [];
  const done = new Set<SourceFunction>();
  const path = new Set<SourceFunction>();
  const stack = [{ definition: null as SourceFunction | null, calls: callsOf(model.graph.nodes, model).values() }];
  for (let top = stack.at(-1); top; top = stack.at(-1)) {
    const next = top.calls.next();
    if (next.done) {
      stack.pop();
      if (top.definition) {
        path.delete(top.definition);
        done.add(top.definition);
      }
      continue;
    }
    const definition = next.value;
    if (path.has(definition)) throw recursive(definition, [...path], model);
    if (done.has(definition)) continue;
    path.add(definition);
    stack.push({ definition, calls: callsOf(definition.nodes, model).values() });
  }
  return [...done];
}

function callsOf(nodes: readonly SourceNode[], model: OnnxModel): ReadonlySet<SourceFunction> {
  const calls = new Set<SourceFunction>();
  for (const node of everyNode(nodes)) {
    const definition = definitionOf(node, model);
    if (definition) calls.add(definition);
  }
  return calls;
}

/** The nodes and those of their subgraphs. */
function* everyNode(nodes: readonly SourceNode[]): Generator<SourceNode> {
  for (const node of nodes) {
    yield node;
    for (const value of Object.values(node.attributes)) if (isSourceGraph(value)) yield* everyNode(value.nodes);
  }
}

function recursive(definition: SourceFunction, path: readonly SourceFunction[], model: OnnxModel): AutoparError {
  const names = path.slice(path.indexOf(definition)).map(({ name }) => name);
  const shown = names.length > 6 ? [...names.slice(0, 5), '…', names.at(-1)] : names;
  return new AutoparError(
    'recursive-function',
    'input',
    `function '${definition.name}' calls itself: ${[...shown, definition.name].join(' → ')}`,
    { file: model.file },
    'ONNX functions cannot be recursive; export the model again',
  );
}
