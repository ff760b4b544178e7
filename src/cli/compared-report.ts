/**
 * @file What was compared with a plan, as text: a row per combination of degrees (plans as lowered, then estimates, then bounds),
 * the extent of the search, the fastest step where a simpler one is proposed, and fewer devices that are as fast.
 */
import type { ComparedRecord, PlanComparison, ProposalsRecord, VerdictRecord } from '../api/index.js';
import { multipleWritten, shellWord } from '../api/words.js';
import { degreesText } from './degrees.js';
import { bytesText, countText, integerText, listText, secondsText, shareText } from './quantity.js';
import { configurationText } from './simulate-report.js';
import { numberColumns, tableLines, textColumns } from './table.js';

/** A combination of degrees that was compared. */
export interface ComparedRow {
  readonly degrees: string;
  readonly microBatches: number | null;
  /** The settings besides degrees; empty where only a bound is known. */
  readonly settings: string;
  readonly estimateSeconds: number | null;
  /** As lowered. */
  readonly stepSeconds: number | null;
  /** The fullest device's: as lowered, else as estimated. */
  readonly peakBytes: number | null;
  /** Why it was not taken; null for the one that was. */
  readonly reason: string | null;
  readonly kind: 'lowered' | VerdictRecord['kind'];
}

/** Rows that are shown beside the plan where nothing says how many. */
const OTHERS = 5;

/** @param top rows beside the plan that are shown */
export function comparedLines(
  comparison: PlanComparison,
  directory: string,
  isTraining: boolean,
  top = OTHERS,
): readonly string[] {
  const rows = comparedRows(comparison, isTraining);
  const { proposals } = comparison;
  const table =
    rows.length > 1 ? [...tableOf(rows.slice(0, 1 + top)), ...restLines(rows.slice(1 + top), directory)] : [];
  const { fastest, fewerDevices, timeLimited } = proposals ?? {};
  if (!proposals || !(table.length > 0 || fastest || fewerDevices || timeLimited)) return table;
  return [...table, ...searchLines(proposals), ...passedLines(proposals), ...fewerLines(proposals)];
}

/** The combinations of degrees, the chosen one first. */
export function comparedRows(comparison: PlanComparison, isTraining: boolean): readonly ComparedRow[] {
  const { proposals } = comparison;
  const verdicts = new Map(proposals?.verdicts.map((verdict) => [degreesText(verdict.degrees), verdict]));
  const rejected = new Map(comparison.rejected.map(({ degrees, reason }) => [degreesText(degrees), reason]));
  const rows = new Map<string, ComparedRow>();
  for (const own of comparison.compared ?? []) {
    const degrees = degreesText(own.degrees);
    if (!rows.has(degrees)) rows.set(degrees, loweredRow(own, verdicts.get(degrees), comparison, isTraining));
  }
  for (const [degrees, verdict] of verdicts) {
    const row = verdictRow(degrees, verdict, comparison, isTraining);
    const reason = rejected.get(degrees);
    if (!rows.has(degrees)) rows.set(degrees, reason === undefined ? row : { ...row, reason, kind: 'lowered' });
  }
  return [...rows.values()];
}

function loweredRow(
  own: ComparedRecord,
  verdict: VerdictRecord | undefined,
  comparison: PlanComparison,
  isTraining: boolean,
): ComparedRow {
  const { microBatches, estimate, stepSeconds, peakBytes, reason } = own;
  return {
    degrees: degreesText(own.degrees),
    microBatches: isTraining ? microBatches : null,
    settings: settingsText(own, isTraining),
    estimateSeconds: estimate?.stepSeconds ?? null,
    stepSeconds,
    peakBytes: peakBytes ?? estimate?.peakBytes ?? null,
    reason: verdict && isOpen(own, verdict) ? openText(own, verdict, comparison) : reason,
    kind: 'lowered',
  };
}

/** Where degrees did not fit without ZeRO and recompute, the verdict is on their other configurations. */
function isOpen({ stepSeconds, proposed }: ComparedRecord, { kind }: VerdictRecord): boolean {
  return stepSeconds === null && !proposed && kind !== 'impossible';
}

function openText({ reason }: ComparedRecord, verdict: VerdictRecord, comparison: PlanComparison): string {
  return `${reason}; otherwise ${verdictText(verdict, comparison)}`;
}

