/**
 * @file Configurations compared by the price of layers before plans were lowered: the runners-up, the reasons against the other
 * combinations of degrees, the fastest where a simpler one is proposed, and fewer devices that are as fast.
 */
import type { DegreesVerdict, PricedConfiguration, StepSearch } from '../api/index.js';
import { multipleWritten } from '../api/words.js';
import { degreesText } from './degrees.js';
import { bytesText, countText, integerText, listText, portionText, secondsText, shareText } from './quantity.js';
import { configurationText } from './simulate-report.js';
import { tableLines } from './table.js';

/** Runners-up that are shown where nothing says how many. */
const RUNNERS_UP = 5;

/** Verdicts of each kind that are shown beside their number. */
const SHOWN = 3;

/** @param top runners-up that are shown */
export function proposalLines(search: StepSearch, top = RUNNERS_UP): readonly string[] {
  const { verdicts, priced, gap, isCutOff } = search;
  return [
    `  search     ${countText(verdicts.length, 'combination')} of degrees, ${integerText(priced)} ` +
      `${priced === 1 ? 'configuration' : 'configurations'} priced; ` +
      `${isCutOff ? 'cut off by the time limit: ' : ''}${provenText(gap)}${withinText(search)}`,
    ...passedLines(search),
    ...fewerLines(search),
    ...apart(runnersUp(search, top)),
    ...apart(othersLines(search)),
  ];
}

function apart(lines: readonly string[]): readonly string[] {
  return lines.length === 0 ? [] : ['', ...lines];
}

/** The fastest, where a simpler or a roomier one is proposed first. */
function passedLines({ passed }: StepSearch): readonly string[] {
  if (!passed) return [];
  const { configuration, seconds, bytes } = passed.priced;
  return [
    `  fastest    ${degreesText(configuration.degrees)}, ${configurationText(configuration)}:`,
    `             ${secondsText(seconds)}, ${shareText(1 - passed.ratio)} less, ${bytesText(bytes)}; ${passed.because}`,
  ];
}

function fewerLines({ fewer }: StepSearch): readonly string[] {
  if (!fewer) return [];
  const { nodes, perNode, stepSeconds } = fewer;
  return [
    `  fewer      ${countText(nodes * perNode, 'device')} take ${secondsText(stepSeconds)} per step (${nodes}x${perNode})`,
  ];
}

function provenText(gap: number): string {
  return gap <= 0 ? 'optimal under the cost model' : `no configuration is more than ${shareText(gap)} better`;
}

function withinText(search: StepSearch): string {
  const terms = termsOf(search);
  return terms.length === 0 ? '' : `, with ${listText(terms)}`;
}

/** Assumptions of the proof, except those that options decide: it holds only under them. */
function termsOf({ objective, decided, simulation: { configuration, cluster } }: StepSearch): readonly string[] {
  const even = decided.pp === 1 ? [] : ['evenly cut stages'];
  if (objective === 'time') return even;
  const offers = !configuration.inference && cluster.device.host !== undefined;
  return [
    ...(offers && decided.offload === undefined ? ['nothing on the host'] : []),
    ...even,
    ...(decided.pp === 1 || decided.schedule !== undefined ? [] : ['no naive schedule']),
  ];
}

/** The best of each combination that was priced, sorted by the objective: least time, or least memory. */
function runnersUp(search: StepSearch, top: number): readonly string[] {
  const isTimed = search.objective === 'time';
  const figures = isTimed ? ['estimate', 'slower', 'memory'] : ['memory', 'more', 'estimate'];
  const rows = search.best.slice(0, 1 + top).map((priced, index) => {
    const [step, memory] = [levelledText(priced), bytesText(priced.bytes)];
    const more = index === 0 ? '' : portionText(timesOf(priced, search) - 1);
    return [
      degreesText(priced.configuration.degrees),
      configurationText(priced.configuration),
      ...(isTimed ? [step, more, memory] : [memory, more, step]),
    ];
  });
  return tableLines(
    [{ title: 'degrees' }, { title: 'with' }, ...figures.map((title) => ({ title, right: true }))],
    rows,
    70,
  );
}

/** The objective as a multiple of the proposal's: seconds, or bytes of the fullest stage. */
function timesOf({ seconds, bytes }: PricedConfiguration, { objective, simulation, best }: StepSearch): number {
  return objective === 'time' ? seconds / simulation.stepSeconds : bytes / (best[0]?.bytes ?? bytes);
}

