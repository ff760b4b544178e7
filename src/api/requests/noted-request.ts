/**
 * @file The request for a plan, from options, else from a configuration; and notes where a part of it changes nothing.
 */
import { repeatedLayers } from '../../ir/autodiff/recompute-kinds.js';
import { AutoparError, badOption, usageError } from '../../ir/error.js';
import { elementCount, type Graph, isBackward } from '../../ir/graph.js';
import type { Assignment } from '../../partition/assignment.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import type { ShardedTensor } from '../../partition/sharded-graph.js';
import type { SearchMode } from '../../search/search-mode.js';
import { usedDataAxes } from '../../search/zero.js';
import { deviceCount, type Mesh } from '../../sharding-propagation/mesh.js';
import { weightAxis } from '../../sharding-propagation/roles.js';
import { isServed, type PlanRequest, requestIn } from '../../strategy/request.js';
import type { ImportedModel } from '../models/import.js';
import type { ConfiguredRecompute } from '../parallel-config/config-options.js';
import type { Decisions } from './decisions.js';

interface NotedRequest {
  readonly requested: PlanRequest;
  readonly notes: readonly string[];
}

/**
 * The request. ZeRO is a choice among layouts, which propagation does not make; its levels 1 and 2, and recompute, are for
 * training only.
 * @param options the options, with those of the request among them, and `complete` as it was given
 * @throws AutoparError (usage) `bad-option` where an option asks for a level and nothing is searched, or nothing has that state
 */
export function requestOf(
  options: PlanRequest & { readonly complete?: 'search' | 'propagate'; readonly axes?: 'roles' | 'free' },
  config: Decisions['config'],
  { graph, training }: Pick<ImportedModel, 'graph' | 'training'>,
  mode: SearchMode,
): NotedRequest {
  const asked = requestIn(options);
  const trains = graph.nodes.some(({ phase }) => isBackward(phase));
  if (!trains && isOfTraining(asked.zero)) throw zeroUntrained(asked.zero);
  const { recompute = null, spMethod = null, tpSequence = 'auto', offload = null, interleave = 1 } = config ?? {};
  const { gradientBuckets = null, bucketBytes = null } = config ?? {};
  const configured = {
    ...(training && recompute !== null ? { recompute: recomputeWords(recompute, graph) } : {}),
    // Inference stores no activations to offload.
    ...(training && offload !== null ? { offload } : {}),
    ...(training && gradientBuckets !== null ? { bucketMembers: gradientBuckets } : {}),
    ...(training && bucketBytes !== null ? { bucket: bucketBytes } : {}),
    ...(training && interleave > 1 ? { interleave } : {}),
    ...(spMethod === null ? {} : { spMethod }),
  };
  const swapped = !training && offload === 'activations';
  const unswapped = swapped ? ['swap_config.swap applies to training only; inference ignores it'] : [];
  if (mode !== 'sharding_propagation') {
    if (isServed(asked) && (config?.zero ?? 0) > 0) throw cutByConfig(config?.zero ?? 0);
    const zero = config?.zero == null || (!trains && isOfTraining(config.zero)) ? {} : { zero: config.zero };
    const isLifted = options.axes === 'free';
    const over = tpSequence === 'auto' || isLifted ? {} : { tpSequence };
    const lifted = tpSequence !== 'auto' && isLifted ? ['use_seq_parallel is ignored: --axes free lifts roles'] : [];
    return { requested: { ...configured, ...over, ...zero, ...asked }, notes: [...unswapped, ...lifted] };
  }
  if (asked.zero !== undefined) throw zeroWithoutSearch(asked.zero, options.complete);
  const left = [
    ...(config?.zero ? ['enable_parallel_optimizer'] : []),
    ...(tpSequence === 'auto' ? [] : ['use_seq_parallel']),
  ].map((key) => `${key} is ignored: propagation does not choose layouts`);
  return { requested: { ...configured, ...asked }, notes: [...unswapped, ...left] };
}

/**
 * The words of `--recompute` for layer counts per part of the model. MindFormers gives all parts the same number of layers, and
 * the first layers of each part recompute.
 * @throws AutoparError (input) `config-rule` for more layers than a part has
 */
function recomputeWords(said: ConfiguredRecompute, graph: Graph): string {
  if (typeof said === 'string') return said;
  const { kind, counts } = said;
  const layers = repeatedLayers(graph).length;
  const starts = Array.from({ length: counts.length + 1 }, (_, part) => Math.floor((part * layers) / counts.length));
  const ranges = counts.flatMap((count, part) => {
    const [start = 0, end = layers] = starts.slice(part);
    if (count > end - start) throw tooManyLayers(counts, end - start, layers);
    return count === 0 ? [] : [count === 1 ? `${start}` : `${start}-${start + count - 1}`];
  });
  return ranges.length === 0 ? 'none' : `${kind}:${ranges.join(',')}`;
}

function tooManyLayers(counts: readonly number[], most: number, layers: number): AutoparError {
  const parts = counts.length === 1 ? 'one part' : `${counts.length} parts`;
  return new AutoparError(
    'config-rule',
    'input',
    `recompute [${counts.join(', ')}] exceeds the layers of a part: the model has ${layers}, in ${parts} of at most ${most}`,
    {},
    `give each part ${most} layers at most, or True for all`,
  );
}

