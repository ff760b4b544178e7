/**
 * @file A model of normalisations that some devices have no kernels for.
 */
import { GraphBuilder } from '../../models/builder.js';
import type { Graph } from '../../src/ir/graph.js';

/** Operators that WebGPU lacks, and the registry has expansions of. */
export const NORMALISATIONS = ['RMSNormalization', 'LogSoftmax', 'GroupNormalization'];

export function normalised(): Graph {
  const builder = new GraphBuilder('normalised', 1);
  const x = builder.input('x', 'float32', [4, 8, 6]);
  const [scale, bias] = [builder.input('scale', 'float32', [8]), builder.input('bias', 'float32', [8])];
  const width = builder.input('width', 'float32', [6]);
  const groups = builder.operator('GroupNormalization', [x, scale, bias], { num_groups: 2 });
  const norm = builder.operator('RMSNormalization', [groups, width], { axis: -1 });
  builder.output('y', builder.operator('LogSoftmax', [norm], { axis: 1 }));
  return builder.build();
}
