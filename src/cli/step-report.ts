/**
 * @file What a search over whole steps prints: the choice, its price and memory, the runners-up, and what rules the others out.
 */
import type { CompiledStep } from '../api/compile-step.js';
import type { DegreesVerdict, PricedConfiguration, StepSearch } from '../api/search-step.js';
import { degreesText } from './choices-report.js';
import { devicesText } from './cluster-text.js';
import { predictedJson } from './compile-report.js';
import type { Output } from './output.js';
import { bytesText, countText, listText, secondsText, shareText, wholeText } from './quantity.js';
import { configurationText, hostLines, simulationJson } from './simulate-report.js';
import { tableLines } from './table.js';

/** From outermost to innermost, where nothing else was chosen. */
const USUAL_ORDER = ['pp', 'dp', 'sp', 'tp'] as const;

/** Verdicts of each kind that are shown beside their number. */
const SHOWN = 3;

export function stepLines({ directory, search }: CompiledStep, { colors }: Output): readonly string[] {
  const { simulation, best, verdicts, priced, gap } = search;
  const { cluster, configuration, stepSeconds, tokensPerSecond, samplesPerSecond, utilisation, stages } = simulation;
  const fullest = stages.reduce((most, stage) => (stage.total > most.total ? stage : most));
  const speed =
    tokensPerSecond === null
      ? `${Number(samplesPerSecond.toPrecision(4))} samples/s`
      : `${wholeText(Math.round(tokensPerSecond))} tokens/s`;
  const of = simulation.memoryBytes === null ? '' : ` of ${bytesText(simulation.memoryBytes)}`;
  return [
    colors.bold(`${simulation.name}, ${configuration.inference ? 'inference' : 'training'} on ${devicesText(cluster)}`),
    '',
    `  degrees    ${degreesText(configuration.degrees)}; batch ${configuration.globalBatch} in ` +
      `${countText(simulation.microBatches, 'micro-batch', 'micro-batches')} of ${configuration.microBatch}`,
    ...orderLines(configuration),
    `  with       ${configurationText(configuration)}`,
    `  predicted  ${secondsText(stepSeconds)} per step in ${configuration.precision} (${simulation.priceLevel}), ${speed}, ` +
      `${shareText(utilisation)} of the 16-bit peak`,
    `  memory     ${bytesText(fullest.total)}${of} on stage ${fullest.stage}`,
    ...hostLines(simulation).map((line) => `  host       ${line}`),
    ...passedLines(search),
    ...fewerLines(search),
    `  search     ${countText(verdicts.length, 'combination')} of degrees, ${wholeText(priced)} ` +
      `${priced === 1 ? 'configuration' : 'configurations'} priced; ` +
      `${search.isCutOff ? 'cut off by the time limit: ' : ''}${provenText(gap)}${withinText(search)}`,
    ...section('parts of the cluster', sizeLines(search.sizes ?? []), colors.bold),
    ...section('runners-up', runnersUp(best.slice(1), search), colors.bold),
    ...section('not chosen', othersLines(verdicts, search), colors.bold),
    '',
    `the plan is in ${colors.bold(directory)}; no program was written, as --plan-only says`,
  ];
}

/** The fastest plan, where a simpler or a roomier one is taken; and that no plan leaves headroom. */
function passedLines({ passed, tight, preferences }: StepSearch): readonly string[] {
  const lines = passed
    ? [
        `${placedText(passed.priced.configuration)}, ${configurationText(passed.priced.configuration)}:`,
        `${secondsText(passed.priced.seconds)}, ${shareText(1 - passed.ratio)} less, ` +
          `${bytesText(passed.priced.bytes)}; ${passed.because}`,
      ]
    : [];
  return [
    ...lines.map((line, index) => `  ${index === 0 ? 'fastest  ' : '         '}  ${line}`),
    ...(tight === null
      ? []
      : [
          `  headroom   no plan leaves ${shareText(preferences.headroom)} of the memory free (${bytesText(tight)} used)`,
        ]),
  ];
}

function fewerLines({ fewer }: StepSearch): readonly string[] {
  if (!fewer) return [];
  const { nodes, perNode, stepSeconds } = fewer;
  return [
    `  fewer      ${countText(nodes * perNode, 'device')} make a step in ${secondsText(stepSeconds)} (${nodes}x${perNode})`,
  ];
}

function provenText(gap: number): string {
  return gap <= 0 ? 'optimal under the cost model' : `no configuration is more than ${shareText(gap)} better`;
}

