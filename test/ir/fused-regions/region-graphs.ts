/**
 * @file Small graphs that are one region each, as exporters write them. The result is `result`.
 */
import { floats, GraphBuilder } from '../../../models/builder.js';
import type { Graph } from '../../../src/ir/graph.js';
import type { RegionKind } from '../../../src/ir/operator.js';
import { recogniseRegions } from '../../../src/ir/passes/recognise-regions.js';

/** Grouped attention with a mask and PyTorch's guard against rows that see nothing; keys repeated by Expand. */
export function groupedAttention(): Graph {
  const build = new GraphBuilder('attention', 1);
  const q = build.input('q', 'float32', [2, 8, 4, 6]);
  const k = build.input('k', 'float32', [2, 2, 4, 6]);
  const v = build.input('v', 'float32', [2, 2, 4, 10]);
  const mask = build.input('mask', 'float32', [2, 1, 4, 4]);
  const repeated = (tensor: string, width: number) => {
    const apart = build.operator('Unsqueeze', [tensor], { axes: [2] });
    const spread = build.operator('Expand', [apart], { shape: [2, 2, 4, 4, width] });
    return build.operator('Reshape', [spread], { shape: [2, 8, 4, width] });
  };
  const turned = build.operator('Transpose', [repeated(k, 6)], { perm: [0, 1, 3, 2] });
  const scaled = build.operator('Mul', [q, build.constant('scale', floats([0.4]))]);
  const scores = build.operator('Add', [build.operator('MatMul', [scaled, turned]), mask]);
  const weights = build.operator('Softmax', [scores], { axis: -1 });
  const guarded = build.operator('Where', [
    build.operator('IsNaN', [weights]),
    build.constant('zero', floats([0])),
    weights,
  ]);
  build.output('result', build.operator('MatMul', [guarded, repeated(v, 10)]));
  return build.build();
}

export function layerNormalization(): Graph {
  const build = new GraphBuilder('norm', 2);
  const x = build.input('x', 'float32', [2, 4, 8]);
  const mean = build.operator('ReduceMean', [x], { axes: [-1], keepdims: 1 });
  const centred = build.operator('Sub', [x, mean]);
  const variance = build.operator('ReduceMean', [build.operator('Mul', [centred, centred])], {
    axes: [-1],
    keepdims: 1,
  });
  const shifted = build.operator('Add', [variance, build.constant('epsilon', floats([1e-5]))]);
  const unit = build.operator('Div', [centred, build.operator('Sqrt', [shifted])]);
  const scaled = build.operator('Mul', [unit, build.parameter('weight', [8])]);
  build.output('result', build.operator('Add', [scaled, build.parameter('bias', [8])]));
  return build.build();
}

/** Labels are looked up in the sharded vocabulary. */
export function crossEntropy(): Graph {
  const build = new GraphBuilder('loss', 3);
  const logits = build.input('logits', 'float32', [4, 8]);
  const labels = build.input('labels', 'int64', [4, 1]);
  const logs = build.operator('LogSoftmax', [logits], { axis: -1 });
  const picked = build.operator('GatherElements', [logs, labels], { axis: 1 });
  const mean = build.operator('ReduceMean', [picked], { axes: [0, 1], keepdims: 0 });
  build.output('result', build.operator('Neg', [mean]));
  return build.build();
}

/** The whole graph as one region. */
export function asRegion(graph: Graph, kind: RegionKind): Graph {
  const weights = [...graph.weights].flatMap(([name, { shape }]) => (shape.length > 0 && shape[0] !== 1 ? [name] : []));
  const match = {
    kind,
    nodes: graph.nodes,
    inputs: [...graph.inputs, ...weights],
    outputs: graph.outputs,
    attributes: {},
  };
  return recogniseRegions(graph, [match]);
}

/** GELU over erf with a bias before it. */
export function gelu(): Graph {
  const build = new GraphBuilder('gelu', 6);
  const x = build.input('x', 'float32', [2, 4, 8]);
  const scaled = build.operator('Div', [x, build.constant('root', floats([Math.SQRT2]))]);
  const cumulated = build.operator('Add', [build.operator('Erf', [scaled]), build.constant('one', floats([1]))]);
  const doubled = build.operator('Mul', [x, cumulated]);
  build.output('result', build.operator('Mul', [doubled, build.constant('half', floats([0.5]))]));
  return build.build();
}

/** silu(gate) · up. */
export function swiglu(): Graph {
  const build = new GraphBuilder('swiglu', 7);
  const gate = build.input('gate', 'float32', [2, 4, 8]);
  const up = build.input('up', 'float32', [2, 4, 8]);
  const open = build.operator('Mul', [gate, build.operator('Sigmoid', [gate])]);
  build.output('result', build.operator('Mul', [open, up]));
  return build.build();
}

/** Halves of a head rotated by angles that all heads share. */
export function rotary(): Graph {
  const build = new GraphBuilder('rotary', 8);
  const x = build.input('x', 'float32', [2, 4, 4, 8]);
  const [cos, sin] = ['cos', 'sin'].map((name) => build.input(name, 'float32', [1, 1, 4, 8])) as [string, string];
  const half = (from: number) =>
    build.operator('Slice', [x], { starts: [from], ends: [from + 4], axes: [3], steps: [1] });
  const turned = build.operator('Concat', [build.operator('Neg', [half(4)]), half(0)], { axis: -1 });
  const [straight, across] = [build.operator('Mul', [x, cos]), build.operator('Mul', [turned, sin])];
  build.output('result', build.operator('Add', [straight, across]));
  return build.build();
}
