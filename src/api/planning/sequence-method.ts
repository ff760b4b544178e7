/**
 * @file Which method of sequence parallelism a plan takes where that is left open: the one whose attention, with the collectives
 * around it, takes least, by their closed form. It alone is planned; the next one only where the plan of this one does not fit.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { collectiveSeconds } from '../../cost-model/collective-price.js';
import { fusesBlocks } from '../../cost-model/device.js';
import { groupPlace } from '../../cost-model/group-place.js';
import { attentionKernelSeconds } from '../../cost-model/price.js';
import { dtypeBits } from '../../ir/dtype.js';
import { AutoparError } from '../../ir/error.js';
import { elementCount, type Graph, type Node, typeOf } from '../../ir/graph.js';
import { entryOf } from '../../ir/ops/index.js';
import { kernelPartOf } from '../../partition/kernels.js';
import { timeWritten } from '../../search/figures.js';
import { NothingFits } from '../../search/plan.js';
import { SP_METHODS, type SpMethod } from '../../sharding-propagation/roles.js';
import type { Plan } from '../../strategy/plan.js';

/** A method that `auto` may take. */
type Method = Exclude<SpMethod, 'auto'>;

/** A method, and the seconds of attention with its collectives for one micro-batch. */
export interface MethodFigure {
  readonly method: Method;
  readonly seconds: number;
}

/** How ranks lie over which a sequence is shared: those of sp, with tp inside of them. */
export interface SequenceRanks {
  readonly sp: number;
  readonly tp: number;
  /** dp · sp · tp. */
  readonly ranks: number;
}

/** Whether there is anything that methods differ in: attention, recognised or not. */
export function hasAttention({ nodes }: Graph): boolean {
  return nodes.some(({ op, domain }) => op === 'Softmax' || isAttention({ op, domain }));
}

/**
 * The methods, least first by what each attention takes with what is sent for it:
 *
 *     gather    keys and values gathered; in backward gathered again, their gradients reduced and scattered. Under a causal mask
 *               the last rank's queries see nearly all keys
 *     ulysses   all-to-alls of queries, keys, values and result, the same again in backward; keys of fewer heads are repeated
 *     ring      keys and values in sp − 1 sends, in backward with their gradients
 *
 * A ring computes in blocks, whose kernels cost more than one: it comes last, and takes least memory.
 */
export function methodsInOrder(
  graph: Graph,
  { sp, tp, ranks }: SequenceRanks,
  cluster: Cluster,
): readonly MethodFigure[] {
  const place = groupPlace({ runs: [{ stride: tp, ranks: sp }], devices: ranks }, cluster.levels);
  const seconds: Record<Method, number> = { gather: 0, ulysses: 0, ring: 0 };
  const passes = graph.nodes.some(({ phase }) => phase !== 'forward') ? 2 : 1;
  for (const node of graph.nodes) {
    const whole = kernelPartOf(graph, node)?.attention;
    if (whole && fusesBlocks(cluster.device)) {
      const own = { ...whole, batch: whole.batch / ranks };
      const even = attentionKernelSeconds(own, cluster.device);
      seconds.ulysses += even;
      seconds.ring += even;
      const [batch, queries] = [own.batch * sp, own.queries / sp];
      seconds.gather += attentionKernelSeconds({ ...own, batch, queries }, cluster.device);
    }
    if (node.phase !== 'forward' || !isAttention(node) || node.inputs.length < 3) continue;
    const over = (kind: Parameters<typeof collectiveSeconds>[0], bytes: number) =>
      collectiveSeconds(kind, bytes, place, cluster);
    const [queries = 0, ...keysAndValues] = [0, 1, 2].map((index) => (bytesOf(graph, node.inputs[index]) * sp) / ranks);
    const result = (bytesOf(graph, node.outputs[0]) * sp) / ranks;
    for (const bytes of keysAndValues) {
      const gathered = over('all-gather', bytes);
      seconds.gather += passes * gathered + (passes - 1) * over('reduce-scatter', bytes);
      seconds.ring += (2 * passes - 1) * (sp - 1) * over('permute', bytes / sp);
    }
    for (const bytes of [queries, ...keysAndValues, result]) seconds.ulysses += passes * over('all-to-all', bytes / sp);
  }
  const figures = METHODS.map((method) => ({ method, seconds: seconds[method] }));
  return figures.sort((a, b) => Number(a.method === 'ring') - Number(b.method === 'ring') || a.seconds - b.seconds);
}

const METHODS = SP_METHODS.filter((method): method is Method => method !== 'auto');

function isAttention({ op, domain }: Pick<Node, 'op' | 'domain'>): boolean {
  return entryOf(op, domain)?.family === 'attention';
}

function bytesOf(graph: Graph, tensor: string | null | undefined): number {
  if (!tensor) return 0;
  const { shape, dtype } = typeOf(graph, tensor);
  return (elementCount(shape) * dtypeBits(dtype)) / 8;
}

/**
 * The plan by the first method that has one that fits; the plan says why.
 * @param savesMemory whether another method is taken where the plan of one does not fit; else its refusal is thrown
 * @throws AutoparError of the plan that needs least memory, else of the first method, where none has a plan that fits
 */
export async function firstMethod<Planned extends { readonly plan: Plan }>(
  figures: readonly MethodFigure[],
  planned: (method: SpMethod) => Promise<Planned>,
  savesMemory = true,
): Promise<Planned> {
  const refused: { readonly method: Method; readonly error: AutoparError }[] = [];
  for (const { method, seconds } of figures) {
    const found = await planned(method).catch(refusal);
    if (found instanceof AutoparError) {
      if (found instanceof NothingFits && !savesMemory) throw found;
      refused.push({ method, error: found });
      continue;
    }
    const { sequence } = found.plan;
    if (!sequence) return found;
    const others = figures.filter(
      (other) => other.method !== method && refused.every((own) => own.method !== other.method),
    );
    const why = [
      `attention by ${method} takes ${timeWritten(seconds * 1e9)} a micro-batch`,
      ...others.map((other) => `by ${other.method} ${timeWritten(other.seconds * 1e9)}`),
      ...refused.map((own) => `${own.method}: ${own.error.message}`),
    ].join('; ');
    return { ...found, plan: { ...found.plan, sequence: { ...sequence, why } } };
  }
  const errors = refused.map(({ error }) => error);
  const [roomiest] = errors
    .flatMap((error) => (error instanceof NothingFits ? [error] : []))
    .sort((a, b) => a.figures.leastBytes - b.figures.leastBytes);
  throw roomiest ?? errors[0];
}

function refusal(error: unknown): AutoparError {
  const isOfMethod = error instanceof AutoparError && (error.exit === 'noPlan' || error.code === 'degree-does-not-fit');
  if (!isOfMethod) throw error;
  return error;
}
