/**
 * @file Operators that hold subgraphs, as a table from operator to rewrite. The nodes of a body take the operator's place,
 * under names that begin with its own.
 *
 *     If                        the branch that a known condition takes     conditionals.ts
 *     Loop, SequenceMap, Scan   the body once per iteration                 unroll-loops.ts, unroll-scan.ts
 *
 * Everything else that holds a subgraph is refused by name.
 */
import { isSourceGraph } from '../onnx/model.js';
import { inlineConditional } from './conditionals.js';
import type { Rewrite } from './rewrite.js';
import { refusedControl } from './subgraph-body.js';
import { unrollLoop, unrollSequenceMap } from './unroll-loops.js';
import { unrollScan } from './unroll-scan.js';

const REWRITES: Readonly<Record<string, Rewrite>> = {
  If: inlineConditional,
  Loop: unrollLoop,
  Scan: unrollScan,
  SequenceMap: unrollSequenceMap,
};

/** Rewrites any node that holds a subgraph. */
export const rewriteSubgraphs: Rewrite = (node, context) => {
  if (!Object.values(node.attributes).some(isSourceGraph)) return null;
  const rewrite = node.domain === '' && Object.hasOwn(REWRITES, node.op) ? REWRITES[node.op] : undefined;
  if (rewrite) return rewrite(node, context);
  throw refusedControl(node, context, 'holds a subgraph; autopar follows those of If, Loop, Scan and SequenceMap');
};
