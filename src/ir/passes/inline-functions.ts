/**
 * @file Pass `inline-functions`: replaces calls of model-local functions by their bodies, so that only operators remain.
 *
 * Inner values are named CALL/VALUE, a nested call CALL/INNER/VALUE. The body's nodes belong to the module that the
 * call stands for: the module its parameters have in common (b.0 for b.0.ln.weight, b.0.qkv.bias), else the call's name.
 */
import {
  isReference,
  isSourceGraph,
  type OnnxModel,
  type SourceAttribute,
  type SourceAttributes,
  type SourceFunction,
  type SourceGraph,
  type SourceNode,
} from '../onnx/model.js';
import { commonModule } from '../onnx/module-path.js';
import { checkCalls, definitionOf } from './call-graph.js';

/**
 * The nodes of the main graph with every function call expanded, in no particular order. Throws the errors of `checkCalls`,
 * before anything is expanded.
 */
export function inlineFunctions(model: OnnxModel): readonly SourceNode[] {
  checkCalls(model);
  if (model.functions.size === 0) return model.graph.nodes;
  return expandNodes(model.graph.nodes, model, 0);
}

/** Gives the inner names of a subgraph or function body their outer names; names that are not inner stay. */
export function renameNode(node: SourceNode, rename: (name: string) => string, prefix: string): SourceNode {
  return {
    ...node,
    name: node.name === '' ? '' : `${prefix}/${node.name}`,
    inputs: node.inputs.map((name) => (name === null ? null : rename(name))),
    outputs: node.outputs.map((name) => (name === null ? null : rename(name))),
    attributes: mapGraphs(node.attributes, (graph) => renameFree(graph, rename)),
  };
}

/** Renames the tensors that a nested graph reads from outside; its own names stay. */
function renameFree(graph: SourceGraph, rename: (name: string) => string): SourceGraph {
  const own = new Set([
    ...graph.inputs.map((value) => value.name),
    ...graph.initializers.keys(),
    ...graph.nodes.flatMap((node) => node.outputs),
  ]);
  const outer = (name: string): string => (own.has(name) ? name : rename(name));
  return {
    ...graph,
    outputs: graph.outputs.map((value) => ({ ...value, name: outer(value.name) })),
    nodes: graph.nodes.map((node) => ({
      ...node,
      inputs: node.inputs.map((name) => (name === null ? null : outer(name))),
      attributes: mapGraphs(node.attributes, (inner) => renameFree(inner, outer)),
    })),
  };
}

function mapGraphs(attributes: SourceAttributes, map: (graph: SourceGraph) => SourceGraph): SourceAttributes {
  if (!Object.values(attributes).some(isSourceGraph)) return attributes;
  return Object.fromEntries(
    Object.entries(attributes).map(([name, value]) => [name, isSourceGraph(value) ? map(value) : value]),
  );
}

function expandNodes(nodes: readonly SourceNode[], model: OnnxModel, depth: number): readonly SourceNode[] {
  const names = callNames(nodes, model);
  return nodes.flatMap((node, index) => {
    const definition = definitionOf(node, model);
    const inside = mapGraphs(node.attributes, (graph) => ({ ...graph, nodes: expandNodes(graph.nodes, model, depth) }));
    if (!definition) return inside === node.attributes ? [node] : [{ ...node, attributes: inside }];
    return expandCall(node, names[index] ?? node.op, definition, model, depth);
  });
}

/** A unique name per call: the node's, else its operator and ordinal. */
function callNames(nodes: readonly SourceNode[], model: OnnxModel): readonly string[] {
  const taken = new Set<string>();
  const ordinals = new Map<string, number>();
  return nodes.map((node) => {
    if (!definitionOf(node, model)) return '';
    const base = node.name || node.op;
    let name = base;
    for (let ordinal = ordinals.get(base) ?? 2; taken.has(name); ordinal++) {
      name = `${base}_${ordinal}`;
      ordinals.set(base, ordinal + 1);
    }
    taken.add(name);
    return name;
  });
}

function expandCall(
  call: SourceNode,
  callName: string,
  definition: SourceFunction,
  model: OnnxModel,
  depth: number,
): readonly SourceNode[] {
  const actual = new Map<string, string | null>();
  definition.inputs.forEach((name, index) => {
    actual.set(name, call.inputs[index] ?? null);
  });
  definition.outputs.forEach((name, index) => {
    const result = call.outputs[index];
    if (result && !actual.has(name)) actual.set(name, result);
  });
  const rename = (name: string): string => actual.get(name) ?? `${callName}/${name}`;
  const absent = (name: string): boolean => actual.has(name) && actual.get(name) === null;
  const module = [...call.module, ...moduleOf(call, definition, depth)];
  const body = definition.nodes.map((node) =>
    renameNode(
      {
        ...node,
        inputs: node.inputs.map((name) => (name !== null && absent(name) ? null : name)),
        attributes: resolveReferences(node.attributes, call.attributes, definition.defaults),
        module: [...module, ...node.module],
      },
      rename,
      callName,
    ),
  );
  const passed = definition.outputs.flatMap((name, index) => passThrough(call, definition, name, index));
  return expandNodes([...body, ...passed], model, depth + 1);
}

/** A function that returns one of its inputs needs a node to carry it over. */
function passThrough(call: SourceNode, definition: SourceFunction, name: string, index: number): readonly SourceNode[] {
  const position = definition.inputs.indexOf(name);
  const result = call.outputs[index];
  const source = call.inputs[position];
  if (position < 0 || !result || !source) return [];
  return [
    {
      ...call,
      name: `${call.name}/${name}`,
      op: 'Identity',
      domain: '',
      overload: '',
      attributes: {},
      inputs: [source],
      outputs: [result],
      opset: 0,
    },
  ];
}

/** The module that a call stands for, below the module of the caller. */
function moduleOf(call: SourceNode, definition: SourceFunction, depth: number): readonly string[] {
  const given = commonModule(call.inputs.filter((name) => name !== null));
  const common = given.length > 0 ? given : commonModule(definition.inputs);
  if (call.module.every((step, index) => common[index] === step)) {
    if (common.length > 0) return common.slice(call.module.length);
    return [depth === 0 ? call.name || call.op : (call.name.split('/').at(-1) ?? call.op)];
  }
  return [];
}

function resolveReferences(
  attributes: SourceAttributes,
  given: SourceAttributes,
  defaults: SourceAttributes,
): SourceAttributes {
  const resolved: Record<string, SourceAttribute> = {};
  for (const [name, value] of Object.entries(attributes)) {
    if (isSourceGraph(value)) {
      resolved[name] = {
        ...value,
        nodes: value.nodes.map((node) => ({
          ...node,
          attributes: resolveReferences(node.attributes, given, defaults),
        })),
      };
    } else if (isReference(value)) {
      const found = given[value.reference] ?? defaults[value.reference];
      if (found !== undefined) resolved[name] = found;
    } else resolved[name] = value;
  }
  return resolved;
}