/** By combination of degrees all that rules it out: the verdict of the search, and why the lowered plan was not taken. */
export function rejectedReasons(comparison: PlanComparison, isTraining: boolean): ReadonlyMap<string, string> {
  const compared = new Map(
    (comparison.compared ?? []).map((own) => [degreesText(own.degrees), own] as const).reverse(),
  );
  const reasons = new Map<string, string>();
  for (const verdict of comparison.proposals?.verdicts ?? []) {
    const degrees = degreesText(verdict.degrees);
    const own = compared.get(degrees);
    reasons.set(degrees, own ? loweredText(own, verdict, comparison) : verdictText(verdict, comparison));
  }
  for (const { degrees, reason } of comparedRows(comparison, isTraining))
    if (reason !== null && !reasons.has(degrees)) reasons.set(degrees, reason);
  return reasons;
}

function loweredText(own: ComparedRecord, verdict: VerdictRecord, comparison: PlanComparison): string {
  if (isOpen(own, verdict)) return openText(own, verdict, comparison);
  const text = verdictText(verdict, comparison);
  if (own.reason === null) return text;
  const step = own.stepSeconds === null ? '' : `as lowered ${secondsText(own.stepSeconds)}, `;
  return `${text}; ${step}${own.reason}`;
}

/** The proposal without its degrees; the strategies of operators state how tp shards norms. */
function settingsText({ degrees, proposed, axes }: ComparedRecord, isTraining: boolean): string {
  if (!proposed) return axes === 'free' ? 'operator search, free axes' : 'operator search, axis roles';
  return configurationText({ ...proposed, degrees: { ...degrees, tp: 1 }, tpSequence: false, inference: !isTraining });
}

function verdictRow(
  degrees: string,
  verdict: VerdictRecord,
  comparison: PlanComparison,
  isTraining: boolean,
): ComparedRow {
  const { kind } = verdict;
  const priced = kind === 'priced' ? verdict : null;
  const { globalBatch, microBatch, degrees: own } = priced?.configuration ?? {};
  return {
    degrees,
    kind,
    microBatches: isTraining && own ? (globalBatch ?? 1) / ((microBatch ?? 1) * own.dp) : null,
    settings: priced ? configurationText(priced.configuration) : '',
    estimateSeconds: priced?.stepSeconds ?? null,
    stepSeconds: null,
    peakBytes: kind === 'priced' || kind === 'too-large' ? verdict.peakBytes : null,
    reason: shortVerdict(verdict, comparison),
  };
}

/** The verdict beside columns that have its figures. */
function shortVerdict(verdict: VerdictRecord, comparison: PlanComparison): string {
  return verdict.kind === 'priced'
    ? `${timesText(verdict, comparison)} by the estimate`
    : verdictText(verdict, comparison);
}

function tableOf(rows: readonly ComparedRow[]): readonly string[] {
  return tableLines(
    [
      ...textColumns('degrees'),
      { title: 'with', widest: 70 },
      ...numberColumns('estimate', 'step', 'memory'),
      { title: 'because', widest: 120, isProse: true },
    ],
    rows.map((row) => [
      row.degrees,
      settingsOf(row),
      row.estimateSeconds === null ? '' : secondsText(row.estimateSeconds),
      row.stepSeconds === null ? '' : secondsText(row.stepSeconds),
      row.peakBytes === null ? '' : bytesText(row.peakBytes),
      row.reason ?? 'chosen',
    ]),
  );
}

/** `4 micro-batches, ZeRO 2, nothing recomputed`; empty where only a bound is known. */
export function settingsOf({ microBatches, settings }: ComparedRow): string {
  if (microBatches === null) return settings;
  return `${countText(microBatches, 'micro-batch', 'micro-batches')}, ${settings}`;
}

/** How many combinations of each kind are not shown. */
function restLines(rest: readonly ComparedRow[], directory: string): readonly string[] {
  const counts = (Object.keys(REST) as (keyof typeof REST)[]).flatMap((kind) => {
    const count = rest.filter((row) => row.kind === kind).length;
    return count > 0 ? [`${count} ${REST[kind]}`] : [];
  });
  if (rest.length === 0) return [];
  return [`  and ${rest.length} more: ${counts.join(', ')} (explain ${shellWord(directory)} --rejected)`];
}

const REST = {
  lowered: 'planned',
  priced: 'worse by the estimate',
  slower: 'proven slower by the bound',
  unseen: 'not searched before the time limit',
  'too-large': 'too large',
  impossible: 'impossible',
} as const;

function searchLines({ combinations, priced, gap, timeLimited, with: terms }: ProposalsRecord): readonly string[] {
  const proven = gap <= 0 ? 'none is better' : `none is more than ${shareText(gap)} better`;
  const within = terms.length === 0 ? '' : `, with ${listText(terms)}`;
  return [
    `  search     ${countText(combinations, 'combination')} of degrees, ${integerText(priced)} ` +
      `${priced === 1 ? 'configuration' : 'configurations'} priced; ` +
      `${timeLimited ? 'cut off by the time limit: ' : ''}by the estimate, ${proven}${within}`,
  ];
}

