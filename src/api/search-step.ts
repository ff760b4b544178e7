/**
 * @file searchStep: the fastest way to train a model on a cluster, over every dimension that a step can be priced in: pp · dp · sp
 * · tp, ep, micro-batches, schedules, ZeRO, recomputation. Nothing is lowered; it is what `compile --plan-only` chooses from.
 */
import { type GeneratedModel, generatedModel } from '../../models/families.js';
import { type Cluster, clusterSize, parseCluster } from '../cost-model/cluster.js';
import { DEVICE_OVERHEAD } from '../cost-model/hardware.js';
import { onNodes } from '../cost-model/node-kinds.js';
import type { Degrees, MeshOrder, StepConfiguration } from '../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../cost-model/step/constants.js';
import { type Held, NONE } from '../cost-model/step/data-price.js';
import { groupRuns, membersAt } from '../cost-model/step/mesh-order.js';
import { modelFlops } from '../cost-model/step/model-flops.js';
import { hostUpdateSeconds, offloadsActivations, offloadsOptimizer } from '../cost-model/step/offload.js';
import { type PartsBytes, partBytes } from '../cost-model/step/part-bytes.js';
import { type PartPhases, type PartPrices, partPhases, priceParts, updatedOf } from '../cost-model/step/part-price.js';
import { stageMemory } from '../cost-model/step/step-memory.js';
import { priceStep, priceStepExactly } from '../cost-model/step/step-price.js';
import type { ModelWork } from '../cost-model/step/work.js';
import { AutoparError } from '../ir/error.js';
import {
  bestConfigurations,
  type Found,
  type SearchOptions,
  type Verdict,
} from '../search/configurations/best-configurations.js';
import { boundOfCuts } from '../search/configurations/cut-bound.js';
import { cutUnevenly, isMixable, type StepPricing } from '../search/configurations/cut-unevenly.js';
import { fewestRecomputed } from '../search/configurations/fewest-recomputed.js';
import { meshOrders, type OrderPlaces } from '../search/configurations/mesh-orders.js';
import type { Priced } from '../search/configurations/priced.js';
import {
  type Combination,
  combinations,
  type Decided,
  factsOf,
  type SpaceOptions,
} from '../search/configurations/space.js';
import {
  type BoundRequest,
  loosest,
  loosestOfAll,
  paceBound,
  ROUNDING,
  variantBound,
} from '../search/configurations/variant-bound.js';
import { AXIS_ORDER } from '../sharding-propagation/mesh.js';
import { clusterSources } from './cluster-sources.js';
import type { Purpose } from './graph-work.js';
import type { ReadWork } from './layer-classes.js';
import {
  baseConfiguration,
  checkOffload,
  hostMemory,
  type SimulateOptions,
  type Simulation,
  simulationOf,
} from './simulate.js';
import { knownWorks, statedBatch, type WorkReader, workReader } from './step-works.js';