function cutByConfig(level: number): AutoparError {
  return badOption(
    '--gradient-sync parameter-server stores optimizer state on one rank, and enable_parallel_optimizer of the ' +
      `configuration is ZeRO ${level}, which shards it over all`,
    'leave out --gradient-sync, or set enable_parallel_optimizer to False',
  );
}

/** Levels that shard what inference does not have. */
function isOfTraining(level: number | undefined): level is 1 | 2 {
  return level === 1 || level === 2;
}

function zeroUntrained(level: number): AutoparError {
  return badOption(
    `--zero ${level} applies to training only: inference stores no optimizer state and gradients`,
    'add --train, or leave out --zero; --zero 3 shards parameters',
  );
}

function zeroWithoutSearch(level: number, complete: 'search' | 'propagate' | undefined): AutoparError {
  const other = complete === 'propagate' ? '--complete propagate' : '--search-mode sharding_propagation';
  return badOption(`--zero ${level} restricts a search, and ${other} does not search`, 'leave out one of the two');
}

/** A note if a requested ZeRO level changes nothing. @param meshes of the stages */
export function zeroNotes({ zero }: PlanRequest, meshes: readonly Mesh[]): readonly string[] {
  const isIdle = zero !== undefined && meshes.every((mesh) => usedDataAxes(mesh).length === 0);
  return isIdle ? [`--zero ${zero} changes nothing: dp is 1, and ranks do not share parameters`] : [];
}

/** A note if tp has nothing to shard along sequences. @param meshes of the stages */
export function idleSequence({ tpSequence = 'auto' }: PlanRequest, meshes: readonly Mesh[]): readonly string[] {
  const isIdle = tpSequence !== 'auto' && meshes.every((mesh) => (weightAxis(mesh)?.size ?? 1) === 1);
  return isIdle ? [`--tp-sequence ${tpSequence} changes nothing: tp is 1`] : [];
}

/** @throws AutoparError (usage) `micro-batch` for halves of a graph with an odd number of micro-batches */
export function checkHalves({ interleave }: PlanRequest, { microBatches }: Graph): void {
  const count = microBatches?.count ?? 1;
  if (interleave === 2 && count % 2 === 1)
    throw usageError(
      'micro-batch',
      `--interleave 2 needs an even number of micro-batches, and the step has ${count}`,
      'give training.microBatches twice as many, or leave it to compile',
    );
}

/** A note if halves of micro-batches have no communication to overlap. */
export function idleHalves({ interleave }: PlanRequest, lowered: readonly LoweredStage[]): readonly string[] {
  const isNumber = (tensor: ShardedTensor | undefined) => tensor === undefined || elementCount(tensor.shape) === 1;
  const hides = lowered.some(({ sharded: { nodes, tensors } }) =>
    nodes.some((node) => node.kind === 'communicate' && node.phase !== 'update' && !isNumber(tensors.get(node.input))),
  );
  const why = 'the ranks communicate only scalars within a micro-batch, and its halves run in turn';
  return interleave !== 2 || hides ? [] : [`--interleave 2 hides nothing: ${why}`];
}

/** A note if a parameter server would serve no other rank. @param meshes of the stages */
export function unusedServer(request: PlanRequest, meshes: readonly Mesh[]): readonly string[] {
  if (!isServed(request) || meshes.some((mesh) => usedDataAxes(mesh).length > 0)) return [];
  return ['--gradient-sync parameter-server changes nothing: dp is 1, and each rank updates its own parameters'];
}

/** A note if no collective is in a bucket. */
export function unusedBucket({ bucket }: PlanRequest, lowered: readonly LoweredStage[]): readonly string[] {
  const isUsed = lowered.some(({ sharded }) =>
    sharded.nodes.some((node) => node.kind === 'communicate' && node.bucket !== undefined),
  );
  return bucket === undefined || isUsed
    ? []
    : ['--bucket changes nothing: no gradient is reduced over several ranks, and no weight is gathered'];
}

/**
 * The note that ranks compute the same as others, because operators are not sharded over all of an axis: fewer devices are as
 * fast.
 * @param stages of the pipeline, each on the mesh
 */
export function repeatingRanks({ mesh, strategies }: Assignment, stages: number): readonly string[] {
  const used = new Set(
    [...strategies.values()].flatMap(({ axes, partialOperands }) => [
      ...Object.values(axes).flat(),
      ...(partialOperands?.axes ?? []),
    ]),
  );
  const repeated = mesh.axes.flatMap(({ name, size, subAxes: subs }) => {
    const ways = subs.reduce((product, sub) => product * (used.has(sub.name) ? sub.size : 1), 1);
    return ways === size ? [] : [{ name, size, ways }];
  });
  if (repeated.length === 0) return [];
  const all = stages * deviceCount(mesh);
  const few = repeated.reduce((devices, { size, ways }) => (devices * ways) / size, all);
  const why = repeated.map(({ name, size, ways }) =>
    ways === 1 ? `${name} ${size} shards no operator` : `${name} ${size} shards operators ${ways} ways at most`,
  );
  const enough = few === 1 ? '1 device is' : `${few} devices are`;
  return [`${all - few} of ${all} devices repeat the work of others, as ${why.join(', and ')}: ${enough} as fast`];
}
