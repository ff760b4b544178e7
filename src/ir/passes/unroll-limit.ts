/**
 * @file How much a model's loops and sequences may grow: each iteration, and each element, becomes nodes of its own.
 */
import { AutoparError } from '../error.js';
import type { SourceNode } from '../onnx/model.js';
import type { RewriteContext } from './rewrite.js';

/** The most nodes that all loops and sequences of a model may become together: planning more would take too long. */
const UNROLL_LIMIT = 20_000;

/** Counts nodes that `node` becomes. Throws `loop-too-long` where the model's limit is passed; `when` states at which point. */
export function countUnrolled(node: SourceNode, nodes: number, when: string, context: RewriteContext): void {
  const total = context.countUnrolled(nodes);
  if (total > UNROLL_LIMIT)
    throw tooLong(node, `${when}, where the model's unrolled loops have ${total} nodes`, context);
}

/** Throws where the iterations together exceed the limit of unrolling. */
export function checkLength(node: SourceNode, iterations: number, size: number, context: RewriteContext): void {
  if (iterations * size <= UNROLL_LIMIT) return;
  const what = iterations === Infinity ? 'never ends' : `would become ${iterations} iterations of ${size} nodes`;
  throw tooLong(node, what, context);
}

function tooLong(node: SourceNode, what: string, context: RewriteContext): AutoparError {
  return new AutoparError(
    'loop-too-long',
    'input',
    `node '${node.name || node.op}' (${node.op}) ${what}; autopar unrolls the loops of a model to at most ${UNROLL_LIMIT} nodes`,
    { file: context.file, node: node.name || node.op },
    'export fewer iterations, or the loop as one operator (LSTM, CumSum, …)',
  );
}