export interface StepSearchOptions extends Omit<SimulateOptions, 'trace'> {
  /** The cluster, where it is there already. */
  readonly on?: Cluster;
  readonly objective?: 'time' | 'memory';
  /** How many combinations of degrees are shown beside the best. */
  readonly top?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

export interface StepSearch extends Found {
  /** The best configuration, priced as `simulate` does. */
  readonly simulation: Simulation;
  /** What the best configuration's work was read off. */
  readonly layers: ReadWork;
  /** (cost − bound) / cost, of the configurations that are in the space. */
  readonly gap: number;
  readonly objective: SearchOptions['objective'];
  /** What was said before the search. */
  readonly decided: Decided;
}

/** A model and a cluster, read: all that searching needs, whatever is changed about the cluster. */
export interface PreparedStep {
  readonly name: string;
  readonly cluster: Cluster;
  readonly space: SpaceOptions;
  readonly works: Works;
  readonly read: WorkReader;
  readonly limitBytes: number | null;
  readonly searching: Omit<SearchOptions, 'limitBytes'>;
}

/**
 * Searches.
 * @throws AutoparError (noPlan) `nothing-fits` with what would, `no-combination`; (usage) for degrees that no combination has; what
 * reading the model and the cluster refuse
 */
export async function searchStep(options: StepSearchOptions): Promise<StepSearch> {
  return searchPrepared(await prepareStep(options));
}

/**
 * Reads what a search needs.
 * @param reader what has read some of it for another cluster of the same devices
 * @throws AutoparError as `searchStep`, but for `nothing-fits`
 */
export async function prepareStep(options: StepSearchOptions, reader?: WorkReader): Promise<PreparedStep> {
  const generated = options.generate === undefined ? null : generatedModel(options.generate);
  const cluster = options.on ?? parseCluster(options.cluster, options.devices, await clusterSources(options.cluster));
  checkOffload(options, cluster);
  const purpose: Purpose = options.loss ? { kind: 'training', loss: options.loss } : { kind: 'inference' };
  const read = reader ?? workReader(options, generated, purpose, cluster);
  options.onProgress?.('reading the layers');
  const globalBatch = await batchOf(options, generated);
  const { space, works } = await spaceOf(options, globalBatch, cluster, read);
  options.onProgress?.('searching');
  return {
    name: generated?.text ?? options.model ?? '',
    cluster,
    space,
    works,
    read,
    limitBytes: options.memory ?? (cluster.local ? null : cluster.device.memoryBytes),
    searching: {
      objective: options.objective ?? 'time',
      top: 1 + (options.top ?? SHOWN),
      ...(options.signal ? { signal: options.signal } : {}),
    },
  };
}

/** Searches what was read. @throws AutoparError (noPlan) `nothing-fits` */
export async function searchPrepared(prepared: PreparedStep): Promise<StepSearch> {
  const { name, cluster, space, works, read, limitBytes, searching } = prepared;
  const pricing = pricingOf(cluster, works, limitBytes, space.decided.recompute === undefined);
  const even = bestConfigurations(space, pricing, { ...searching, limitBytes });
  const request = { space, cluster, works, limitBytes, signal: searching.signal };
  const found = searching.objective === 'time' ? simulatedFirst(cutUnevenly(even, pricing, request), prepared) : even;
  if (found.best.length === 0) throw nothingFits(found.verdicts, limitBytes, cluster);
  const first = found.best[0] as Priced;
  const { configuration } = first;
  const work = works(configuration.degrees.tp, configuration.microBatch);
  const sample = await read(1, 1);
  const simulation = simulationOf({
    ...{ name, cluster, configuration, work, sequence: sample.sequence },
    modelFlops: modelFlops(sample.work, { ...configuration, microBatch: 1 }),
    memory: limitBytes ?? undefined,
  });
  const cost = searching.objective === 'memory' ? first.bytes : first.seconds;
  return {
    ...found,
    simulation,
    layers: await read(configuration.degrees.tp, 1),
    gap: 1 - found.bound / cost,
    objective: searching.objective,
    decided: space.decided,
  };
}

/**
 * The few best in the order of their steps as every action of the schedule is simulated: the closed forms leave out how stages of
 * unequal length wait for each other. They are bounds from below, so that what is above the best simulated step stays behind it.
 */
function simulatedFirst(found: Found, { cluster, works }: PreparedStep): Found {
  const simulated = new Map<Priced, number>();
  for (const priced of found.best.slice(0, MOST_SIMULATED)) {
    if (priced.seconds >= Math.min(...simulated.values())) break;
    const { configuration } = priced;
    const { pp, dp } = configuration.degrees;
    const actions =
      (2 * pp * configuration.virtualStages * configuration.globalBatch) / (configuration.microBatch * dp);
    if (pp === 1 || actions > MOST_ACTIONS) simulated.set(priced, priced.seconds);
    else {
      const work = works(configuration.degrees.tp, configuration.microBatch);
      simulated.set(priced, priceStepExactly(work, configuration, cluster, STEP_CONSTANTS).stepSeconds);
    }
  }
  const seconds = (priced: Priced) => simulated.get(priced) ?? Number.POSITIVE_INFINITY;
  const [first] = [...simulated.keys()].sort((a, b) => seconds(a) - seconds(b));
  if (!first || first === found.best[0]) return found;
  const isFirst = (verdict: Verdict) => verdict.kind === 'priced' && verdict.best === first;
  return {
    ...found,
    best: [first, ...found.best.filter((priced) => priced !== first)],
    verdicts: [...found.verdicts.filter(isFirst), ...found.verdicts.filter((verdict) => !isFirst(verdict))],
  };
}

/** Of the best, how many are simulated; and the actions of a schedule up to which one is: a tenth of a second. */
const MOST_SIMULATED = 3;
const MOST_ACTIONS = 3e5;

export type { Priced, Verdict };

/** Runners-up that are shown where nothing says how many. */
const SHOWN = 5;

/** Samples of a step: as is said, else as the model states; of a model of one sample what micro-batches and dp make of it. */
async function batchOf(options: StepSearchOptions, generated: GeneratedModel | null): Promise<number> {
  const { globalBatch, microBatch = 1, microBatches = 1, dp = 1 } = options;
  if (globalBatch !== undefined) return globalBatch;
  const stated = await statedBatch(options, generated);
  return stated > 1 ? stated : microBatch * microBatches * dp;
}

/** The space, and the works that it asks for. */
async function spaceOf(
  options: StepSearchOptions,
  globalBatch: number,
  cluster: Cluster,
  read: WorkReader,
): Promise<{ readonly space: SpaceOptions; readonly works: Works }> {
  const facts = factsOf((await read(1, 1)).work);
  const space: SpaceOptions = {
    devices: clusterSize(cluster),
    perNode: cluster.perNode,
    globalBatch,
    facts,
    decided: decidedOf(options),
    base: baseConfiguration(options, globalBatch),
  };
  const all = combinations(space);
  const possible = all.filter(({ reason }) => reason === null);
  if (possible.length === 0) throw impossible(all, space);
  const tps = [...new Set(possible.map(({ degrees }) => degrees.tp))];
  const sizes = [...new Set(possible.flatMap(({ microBatches }) => microBatches))].sort((a, b) => a - b);
  return { space, works: await knownWorks(read, tps, sizes, options.signal) };
}

type Works = (tp: number, microBatch: number) => ModelWork;

function decidedOf(options: StepSearchOptions): Decided {
  const { dp, tp, pp, sp, ep, microBatch, microBatches, zero, recompute, schedule, virtualStages } = options;
  const { meshOrder, offload } = options;
  const given = {
    dp,
    tp,
    pp,
    sp,
    ep,
    microBatch,
    microBatches,
    zero,
    recompute,
    schedule,
    virtualStages,
    meshOrder,
    offload,
  };
  const tpSequence = options.tpSequence === 'on' ? true : options.tpSequence === 'off' ? false : undefined;
  return Object.fromEntries(
    Object.entries({ ...given, tpSequence }).filter(([, value]) => value !== undefined),
  ) as Decided;
}

/**
 * What the parts of a model cost, for one combination and micro-batch at a time: its variants share them, whatever their schedule,
 * chunks, and layers that recompute.
 */
class PartsOfStep {
  private degrees: StepConfiguration['degrees'] | null = null;
  private microBatch = 0;
  private readonly known = new Map<string, PartsBytes>();
  private readonly priced = new Map<string, Map<Cluster, PartPrices>>();
  private readonly bounds = new Map<string, number>();
  private readonly paces = new Map<string, number>();
  private readonly timed = new Map<string, Map<Cluster, PartPhases>>();