/** Why the rest was not proposed: how many of each kind, the nearest of them with its figure. */
function othersLines(search: StepSearch): readonly string[] {
  const rows = (['slower', 'unseen', 'too-large', 'impossible'] as const).flatMap((kind) => {
    const own = search.verdicts.filter((verdict) => verdict.kind === kind);
    const shown = own.slice(0, SHOWN).map((verdict) => [degreesText(verdict.degrees), verdictText(verdict, search)]);
    return own.length > SHOWN ? [...shown, [`and ${own.length - SHOWN} more`, REST[kind]]] : shown;
  });
  return rows.length === 0 ? [] : tableLines([{ title: 'degrees' }, { title: 'because' }], rows, 100);
}

const REST = {
  slower: 'are proven slower than the rows above by their bound',
  unseen: 'were not searched either',
  'too-large': 'do not fit either',
  impossible: 'are impossible',
} as const;

/** The reason that rules a combination out, with its figure. */
export function verdictText(verdict: DegreesVerdict, search: StepSearch): string {
  const { objective, simulation } = search;
  switch (verdict.kind) {
    case 'priced': {
      const { bytes, stage } = verdict.best;
      const [times, takes] = [timesOf(verdict.best, search), levelledText(verdict.best)];
      if (objective === 'time') return `${multipleWritten(times, 'as long')}: ${takes}`;
      return `needs ${bytesText(bytes)} on stage ${stage}, ${multipleWritten(times, 'as much')}; takes ${takes}`;
    }
    case 'slower':
      return (
        `takes ${secondsText(verdict.atLeastSeconds)} at least, ` +
        multipleWritten(verdict.atLeastSeconds / simulation.stepSeconds, 'as long')
      );
    case 'unseen':
      return objective === 'memory'
        ? 'not searched before the time limit'
        : `not searched before the time limit: takes ${secondsText(verdict.atLeastSeconds)} at least`;
    case 'too-large':
      return `needs ${bytesText(verdict.least.bytes)} on stage ${verdict.least.stage} at least${hostNote(verdict.least)}`;
    case 'impossible':
      return verdict.reason;
  }
}

/** Seconds of a step, and whether they are of its closed form: those of the first proposal are simulated. */
function levelledText({ seconds, priceLevel }: PricedConfiguration): string {
  return `${secondsText(seconds)}${priceLevel === 'estimate' ? ' (estimate)' : ''}`;
}

function hostNote({ host }: PricedConfiguration): string {
  return host ? `, with ${bytesText(host.bytes)} on its fullest host` : '';
}

/** The same for programs, with units in the names. */
export function proposalsJson(search: StepSearch): Readonly<Record<string, unknown>> {
  const { verdicts, priced, gap, isCutOff, preferences, passed, tight, fewer, objective } = search;
  return {
    objective,
    combinations: verdicts.length,
    priced,
    gap,
    with: termsOf(search),
    ...(isCutOff ? { timeLimited: true } : {}),
    preferences,
    fastest: passed ? { ...pricedJson(passed.priced), because: passed.because } : null,
    leavesHeadroom: tight === null,
    fewerDevices: fewer,
    verdicts: verdicts.map((verdict) => verdictJson(verdict, search)),
  };
}

function pricedJson({ configuration, seconds, priceLevel, bytes, stage, host }: PricedConfiguration): object {
  return {
    configuration,
    stepSeconds: seconds,
    priceLevel,
    peakBytes: bytes,
    fullestStage: stage,
    ...(host ? { hostBytes: host.bytes, hostMemoryBytes: host.memoryBytes } : {}),
  };
}

function verdictJson(verdict: DegreesVerdict, search: StepSearch): object {
  const { kind, degrees } = verdict;
  const times = search.objective === 'time' ? 'timesAsLong' : 'timesAsMuch';
  return {
    kind,
    degrees,
    ...(kind === 'priced' ? { ...pricedJson(verdict.best), [times]: timesOf(verdict.best, search) } : {}),
    ...(kind === 'slower' || kind === 'unseen' ? { atLeastSeconds: verdict.atLeastSeconds } : {}),
    ...(kind === 'too-large' ? pricedJson(verdict.least) : {}),
    ...(kind === 'impossible' ? { reason: verdict.reason } : {}),
  };
}
