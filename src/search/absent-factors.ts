/**
 * @file Degrees that a model cannot use: sp without a sequence, ulysses with heads that sp does not divide, ep without
 * experts.
 */
import { sequenceDimensions } from '../ir/dimension-roles.js';
import { AutoparError } from '../ir/error.js';
import { REGION_DOMAIN } from '../ir/fused-regions/fused-region.js';
import { type Graph, type Node, typeOf } from '../ir/graph.js';
import type { OperatorEntry } from '../ir/operator.js';
import { operatorOf } from '../ir/operator-of.js';
import { expertEntries } from '../ir/ops/experts.js';
import { operatorEntry, operatorFamily, ruleOf } from '../ir/ops/index.js';
import { primeFactors } from '../sharding-propagation/mesh.js';
import type { SequenceMethods } from '../sharding-propagation/roles.js';
import type { MeshDegrees, Pins, PossibleDegrees } from './degrees.js';
import { attentionHeads, dividesHeads, expertDimensions } from './factor-families.js';
import type { OperatorFactsOf } from './operator-facts.js';

/**
 * @param stages the requested degrees of each
 * @throws AutoparError `degree-does-not-fit`, `bad-option` (usage)
 */
export function refuseAbsentFactors(
  graph: Graph,
  stages: readonly Pins[],
  { spMethod, tpSequence }: SequenceMethods = {},
): void {
  if (spMethod !== undefined && stages.every(({ sp = 1 }) => sp === 1))
    throw new AutoparError(
      'bad-option',
      'usage',
      `--sp-method ${spMethod} applies to sp above 1, and sp is 1`,
      {},
      'leave it out, or add --sp 2',
    );
  if (tpSequence === 'on') refuseUnshardableNorms(graph, stages);
  for (const { sp = 1, ep = 1 } of stages) {
    if (sp > 1) refuseSequence(graph, sp);
    if (sp > 1) refuseStates(graph, sp);
    if (sp > 1 && spMethod === 'ulysses') refuseHeads(graph, sp);
    if (ep > 1) refuseExperts(graph, ep);
  }
}

function refuseSequence(graph: Graph, sp: number): void {
  const sizes = sequenceDimensions(graph).map(({ input, axis }) => typeOf(graph, input).shape[axis] ?? 1);
  if (sizes.some((size) => size >= sp)) return;
  const [size] = sizes;
  throw doesNotFit(
    size === undefined
      ? `--sp ${sp} shards sequences, and ${graph.name} has none: no input that is looked up in a table, and no attention`
      : `--sp ${sp} shards sequences, and the longest of ${graph.name} has ${Math.max(...sizes)} positions`,
    size === undefined ? 'leave out --sp' : `take --sp ${Math.max(...sizes)} at most, or longer sequences`,
  );
}

/** Norms that tp is to shard along the sequence. */
function refuseUnshardableNorms(graph: Graph, stages: readonly Pins[]): void {
  if (stages.every(({ tp }) => tp === 1))
    throw doesNotFit('--tp-sequence on shards norms over tp, and tp is 1', 'leave it out, or give --tp 2 or more');
  if (sequenceDimensions(graph).length === 0)
    throw doesNotFit(
      `--tp-sequence on shards norms along the sequence, and ${graph.name} has none: no input that is looked up in a ` +
        'table, and no attention',
      'leave it out',
    );
}

/**
 * The combinations of degrees under which norms can be sharded along sequences, where that is requested; others are rejected.
 * @throws AutoparError `degree-does-not-fit` (usage) where none is left
 */