  constructor(private readonly workOf: (configuration: StepConfiguration) => ModelWork) {}

  prices(configuration: StepConfiguration, cluster: Cluster): PartPrices {
    const key = this.keyOf(configuration);
    const onClusters = this.priced.get(key) ?? new Map<Cluster, PartPrices>();
    this.priced.set(key, onClusters);
    const known = onClusters.get(cluster);
    if (known) return known;
    const made = priceParts(this.workOf(configuration), configuration, cluster, STEP_CONSTANTS, {
      phases: this.phases(configuration, cluster),
      bytes: this.bytes(configuration),
    });
    onClusters.set(cluster, made);
    return made;
  }

  /** The bound by its micro-batches alone, the same for every ZeRO level. */
  pace(configuration: StepConfiguration, request: BoundRequest): number {
    const { schedule, virtualStages, zero } = configuration;
    const same = zero === 0 ? configuration : { ...configuration, zero: 0 as const };
    const key = `${this.keyOf(same)} ${schedule} ${virtualStages}`;
    const found = this.paces.get(key) ?? paceBound(this.prices(same, request.cluster), request);
    this.paces.set(key, found);
    return found;
  }

  /** The bound of all that differ in chunks and recomputation. */
  bound(configuration: StepConfiguration, request: BoundRequest): number {
    const own = loosest(configuration, request.isMixed);
    const key = `${this.keyOf(own)} ${own.schedule}`;
    const found =
      this.bounds.get(key) ?? variantBound(this.prices(own, request.cluster), { ...request, configuration: own });
    this.bounds.set(key, found);
    return found;
  }