function withinText(search: StepSearch): string {
  const terms = termsOf(search);
  return terms.length === 0 ? '' : `, with ${listText(terms)}`;
}

/** What the proof takes as given unless it is decided otherwise: it is of this alone. */
function termsOf({ objective, decided, simulation: { configuration, cluster } }: StepSearch): readonly string[] {
  const even = decided.pp === 1 ? [] : ['stages cut evenly'];
  if (objective === 'time') return even;
  const offers = !configuration.inference && cluster.device.host !== undefined;
  return [
    ...(offers && decided.offload === undefined ? ['nothing on the host'] : []),
    ...(decided.meshOrder === undefined ? ['the usual order of the axes'] : []),
    ...even,
    ...(decided.pp === 1 || decided.schedule !== undefined ? [] : ['no naive schedule']),
  ];
}

function sizeLines(sizes: NonNullable<CompiledStep['search']['sizes']>): readonly string[] {
  if (sizes.length === 0) return [];
  return tableLines(
    [{ title: 'devices' }, { title: 'step', right: true }, { title: 'device-seconds', right: true }],
    sizes.map(({ nodes, perNode, firstNode, stepSeconds, deviceSeconds }) => [
      firstNode === undefined ? `${nodes}x${perNode}` : `${nodes}x${perNode}, ${nodesText(firstNode, nodes)}`,
      stepSeconds === null ? 'no plan' : secondsText(stepSeconds),
      deviceSeconds === null ? '' : secondsText(deviceSeconds),
    ]),
  );
}

/** Nodes as cluster files count them: the first is 1. */
function nodesText(first: number, count: number): string {
  return count === 1 ? `node ${first + 1}` : `nodes ${first + 1} to ${first + count}`;
}

/** What is wanted least of stands first, with how much more of it each takes. */
function runnersUp(others: readonly PricedConfiguration[], chosen: StepSearch): readonly string[] {
  if (others.length === 0) return [];
  const isTimed = chosen.objective === 'time';
  const figures = isTimed ? ['step', 'slower', 'memory'] : ['memory', 'more', 'step'];
  return tableLines(
    [{ title: 'degrees' }, { title: 'with' }, ...figures.map((title) => ({ title, right: true }))],
    others.slice(0, 5).map((priced) => {
      const { configuration, bytes } = priced;
      const [step, memory] = [levelledText(priced), bytesText(bytes)];
      const more = shareText(timesOf(priced, chosen) - 1);
      return [
        placedText(configuration),
        configurationText(configuration),
        ...(isTimed ? [step, more, memory] : [memory, more, step]),
      ];
    }),
    70,
  );
}

/** How many times as much of what is wanted least: seconds, or bytes of the fullest stage. */
function timesOf({ seconds, bytes }: PricedConfiguration, chosen: StepSearch): number {
  const { objective, simulation, best } = chosen;
  return objective === 'time' ? seconds / simulation.stepSeconds : bytes / (best[0]?.bytes ?? bytes);
}

/** The same for programs, named by what it is of. */
export function timesJson(priced: PricedConfiguration, chosen: StepSearch): Readonly<Record<string, number>> {
  return { [chosen.objective === 'time' ? 'timesAsLong' : 'timesAsMuch']: timesOf(priced, chosen) };
}

/** Why the rest was not taken: how many of each kind, the nearest of them with its figure. */
function othersLines(verdicts: readonly DegreesVerdict[], chosen: StepSearch): readonly string[] {
  const rows = (['slower', 'unseen', 'too-large', 'impossible'] as const).flatMap((kind) => {
    const own = verdicts.filter((verdict) => verdict.kind === kind);
    const shown = own.slice(0, SHOWN).map((verdict) => [degreesText(verdict.degrees), reasonText(verdict, chosen)]);
    return own.length > SHOWN ? [...shown, [`and ${own.length - SHOWN} more`, REST[kind]]] : shown;
  });
  return rows.length === 0 ? [] : tableLines([{ title: 'degrees' }, { title: 'because' }], rows, 100);
}

const REST = {
  slower: 'are slower than what is shown by their bound',
  unseen: 'were not looked at either',
  'too-large': 'do not fit either',
  impossible: 'are impossible',
} as const;