/** The fastest, where a simpler or a roomier one is proposed first. */
function passedLines({ fastest, first }: ProposalsRecord): readonly string[] {
  if (!fastest) return [];
  const { configuration, stepSeconds, peakBytes, because } = fastest;
  return [
    `  fastest    by the estimate ${degreesText(configuration.degrees)}, ${configurationText(configuration)}: ` +
      `${secondsText(stepSeconds)}, ${shareText(1 - stepSeconds / first.stepSeconds)} less, ${bytesText(peakBytes)}; ${because}`,
  ];
}

function fewerLines({ fewerDevices }: ProposalsRecord): readonly string[] {
  if (!fewerDevices) return [];
  const { nodes, perNode, stepSeconds } = fewerDevices;
  const devices = nodes * perNode;
  const take = devices === 1 ? 'takes' : 'take';
  return [
    `  fewer      by the estimate ${countText(devices, 'device')} ${take} ${secondsText(stepSeconds)} per step ` +
      `(${nodes}x${perNode})`,
  ];
}

/** The estimate of the plan, or of the first proposal where the plan has none: verdicts compare with it. */
function reference({ compared, proposals }: PlanComparison): {
  readonly stepSeconds: number;
  readonly peakBytes: number;
  readonly isPlan: boolean;
} {
  const plan = compared?.[0]?.estimate;
  if (plan) return { ...plan, isPlan: true };
  const { stepSeconds = Number.NaN, peakBytes = Number.NaN } = proposals?.first ?? {};
  return { stepSeconds, peakBytes, isPlan: false };
}

/** The same with its settings, in words. */
export function referenceText({ compared, proposals }: PlanComparison, isTraining: boolean): string {
  const [plan] = compared ?? [];
  if (plan?.estimate) return estimatedText(plan.degrees, settingsText(plan, isTraining), plan.estimate.stepSeconds);
  return proposals ? firstText(proposals) : '';
}

/** The first proposal, in words. */
export function firstText({ first: { configuration, stepSeconds } }: ProposalsRecord): string {
  return estimatedText(configuration.degrees, configurationText(configuration), stepSeconds);
}

function estimatedText(degrees: VerdictRecord['degrees'], settings: string, seconds: number): string {
  return `${degreesText(degrees)}, ${settings}, estimated at ${secondsText(seconds)}`;
}

/** A multiple of the plan's figure: `1.02 times as long`, `as long as the plan`. */
function timesText(verdict: VerdictRecord, comparison: PlanComparison): string {
  const known = reference(comparison);
  const isLarger = verdict.kind === 'priced' && comparison.proposals?.objective === 'memory';
  const seconds =
    'stepSeconds' in verdict ? verdict.stepSeconds : 'atLeastSeconds' in verdict ? verdict.atLeastSeconds : 0;
  const same = isLarger ? 'as much' : 'as long';
  const text = multipleWritten(isLarger ? verdict.peakBytes / known.peakBytes : seconds / known.stepSeconds, same);
  return text === same && known.isPlan ? `${same} as the plan` : text;
}

/** The reason that rules a combination out, with its figure. */
function verdictText(verdict: VerdictRecord, comparison: PlanComparison): string {
  const isTimed = comparison.proposals?.objective === 'time';
  switch (verdict.kind) {
    case 'priced': {
      const { peakBytes, fullestStage, stepSeconds, priceLevel } = verdict;
      const takes = `${secondsText(stepSeconds)}${priceLevel === 'estimate' ? ' (estimate)' : ''}`;
      const times = timesText(verdict, comparison);
      return isTimed
        ? `${times}: ${takes}`
        : `needs ${bytesText(peakBytes)} on stage ${fullestStage}, ${times}; takes ${takes}`;
    }
    case 'slower':
      return `takes ${secondsText(verdict.atLeastSeconds)} at least, ${timesText(verdict, comparison)}`;
    case 'unseen':
      return `not searched before the time limit${isTimed ? `: takes ${secondsText(verdict.atLeastSeconds)} at least` : ''}`;
    case 'too-large': {
      const { peakBytes, fullestStage, hostBytes } = verdict;
      const host = hostBytes === undefined ? '' : `, with ${bytesText(hostBytes)} on its fullest host`;
      return `needs ${bytesText(peakBytes)} on stage ${fullestStage} at least${host}`;
    }
    case 'impossible':
      return verdict.reason;
  }
}