  /** Whatever the ZeRO level, the chunks and what recomputes: of one key for all orders with the same groups inside a stage. */
  private phases(configuration: StepConfiguration, cluster: Cluster): PartPhases {
    const { degrees, meshOrder, tpSequence } = configuration;
    const { tp, sp, ep } = groupRuns(degrees, meshOrder);
    const place = meshOrder ? [tp, sp, ep].map((runs) => membersAt(runs, cluster.levels).join(',')).join(' ') : '';
    const key = `${tpSequence} ${place}`;
    const onClusters = this.timed.get(key) ?? new Map<Cluster, PartPhases>();
    this.timed.set(key, onClusters);
    const found =
      onClusters.get(cluster) ?? partPhases(this.workOf(configuration), configuration, cluster, STEP_CONSTANTS);
    onClusters.set(cluster, found);
    return found;
  }

  bytes(configuration: StepConfiguration): PartsBytes {
    const key = this.bytesKeyOf(configuration);
    const found = this.known.get(key) ?? partBytes(this.workOf(configuration), configuration);
    this.known.set(key, found);
    return found;
  }

  private keyOf(configuration: StepConfiguration): string {
    return `${this.bytesKeyOf(configuration)} ${configuration.meshOrder ?? ''}`;
  }

  private bytesKeyOf({
    degrees,
    microBatch,
    recompute,
    zero,
    tpSequence,
    virtualStages,
    offload = 'none',
  }: StepConfiguration): string {
    if (degrees !== this.degrees || microBatch !== this.microBatch) {
      this.known.clear();
      this.priced.clear();
      this.timed.clear();
      this.bounds.clear();
      this.paces.clear();
      this.degrees = degrees;
      this.microBatch = microBatch;
    }
    return `${recompute} ${zero} ${tpSequence} ${virtualStages > 1} ${offload}`;
  }
}

/** What is most often the least first. */
const ZERO_LEVELS = [1, 2, 0, 3] as const;
const RECOMPUTATIONS = ['none', 'selective', 'full'] as const;

/**
 * The cost model as the search asks it.
 * @param isMixed whether layers may keep their activations where others recompute
 */
export function pricingOf(
  cluster: Cluster,
  works: Works,
  limitBytes: number | null = null,
  isMixed = true,
): StepPricing {
  const workOf = ({ degrees, microBatch }: StepConfiguration) => works(degrees.tp, microBatch);
  const models = new Map<string, WholeModel>();
  /** One micro-batch alone, under each order that may be best for it. Of nodes that differ the fastest count: no stage is faster. */
  const alone = (configuration: StepConfiguration): readonly WholeModel[] => {
    const { degrees, microBatch } = configuration;
    const { tp, sp, ep } = degrees;
    const { offload: _, ...one } = { ...configuration, degrees: { tp, sp, ep, dp: 1, pp: 1 }, globalBatch: microBatch };
    return innermost(configuration, cluster).map((meshOrder) => {
      const key = `${tp} ${sp} ${ep} ${microBatch} ${meshOrder}`;
      const found = models.get(key) ?? wholeModel(workOf(configuration), { ...one, meshOrder }, kindsOf(cluster));
      models.set(key, found);
      return found;
    });
  };
  /** What no variant takes less than, whatever the order of the axes: the only bound there is where nodes differ. */
  const wholeAtLeast = (configuration: StepConfiguration): number =>
    Math.min(
      ...alone(configuration).map(
        (model) => boundBy(model, workOf(configuration), configuration) + onHost(model, configuration, cluster),
      ),
    );
  const parts = new PartsOfStep(workOf);
  const orders = new Map<Degrees, readonly OrderPlaces[]>();
  const requestOf = (configuration: StepConfiguration): BoundRequest => ({
    configuration,
    cluster,
    limitBytes,
    isMixed: isMixed && isMixable(configuration),
  });
  /** With activations on the host all layers recompute or none, and the more they recompute the less they move. */
  const moving = (request: BoundRequest, isFree: boolean): number => {
    const { configuration } = request;
    const choices = isFree ? RECOMPUTATIONS : [configuration.recompute];
    const bounds = choices.map((recompute) => {
      const own = loosestOfAll({ ...request, configuration: { ...configuration, recompute } }, 0);
      return paceBound(parts.prices(own.configuration, cluster), own);
    });
    return Math.min(...bounds);
  };
  return {
    seconds: (configuration) => {
      const work = workOf(configuration);
      const prices = (own: Cluster) => parts.prices(configuration, own);
      return priceStep(work, configuration, cluster, STEP_CONSTANTS, prices).stepSeconds;
    },
    closer: (configuration, enough, freely) => {
      if (cluster.kinds) return wholeAtLeast(configuration);
      const own = requestOf(configuration);
      const request = freely ? { ...own, limitBytes: null } : own;
      if (offloadsActivations(configuration)) return moving(request, isMixed);
      let least = Number.POSITIVE_INFINITY;
      for (const zero of ZERO_LEVELS) {
        const loose = loosestOfAll(request, zero);
        least = Math.min(least, variantBound(parts.prices(loose.configuration, cluster), loose));
        if (least <= enough) break;
      }
      return least;
    },
    roughly: (configuration) => {
      if (cluster.kinds) return wholeAtLeast(configuration);
      const request = requestOf(configuration);
      return Math.max(parts.bound(configuration, request), parts.pace(configuration, request));
    },
    variantAtLeast: (configuration) =>
      cluster.kinds
        ? wholeAtLeast(configuration)
        : variantBound(parts.prices(configuration, cluster), requestOf(configuration)),
    cutsAtLeast: (configuration, below) =>
      boundOfCuts(workOf(configuration), requestOf(configuration), (own) => parts.prices(configuration, own), below),
    bytes: (configuration) => {
      const stages = stageMemory(workOf(configuration), configuration, parts.bytes(configuration));
      const fullest = stages.reduce((most, stage) => (stage.total > most.total ? stage : most));
      const host = hostMemory(stages, configuration, cluster);
      return { stage: fullest.stage, bytes: fullest.total, ...(host ? { host } : {}) };
    },
    fitted: (configuration, limitBytes) =>
      fewestRecomputed(workOf(configuration), configuration, limitBytes, parts.bytes(configuration)),
    atLeast: (_, configuration) => wholeAtLeast(configuration),
    placings: {
      orders: (degrees) => {
        const found = orders.get(degrees) ?? meshOrders(degrees, cluster).filter(({ order }) => order !== AXIS_ORDER);
        orders.set(degrees, found);
        return found;
      },
      anywhere: (configuration) => {
        if (cluster.kinds) return wholeAtLeast(configuration);
        const { offload: _, ...here } = configuration;
        const own = loosestOfAll({ ...requestOf(here), limitBytes: null }, 0);
        const prices = parts.prices(own.configuration, cluster);
        const still = {
          ...prices,
          send: { ...prices.send, seconds: 0, blocks: false },
          data: () => NONE,
          optimizerSeconds: () => 0,
        };
        return variantBound(still, own);
      },
      offloads: cluster.device.host ? ['optimizer', 'activations', 'all'] : [],
    },
  };
}

/** Seconds that the host takes at least to update a stage's share of the parameters. */
function onHost({ held }: WholeModel, configuration: StepConfiguration, cluster: Cluster): number {
  if (!offloadsOptimizer(configuration)) return 0;
  const { pp } = configuration.degrees;
  // Whatever the ZeRO level: with state that is shared out each rank updates least.
  const share = updatedOf({ dense: held.dense / pp, experts: held.experts / pp }, { ...configuration, zero: 1 });
  return hostUpdateSeconds(share, configuration, cluster, STEP_CONSTANTS) * ROUNDING;
}

/** Seconds that no variant takes less than, from one micro-batch's through the whole model. */
function boundBy({ whole, largest }: WholeModel, work: ModelWork, configuration: StepConfiguration): number {
  const { pp, dp } = configuration.degrees;
  const layers = work.layers.reduce((sum, { count }) => sum + count, 0);
  const times = configuration.globalBatch / (dp * configuration.microBatch);
  // The slowest stage takes its share at least, and waits for the others once: a third of that under zero-bubble, one
  // chunk's part under interleaving.
  const slowest = pp === 1 ? whole : Math.max(whole / pp, largest);
  const waits = (whole - slowest) * Math.min(1 / 3, 1 / Math.max(1, Math.floor(layers / pp)));
  return times * slowest + waits;
}

/** One micro-batch alone. */
interface WholeModel {
  /** Seconds through the whole model, and through its largest part, which no cut divides. */
  readonly whole: number;
  readonly largest: number;
  /** What a rank of one stage alone would hold. */
  readonly held: Held;
}

function wholeModel(work: ModelWork, configuration: StepConfiguration, clusters: readonly Cluster[]): WholeModel {
  const kinds = clusters.map((own) => {
    const { first, layers, last } = priceParts(work, configuration, own, STEP_CONSTANTS);
    const parts = [{ count: 1, kept: first }, ...layers, { count: 1, kept: last }].map(({ count, kept }) => ({
      count,
      held: kept.held,
      seconds: kept.forwardSeconds + kept.backwardSeconds,
    }));
    const sum = (of: (part: (typeof parts)[number]) => number) =>
      parts.reduce((total, part) => total + part.count * of(part), 0);
    return {
      held: { dense: sum(({ held }) => held.dense), experts: sum(({ held }) => held.experts) },
      whole: sum(({ seconds }) => seconds),
      largest: Math.max(...parts.map(({ seconds }) => seconds)),
    };
  });
  return {
    whole: Math.min(...kinds.map(({ whole }) => whole)),
    largest: Math.min(...kinds.map(({ largest }) => largest)),
    held: kinds[0]?.held ?? { dense: 0, experts: 0 },
  };
}

/** Orders of tp and sp on the innermost ranks: no order puts both of them better than one of these. */
function innermost({ degrees, meshOrder }: StepConfiguration, { perNode }: Cluster): readonly MeshOrder[] {
  if (meshOrder) return [meshOrder];
  const { tp, sp } = degrees;
  return tp > 1 && sp > 1 && tp * sp > perNode ? [AXIS_ORDER, ['pp', 'dp', 'tp', 'sp']] : [AXIS_ORDER];
}

/** One node of each kind; the cluster itself where nodes are alike. */
function kindsOf(cluster: Cluster): readonly Cluster[] {
  let node = 0;
  return (
    cluster.kinds?.map(({ nodes }) => {
      const own = onNodes(cluster, node, 1);
      node += nodes;
      return own;
    }) ?? [cluster]
  );
}

/** Every combination is impossible: the pins say too much, or the batch does not divide. */
function impossible(all: readonly Combination[], { devices, globalBatch, facts, decided }: SpaceOptions): AutoparError {
  const [first] = all;
  return new AutoparError(
    first ? 'no-combination' : 'degrees-do-not-match-devices',
    first ? 'noPlan' : 'usage',
    first
      ? `no combination of degrees for ${devices} devices is possible: ${first.reason}`
      : noDegrees(devices, facts, decided),
    {},
    first
      ? `a step has ${globalBatch} samples: give another --global-batch, or fewer degrees`
      : 'devices = pp · dp · sp · tp, and ep divides dp · sp and the experts; leave one of them out to fill them',
  );
}

/** Which of the degrees that are given leave none for the others. */
function noDegrees(devices: number, { experts, sequence }: SpaceOptions['facts'], decided: Decided): string {
  const { pp, dp, sp, tp, ep = 1 } = decided;
  const given = Object.entries({ pp, dp, sp, tp }).flatMap(([axis, degree]) =>
    degree === undefined ? [] : [{ axis, degree }],
  );
  const product = given.reduce((all, { degree }) => all * degree, 1);
  const text = given.map(({ axis, degree }) => `${axis} ${degree}`).join(' · ');
  if (devices % product !== 0)
    return `${text}${given.length > 1 ? ` is ${product}, which` : ''} does not divide the ${devices} devices`;
  if (given.length === 4 && product !== devices) return `${text} is ${product}, and there are ${devices} devices`;
  if (experts === 1 && ep > 1) return `ep ${ep} spreads experts over ranks, and the model has none`;
  if (experts % ep !== 0) return `ep ${ep} does not divide the ${experts} experts of the model`;
  if (ep > 1)
    return `no dp · sp that ep ${ep} divides is left of ${devices} devices${text === '' ? '' : ` beside ${text}`}`;
  return `${text} is ${product}, and the rest of the ${devices} devices would have to be sp of a sequence of ${sequence}`;
}

/** Nothing fits: what needs least, and what would help. */
function nothingFits(verdicts: readonly Verdict[], limitBytes: number | null, cluster: Cluster): AutoparError {
  const large = verdicts.flatMap((verdict) => (verdict.kind === 'too-large' ? [verdict.least] : []));
  const [least] = large.sort((a, b) => a.bytes - b.bytes);
  if (!least || limitBytes === null) throw new Error('no combination was priced');
  const { degrees, zero, recompute, offload = 'none' } = least.configuration;
  const { host } = least;
  const onHost = offload === 'none' ? '' : `, ${offload === 'all' ? 'optimizer and activations' : offload} on the host`;
  const held = host ? `, and ${gigabytes(host.bytes)} of the ${gigabytes(host.memoryBytes)} on a host` : '';
  const { pp, dp, sp, tp } = degrees;
  // Each device has these whatever it holds; only the rest is shared out.
  const { contextBytes, communicationBytes } = DEVICE_OVERHEAD;
  const fixed = contextBytes + communicationBytes;
  const times = limitBytes > fixed ? Math.ceil((least.bytes - fixed) / (limitBytes - fixed)) : null;
  const more =
    times === null
      ? `more of them do not help: ${gigabytes(fixed)} of each are taken by context and communication`
      : `about ${times} times as many devices`;
  return new AutoparError(
    'nothing-fits',
    'noPlan',
    `nothing fits ${gigabytes(limitBytes)} on ${clusterSize(cluster)} devices: least is needed by pp ${pp} · dp ${dp} · sp ${sp} · tp ${tp}, ZeRO ${zero}, recomputation ${recompute}${onHost}: ${gigabytes(least.bytes)} on stage ${least.stage}${held}`,
    {},
    `take devices with ${gigabytes(least.bytes, 'up')} (--memory)${times === null ? `; ${more}` : `, ${more}`}; or a smaller model; pins of degrees, --zero, --recompute or --offload may stand in the way`,
  );
}

/** @param rounded `up` for what is enough when it is typed in again */
function gigabytes(bytes: number, rounded: 'up' | 'near' = 'near'): string {
  if (rounded === 'near' && bytes >= 999.5e9) return `${(bytes / 1e12).toPrecision(3)} TB`;
  const text = (bytes / 1e9).toPrecision(3);
  if (rounded === 'near' || Number(text) * 1e9 >= bytes) return `${text} GB`;
  const unit = 10 ** (Math.floor(Math.log10(bytes / 1e9)) - 2);
  return `${(Math.ceil(bytes / 1e9 / unit) * unit).toPrecision(3)} GB`;
}