/** What rules a combination out, with its figure. */
export function reasonText(verdict: DegreesVerdict, chosen: StepSearch): string {
  const { objective, simulation } = chosen;
  switch (verdict.kind) {
    case 'priced': {
      const { configuration, bytes, stage } = verdict.best;
      const times = timesOf(verdict.best, chosen).toPrecision(4);
      if (objective === 'memory')
        return (
          `needs ${bytesText(bytes)} on stage ${stage}, ${times} times as much; takes ` +
          `${levelledText(verdict.best)}${orderNote(configuration)}`
        );
      return `${times} times as long: ${levelledText(verdict.best)}${orderNote(configuration)}`;
    }
    case 'slower':
      return (
        `takes ${secondsText(verdict.atLeastSeconds)} at least, ` +
        `${(verdict.atLeastSeconds / simulation.stepSeconds).toPrecision(3)} times as long`
      );
    case 'unseen':
      return objective === 'memory'
        ? 'not looked at before the time limit'
        : `not looked at before the time limit: takes ${secondsText(verdict.atLeastSeconds)} at least`;
    case 'too-large':
      return `needs ${bytesText(verdict.least.bytes)} on stage ${verdict.least.stage} at least${hostNote(verdict.least)}`;
    case 'impossible':
      return verdict.reason;
  }
}

/** Seconds of a step, and whether they are an estimate: those of what is taken are simulated. */
function levelledText({ seconds, priceLevel }: PricedConfiguration): string {
  return `${secondsText(seconds)}${priceLevel === 'estimate' ? ' (estimate)' : ''}`;
}

/** Where the axes lie, where there are several. */
function orderLines({ degrees, meshOrder = USUAL_ORDER }: PricedConfiguration['configuration']): readonly string[] {
  const used = meshOrder.filter((axis) => degrees[axis] > 1);
  return used.length < 2 ? [] : [`  mesh       ${used.join(', ')} from outermost to innermost`];
}

/** Degrees, with the order of their axes where that is not the usual one. */
export function placedText({ degrees, ...configuration }: PricedConfiguration['configuration']): string {
  return `${degreesText(degrees)}${orderNote({ degrees, ...configuration })}`;
}

function orderNote({ degrees, meshOrder }: PricedConfiguration['configuration']): string {
  if (!meshOrder) return '';
  return `, mesh ${meshOrder.filter((axis) => degrees[axis] > 1).join(', ')}`;
}

function hostNote({ host }: PricedConfiguration): string {
  return host ? `, with ${bytesText(host.bytes)} on its fullest host` : '';
}

function section(title: string, lines: readonly string[], bold: (text: string) => string): readonly string[] {
  return lines.length === 0 ? [] : ['', bold(title), ...lines];
}

export function stepJson({ directory, plan, search }: CompiledStep): Readonly<Record<string, unknown>> {
  const { schema: _, ...simulation } = simulationJson(search.simulation);
  const priced = ({ configuration, seconds, priceLevel, bytes, stage, host }: PricedConfiguration) => ({
    configuration,
    stepSeconds: seconds,
    priceLevel,
    peakBytes: bytes,
    fullestStage: stage,
    ...(host ? { hostBytes: host.bytes, hostMemoryBytes: host.memoryBytes } : {}),
  });
  return {
    schema: 'autopar-compile-v1',
    directory,
    ...simulation,
    model: plan.model,
    degrees: plan.degrees,
    predicted: predictedJson(plan),
    search: {
      ...plan.search,
      combinations: search.verdicts.length,
      priced: search.priced,
      ...(search.objective === 'memory' ? { with: termsOf(search) } : {}),
    },
    ...(search.sizes ? { sizes: search.sizes } : {}),
    preferences: search.preferences,
    fastest: search.passed
      ? {
          ...priced(search.passed.priced),
          because: search.passed.because,
        }
      : null,
    leavesHeadroom: search.tight === null,
    fewerDevices: search.fewer,
    runnersUp: search.best.slice(1).map((one) => ({ ...priced(one), ...timesJson(one, search) })),
    verdicts: search.verdicts.map((verdict) => ({
      kind: verdict.kind,
      degrees: verdict.degrees,
      ...(verdict.kind === 'priced' ? { ...priced(verdict.best), ...timesJson(verdict.best, search) } : {}),
      ...(verdict.kind === 'slower' || verdict.kind === 'unseen' ? { atLeastSeconds: verdict.atLeastSeconds } : {}),
      ...(verdict.kind === 'too-large' ? priced(verdict.least) : {}),
      ...(verdict.kind === 'impossible' ? { reason: verdict.reason } : {}),
    })),
    programWritten: false,
    programReason: 'no program was written, as --plan-only says',
  };
}
