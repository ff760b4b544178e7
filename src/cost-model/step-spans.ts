/**
 * @file The predicted timeline of the ranks of a lowered plan in a step: for a pipeline the simulated schedule, for one stage its
 * nodes one after the other, neighbours of one kind together.
 */
import { halvesIn } from '../partition/interleave.js';
import type { LoweredStage } from '../partition/lower-stages.js';
import { nodesByList, programPhases, runsOfList } from '../partition/program-phases.js';
import type { ShardedGraph } from '../partition/sharded-graph.js';
import type { Schedule } from '../schedule/schedule.js';
import type { SentResult } from '../schedule/simulate.js';
import type { Cluster } from './cluster.js';
import { hiddenBehind } from './data-overlap.js';
import { partName } from './predict.js';
import { IDLE, SENT, simulateStages } from './predict-stages.js';
import { priceNode } from './price.js';

/** Seconds from the step's beginning. */
export interface StepSpan {
  /** The stage, or rank; behind all stages, in their order, the sends of each. */
  readonly line: number;
  readonly from: number;
  readonly until: number;
  /** A phase, or the part of the price: `forward`, `all-reduce(tp)`. */
  readonly kind: string;
  readonly label: string;
}

/** In the order in which they begin, line by line. Takes time linear in actions, or in nodes and micro-batches. */
export function stepSpans(
  stages: readonly LoweredStage[],
  schedule: Schedule | null,
  cluster: Cluster,
): readonly StepSpan[] {
  const [only] = stages;
  if (!schedule) return only ? spansOfOne(only.sharded, cluster) : [];
  const sent: StepSpan[] = [];
  const { timeline, once } = simulateStages(stages, schedule, cluster, (one) =>
    sent.push(...sendSpan(one, stages.length)),
  );
  const actions = schedule.actions.flatMap((list, line) =>
    list.map(({ microBatch, phase, chunk }, index): StepSpan => {
      const from = timeline.starts[line]?.[index] ?? 0;
      const where = schedule.virtualStages > 1 ? `, chunk ${chunk}` : '';
      const label = `${phase} of micro-batch ${microBatch}${where}`;
      return { line, from, until: timeline.ends[line]?.[index] ?? from, kind: phase, label };
    }),
  );
  const updates = once.map((seconds, line): StepSpan => {
    const from = timeline.ends[line]?.at(-1) ?? 0;
    return { line, from, until: from + seconds, kind: 'update', label: 'update' };
  });
  const busy = [...actions, ...updates.filter(({ from, until }) => until > from)];
  return [...busy, ...bubbleSpans(busy, stages.length), ...sent].sort((a, b) => a.line - b.line || a.from - b.from);
}

/** The times in which stages wait for others: what no span of their line covers until the last of all ends. */
export function bubbleSpans(busy: readonly StepSpan[], stages: number): readonly StepSpan[] {
  const end = busy.reduce((latest, { until }) => Math.max(latest, until), 0);
  const lines = Array.from({ length: stages }, (): StepSpan[] => []);
  for (const span of busy) lines[span.line]?.push(span);
  return lines.flatMap((own, line) => {
    const sorted = own.sort((a, b) => a.from - b.from);
    return [...sorted, { from: end }].flatMap(({ from: until }, index): readonly StepSpan[] => {
      const from = sorted[index - 1]?.until ?? 0;
      return until > from ? [{ line, from, until, kind: IDLE, label: IDLE }] : [];
    });
  });
}

/** A result that travels for a while, on the line of its stage's sends. */
export function sendSpan({ from, to, phase, start, end }: SentResult, stages: number): readonly StepSpan[] {
  return end > start
    ? [{ line: stages + from, from: start, until: end, kind: SENT, label: `${phase} to stage ${to}` }]
    : [];
}

/** Most spans that are shown separately: in longer steps each list is one span. */
const MOST = 5000;

function spansOfOne(graph: ShardedGraph, cluster: Cluster): readonly StepSpan[] {
  const exposed = hiddenBehind(graph, cluster)?.exposed;
  const lists = programPhases(graph).map((list) => {
    const runs = list.runs === 'micro' ? Math.max(1, Math.round(runsOfList(list, graph))) : 1;
    const halves = halvesIn(list.runs, graph).length;
    const spans: { kind: string; seconds: number; count: number; first: string }[] = [];
    for (const node of nodesByList(graph).get(list.phase) ?? []) {
      const waited = node.kind === 'communicate' ? exposed?.get(node.name) : undefined;
      const seconds = (halves * (waited === undefined ? priceNode(node, graph, cluster) : waited / runs)) / 1e9;
      const kind = node.kind === 'compute' ? node.phase : partName(node, graph);
      const last = spans.at(-1);
      if (last?.kind === kind) [last.seconds, last.count] = [last.seconds + seconds, last.count + 1];
      else spans.push({ kind, seconds, count: 1, first: node.name });
    }
    return { list, runs, spans: spans.filter(({ seconds }) => seconds > 0) };
  });
  const all = lists.reduce((sum, { runs, spans }) => sum + runs * spans.length, 0);
  const found: StepSpan[] = [];
  let from = 0;
  const add = (kind: string, seconds: number, label: string) => {
    found.push({ line: 0, from, until: from + seconds, kind, label });
    from += seconds;
  };
  const rounds = Math.max(1, ...lists.map(({ runs }) => runs));
  for (let round = 0; round < rounds; round += 1) {
    for (const { list, runs, spans } of lists) {
      if (list.runs !== 'micro' || round >= runs) continue;
      const which = rounds > 1 ? ` of micro-batch ${round}` : '';
      if (all > MOST) add(list.phase, total(spans), `${list.phase}${which}`);
      else for (const own of spans) add(own.kind, own.seconds, `${spanText(own)}${which}`);
    }
  }
  for (const { list, spans } of lists) {
    if (list.runs !== 'micro') for (const own of spans) add(own.kind, own.seconds, spanText(own));
  }
  return found;
}

function total(spans: readonly { readonly seconds: number }[]): number {
  return spans.reduce((sum, { seconds }) => sum + seconds, 0);
}

function spanText({ kind, count, first }: { readonly kind: string; readonly count: number; readonly first: string }) {
  return `${kind}: ${first}${count > 1 ? ` and ${count - 1} more` : ''}`;
}