export function degreesThatShardNorms(
  graph: Graph,
  { tried, rejected }: PossibleDegrees,
  { tpSequence }: SequenceMethods = {},
): PossibleDegrees {
  if (tpSequence !== 'on') return { tried, rejected };
  const judged = tried.map((degrees) => ({ degrees, reason: sequenceProblem(graph, degrees) }));
  const unfit = judged.flatMap(({ degrees, reason }) => (reason === null ? [] : [{ degrees, reason }]));
  const [first] = unfit;
  if (first && unfit.length === tried.length)
    throw doesNotFit(`--tp-sequence on: ${first.reason}`, 'leave it out, or give another --tp');
  return {
    tried: judged.flatMap(({ degrees, reason }) => (reason === null ? [degrees] : [])),
    rejected: [...rejected, ...unfit],
  };
}

/** Why norms cannot be sharded along sequences over tp; null where they can. */
function sequenceProblem(graph: Graph, { tp, sp = 1 }: Pick<MeshDegrees, 'tp' | 'sp'>): string | null {
  const sizes = sequenceDimensions(graph).map(({ input, axis }) => typeOf(graph, input).shape[axis] ?? 1);
  const size = sizes.find((own) => own % (tp * sp) !== 0);
  if (tp === 1 || size === undefined) return null;
  return `${sp > 1 ? `sp ${sp} · tp ${tp}` : `tp ${tp}`} does not divide the ${size} positions of a sequence`;
}

/** An operator of a state-space layer: every later position reads the state that a position leaves. */
export function carryingState(graph: Graph): Node | undefined {
  return graph.nodes.find(
    (node) => node.phase === 'forward' && operatorEntry(node).carriesState?.(operatorOf(graph, node)),
  );
}

function refuseStates(graph: Graph, sp: number): void {
  const scanning = carryingState(graph);
  if (scanning)
    throw doesNotFit(
      `--sp ${sp} shards sequences, and ${scanning.op} ${scanning.name} of a state-space layer passes a state from ` +
        'position to position',
      'leave out --sp; --tp shards the heads of such layers',
      scanning.name,
    );
}

/**
 * @param spOf over how many ranks an operator's sequence is sharded
 * @throws AutoparError `degree-does-not-fit` (usage) for a ring over an attention that cannot take its keys in chunks
 */
export function refuseRing(graph: Graph, factsOf: OperatorFactsOf, spOf: (node: Node) => number): void {
  for (const node of graph.nodes) {
    const sp = spOf(node);
    if (sp === 1) continue;
    const { operator, families } = factsOf(node);
    const rule = ruleOf(operator);
    const sequences = [...families.factors.sequence];
    const { family, region } = operatorEntry(node);
    // A standalone attention operator takes no chunks of keys: those that plain operators can express were rewritten before.
    const isOperator = region === 'Attention' && node.domain !== REGION_DOMAIN;
    if (!isOperator && (sequences.length < 2 || !ATTENDING.has(family))) continue;
    if (!sequences.some((name) => rule.factors.get(name)?.streams))
      throw doesNotFit(
        `--sp-method ring streams chunks of keys and values, and ${node.op} ${node.name} needs all of them at once`,
        'take --sp-method gather, or --sp-method ulysses',
        node.name,
      );
    const sizes = sequences.map((name) => rule.factors.get(name)?.size ?? sp);
    if (sizes.some((size) => size < sp))
      throw doesNotFit(
        `--sp-method ring gives every rank a chunk of keys, and --sp ${sp} is more than the ${Math.min(...sizes)} ` +
          `positions of ${node.name}`,
        `take --sp ${Math.min(...sizes)} at most, or --sp-method gather`,
        node.name,
      );
  }
}

/** Families of operators that bring queries and keys together. */
const ATTENDING: ReadonlySet<OperatorEntry['family']> = new Set(['attention', 'contraction']);

function refuseHeads(graph: Graph, sp: number): void {
  const found = undividedHeads(graph, sp);
  if (!found) return;
  const { node, heads, count, fitting } = found;
  throw doesNotFit(
    `--sp-method ulysses shards heads, and --sp ${sp} does not divide the ${count} heads of ${node.name}` +
      (heads.length > 1 ? ` (${heads.join(' · ')}, which share keys)` : ''),
    `take ${fitting.length > 0 ? `--sp ${fitting.join(' or ')}, ` : ''}--sp-method ring or --sp-method gather`,
    node.name,
  );
}

/** Messages about a requested tp that does not divide the heads of an attention. */
export function unevenHeads(graph: Graph, tp: number): readonly string[] {
  const found = tp > 1 ? undividedHeads(graph, tp) : null;
  if (!found) return [];
  const { node, count, fitting } = found;
  const even = fitting.length > 0 ? `tp ${fitting.join(' or ')} shards them evenly, ` : '';
  return [
    `tp ${tp} does not divide the ${count} heads of ${node.name}, which are padded or not sharded: ${even}` +
      `--sp ${tp} --sp-method ring shards positions instead`,
  ];
}

/** An attention whose heads a degree of an axis does not divide. */
interface UndividedHeads {
  readonly node: Node;
  /** Head counts: key heads, then the query heads that share each. */
  readonly heads: readonly number[];
  readonly count: number;
  /** Degrees other than 1 that divide the heads. */
  readonly fitting: readonly number[];
}

function undividedHeads(graph: Graph, degree: number): UndividedHeads | null {
  for (const node of graph.nodes) {
    if (operatorFamily(node) !== 'attention') continue;
    const rule = ruleOf(operatorOf(graph, node));
    const heads = attentionHeads(rule);
    // An operator without keys (a rotary embedding) may stay sharded along positions.
    if (!rule.factors.has('t')) continue;
    if (heads.length === 0 || dividesHeads(heads, primeFactors(degree))) continue;
    const count = heads.reduce((all, size) => all * size, 1);
    const degrees = Array.from({ length: count - 1 }, (_, index) => index + 2);
    return { node, heads, count, fitting: degrees.filter((size) => dividesHeads(heads, primeFactors(size))) };
  }
  return null;
}

function refuseExperts(graph: Graph, ep: number): void {
  const counts = expertDimensions(graph).map(({ input, axis }) => ({
    input,
    count: typeOf(graph, input).shape[axis] ?? 1,
  }));
  const routed = graph.nodes.find(({ op, domain }) =>
    expertEntries.some((entry) => entry.op === op && entry.domain === domain),
  );
  if (counts.length === 0 && routed)
    throw doesNotFit(
      `--ep ${ep} shards experts, and this form of the operator ${routed.op} replicates them (a sparse mixer, ` +
        'gates with separate weights or after the other features, or router weights next to its scores)',
      'export the experts as plain operators, or leave out --ep',
      routed.name,
    );
  if (counts.length === 0)
    throw doesNotFit(
      `--ep ${ep} shards experts, and ${graph.name} has none: no matmul with a weight [experts, rows, columns], ` +
        'and no equal experts with separate weights',
      'docs/parallelism.md lists the written forms; leave out --ep',
    );
  const other = counts.find(({ count }) => count % ep !== 0);
  if (other)
    throw doesNotFit(
      `--ep ${ep} does not divide the ${other.count} experts of ${other.input}`,
      `give an --ep that divides ${other.count}`,
    );
}

/** @throws AutoparError `degree-does-not-fit` (usage) for a stage that is given ep and has no experts */
export function refuseIdleExperts(stages: readonly { readonly graph: Graph }[], asked: readonly Pins[]): void {
  for (const [stage, { ep = 1 }] of asked.entries()) {
    const own = stages[stage]?.graph;
    if (ep === 1 || !own || expertDimensions(own).length > 0) continue;
    throw doesNotFit(
      `--meshes gives stage ${stage} ep ${ep}, and the stage has no experts`,
      `leave out the ep of stage ${stage}, or place its experts with --stages`,
    );
  }
}

function doesNotFit(message: string, hint: string, node?: string): AutoparError {
  return new AutoparError('degree-does-not-fit', 'usage', message, node === undefined ? {} : { node }, hint);
}
