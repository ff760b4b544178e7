/**
 * @file The output of `autopar compile`: degrees, predictions, the most expensive operators, communication, the verdict.
 */

import type { CompileResult, PlanSummary } from '../api/index.js';
import { namedDegrees } from '../api/words.js';
import { devicesText, kindsJson } from './cluster-text.js';
import { comparedLines } from './compared-report.js';
import { degreesText, stageLayoutText } from './degrees.js';
import { kindsText, largestText, outsideLines, serverText, stateText } from './memory-report.js';
import { scheduleText, stageMeshesText } from './mesh-report.js';
import type { Output } from './output.js';
import { bytesText, portionText, secondsText, shareText } from './quantity.js';
import { numberColumns, tableLines, textColumns } from './table.js';
import { verificationLines } from './verify.js';
import { writtenModelJson } from './write-model.js';

/** The table for people. @param top number of compared plans to show; few where it is left out */
export function resultLines(result: CompileResult, output: Output, top?: number): readonly string[] {
  const { bold, dim } = output.colors;
  return [
    ...planLines(result, output),
    ...section('device subsets', sizeLines(result.sizes ?? []), bold),
    ...section('compared', comparedSection(result, top), bold),
    ...section('best degrees', topLines(result), bold),
    ...section('not chosen', rejectedLines(result), bold),
    '',
    result.programWritten
      ? `plan and program are in ${bold(result.directory)}`
      : `the plan is in ${bold(result.directory)}; ${result.programReason ?? 'no program was written'}`,
    ...leftOutLines(result),
    ...(result.verification ? ['', ...verificationLines(result.verification, output)] : [dim(nextStep(result))]),
  ];
}

/** A plan, and its time and memory. */
export function planLines(summary: PlanSummary, output: Output): readonly string[] {
  const { bold } = output.colors;
  return [
    `${bold(summary.plan.model.name)} on ${clusterText(summary)}`,
    '',
    ...summaryLines(summary),
    ...section('most expensive operators', mostExpensiveLines(summary), bold),
    ...section('communication per step', communicationLines(summary), bold),
    ...section('memory at the peak', memoryLines(summary), bold),
  ];
}

/** The object for programs. */
export function resultJson(result: CompileResult): Readonly<Record<string, unknown>> {
  const { verification } = result;
  const { compared, proposals, top } = result.comparison;
  return {
    schema: 'autopar-compile-v1',
    directory: result.directory,
    ...planJson(result),
    ...(result.sizes ? { sizes: result.sizes } : {}),
    ...(compared ? { compared } : {}),
    ...(proposals ? { proposals } : {}),
    top,
    rejected: result.rejected,
    leftOut: result.leftOut,
    unproposed: result.unproposed,
    exceptions: result.exceptions,
    notes: result.notes,
    programWritten: result.programWritten,
    ...writtenModelJson(result),
    ...(result.programReason === undefined ? {} : { programReason: result.programReason }),
    ...(verification ? { verification } : {}),
  };
}

/** `planLines` for programs. */
export function planJson(summary: PlanSummary): Readonly<Record<string, unknown>> {
  const { plan, precision, heldPrecision, stageLayout, recompute, kept, server, mostExpensive, communication, memory } =
    summary;
  const { model, cluster, degrees, schedule, search } = plan;
  return {
    ...{ model, cluster: { ...cluster, ...kindsJson(summary.cluster) }, degrees, precision },
    ...(heldPrecision === null ? {} : { heldPrecision }),
    ...(stageLayout === null ? {} : { stages: stageLayout, schedule }),
    predicted: predictedJson(plan),
    ...(recompute ? { recompute } : {}),
    search,
    ...(kept ? { zero: kept } : {}),
    ...(server ? { server } : {}),
    ...{ mostExpensive, heaviest: mostExpensive, communication, memory },
  };
}

/** A plan's figures, with units in the names. */
export function predictedJson({ predicted }: CompileResult['plan']): Readonly<Record<string, unknown>> {
  return {
    stepSeconds: predicted.stepSeconds,
    ...(predicted.priceLevel ? { priceLevel: predicted.priceLevel } : {}),
    peakBytes: predicted.peakBytes,
    ...(predicted.outside ? { outside: predicted.outside } : {}),
    partsSeconds: predicted.parts,
    perRankFlops: predicted.flopsPerRank,
    totalFlops: predicted.flopsTotal,
    communicatedBytes: predicted.bytesCommunicated,
  };
}

/** Options that the search left out, and why. */
function leftOutLines({ leftOut, unproposed }: CompileResult): readonly string[] {
  if (leftOut.length === 0) return [];
  const who = unproposed ?? '--objective memory searches them';
  const stages = leftOut.includes('pp') ? '; --pp N plans stages' : '';
  return [`not searched: ${leftOut.join(', ')} (${who}${stages})`];
}

/** `4 × cpu-rank`, `2 × 8 × h100-sxm-80`. */
function clusterText({ plan, cluster }: PlanSummary): string {
  if (cluster.kinds) return devicesText(cluster);
  const { nodes, perNode, device } = plan.cluster;
  return [...(nodes > 1 ? [nodes] : []), perNode, device].join(' × ');
}

/** How many positions a rank has, by which methods, and in which order; why in that one. */
function sequenceLines({ sequence, degrees: { sp } }: PlanSummary['plan']): readonly string[] {
  if (!sequence) return [];
  const { method, attentions = {}, order, positions, why } = sequence;
  const grouped = (count: number) => count.toLocaleString('en-US');
  const share = `${grouped(positions)} positions as ${sp} × ${grouped(Math.ceil(positions / sp))}`;
  const counts = Object.entries(attentions).map(
    ([own, count]) => `${own} in ${count} ${count === 1 ? 'attention' : 'attentions'}`,
  );
  const how = (method === 'auto' ? counts : [method]).map((own) => `, ${own}`).join('');
  return [
    `  sequence   ${share}${how}${order === 'zigzag' ? ' in zig-zag order' : ''}`,
    ...(why === undefined ? [] : [`             ${why}`]),
  ];
}

export function summaryLines(result: PlanSummary): readonly string[] {
  const { plan, precision, heldPrecision, stageLayout, kept, server, memoryBytes } = result;
  const { predicted, search } = plan;
  const degrees = namedDegrees(plan.degrees);
  const peak = Math.max(...predicted.peakBytes);
  const memory = `${bytesText(peak)} of ${memoryBytes === null ? '' : `${bytesText(memoryBytes)} `}memory per rank`;
  const share =
    predicted.flopsTotal > 0
      ? `, ${shareText(predicted.flopsPerRank / predicted.flopsTotal)} of the work per rank`
      : '';
  const hidden = predicted.hiddenSeconds === undefined ? [] : [`  ${hiddenText(plan, predicted.hiddenSeconds)}`];
  return [
    plan.meshes
      ? `  meshes     ${stageMeshesText(plan.meshes)}`
      : `  degrees    ${degrees.map(([axis, degree]) => `${axis} ${degree}`).join(' · ')}`,
    ...(stageLayout === null ? [] : [`  stages     ${stageLayoutText(stageLayout)}, ${scheduleText(plan)}`]),
    ...sequenceLines(plan),
    ...(kept ? [`  zero       ${stateText(kept)}`] : []),
    ...(server ? [`  server     ${serverText(server)}`] : []),
    `  predicted  ${secondsText(predicted.stepSeconds)} per step in ${precision}, ${memory}${share}`,
    ...(heldPrecision === null ? [] : [`  precision  ${heldText(heldPrecision)}`]),
    ...recomputeLines(result),
    ...hidden,
    `  search     ${MODES[search.mode] ?? search.mode}, ${provenText(plan)}`,
  ];
}

/** The formats in which ranks of this machine compute. */
function heldText(precision: string): string {
  return (
    `${precision} is held in fp32, in which ranks of this machine compute, and rounded at each operator: times and bytes are ` +
    'those of fp32'
  );
}

/** Seconds of communication that computation hides, and its kind. */
function hiddenText({ schedule }: CompileResult['plan'], seconds: number): string {
  const text = `${secondsText(seconds)} of communication hidden behind`;
  if (schedule.interleave) return `halves     ${text} the other half's computation`;
  const hasBuckets = schedule.bucketBytes !== undefined || schedule.bucketMembers !== undefined;
  return `${hasBuckets ? 'buckets' : 'overlap'}    ${text} computation`;
}

/** Time added and memory saved, compared with the same plan without recompute. */
function recomputeLines({ recompute, plan }: PlanSummary): readonly string[] {
  if (!recompute) return [];
  const { operators, layers, seconds, freedBytes } = recompute;
  const most = Math.max(...freedBytes);
  const which = [
    `${operators} operators`,
    ...(layers > 0 ? [`of ${layers} layer${layers === 1 ? '' : 's'}`] : []),
    `run again`,
  ].join(' ');
  const share = portionText(seconds / (plan.predicted.stepSeconds - seconds));
  const stages = freedBytes.length > 1 ? ' on the stage with the largest saving' : '';
  return [
    `  recompute  ${which}: ${secondsText(seconds)} more per step (${share}), ${bytesText(Math.max(0, most))} less ` +
      `at the peak${stages}`,
  ];
}

const MODES: Readonly<Record<string, string>> = {
  ilp: 'integer program',
  dynamic_programming: 'dynamic programming',
  recursive_programming: 'recursive programming',
  sharding_propagation: 'sharding propagation',
};

/** How near to the optimum a plan is known to be. */
function provenText({ search, predicted }: CompileResult['plan']): string {
  const { mode, gap, costSeconds } = search;
  if (mode === 'sharding_propagation') return 'from the pins, without a search';
  const proven = gap <= 0 ? 'optimal under the cost model' : `within ${shareText(gap)} of the bound`;
  // On ranks of this machine the runtime's calls and copies come on top, which no strategy is searched for.
  const isPart = predicted.stepSeconds > costSeconds * (1 + 1e-9);
  return isPart ? `${proven} in operators and collectives, ${secondsText(costSeconds)} of the step` : proven;
}

/** Rows of the tables of operators and of collectives. */
const ROWS = 5;

function mostExpensiveLines({ mostExpensive }: PlanSummary): readonly string[] {
  if (mostExpensive.length === 0) return [];
  const columns = [
    ...textColumns('operator', 'type', 'strategy'),
    { title: 'layouts', widest: 96 },
    ...numberColumns('time'),
  ];
  const rows = mostExpensive
    .slice(0, ROWS)
    .map(({ operator, count, op, shown, seconds }) => [
      timesText(operator, count),
      op,
      shown.strategy,
      shown.layouts,
      secondsText(seconds),
    ]);
  return tableLines(columns, rows);
}

function communicationLines(result: PlanSummary): readonly string[] {
  const { communication, plan } = result;
  if (communication.length === 0) {
    const ranks = plan.mesh.reduce((product, { size }) => product * size, 1);
    return [ranks === 1 ? '  none: one rank' : '  none'];
  }
  const columns = [...textColumns('tensor', 'collective', 'over'), ...numberColumns('bytes', 'time')];
  const rows = ofEqualLayers(communication).sort((left, right) => right.seconds - left.seconds);
  const shown = rows.slice(0, ROWS);
  const lines = tableLines(
    columns,
    shown.map(({ label, count, kind, over, bytes, seconds }) => [
      timesText(label, count),
      kind,
      over,
      bytesText(bytes),
      secondsText(seconds),
    ]),
  );
  const rest = rows.slice(shown.length).reduce((sum, { count }) => sum + count, 0);
  return rest > 0 ? [...lines, `  and ${rest} smaller`] : lines;
}

/** Collectives that correspond in equal layers as one each: how many, and their bytes and seconds together. */
function ofEqualLayers(
  communication: CompileResult['communication'],
): (CompileResult['communication'][number] & { readonly count: number })[] {
  const rows = new Map<string, CompileResult['communication'][number] & { readonly count: number }>();
  for (const each of communication) {
    const key = [each.like, each.kind, each.axes, each.bytes].join();
    const row = rows.get(key);
    rows.set(key, {
      ...(row ?? each),
      count: (row?.count ?? 0) + 1,
      bytes: (row?.bytes ?? 0) + each.bytes,
      seconds: (row?.seconds ?? 0) + each.seconds,
    });
  }
  return [...rows.values()];
}

/** `h.0/attn/MatMul ×32`. */
function timesText(name: string, count: number): string {
  return count > 1 ? `${name} ×${count}` : name;
}

/** Stages whose memory is shown: the fullest. */
const STAGES_SHOWN = 4;

function memoryLines({ memory, plan }: PlanSummary): readonly string[] {
  const byPeak = [...memory].sort((a, b) => b.peakBytes - a.peakBytes);
  const shown = new Set(byPeak.slice(0, STAGES_SHOWN));
  const others = byPeak.slice(STAGES_SHOWN).map(({ peakBytes }) => peakBytes);
  return [
    ...memory
      .filter((stage) => shown.has(stage))
      .flatMap((stage) => [
        `  ${memory.length > 1 ? `stage ${stage.stage}: ` : ''}${kindsText(stage)}`,
        `  ${memory.length > 1 ? '  ' : ''}largest: ${largestText(stage, 3)}`,
      ]),
    ...otherStagesLines(others),
    ...outsideLines(plan.predicted.outside ?? []),
  ];
}

/** @param bytes of each stage, most first */
function otherStagesLines(bytes: readonly number[]): readonly string[] {
  if (bytes.length === 0) return [];
  const [most, least] = [bytesText(bytes[0] as number), bytesText(bytes.at(-1) as number)];
  const each = most === least ? most : `${least} to ${most}`;
  const stages = bytes.length === 1 ? '1 other stage' : `${bytes.length} other stages`;
  return [`  ${stages}: ${each} (explain --memory)`];
}

function sizeLines(sizes: NonNullable<CompileResult['sizes']>): readonly string[] {
  if (sizes.length === 0) return [];
  return tableLines(
    [...textColumns('devices'), ...numberColumns('estimate', 'device-seconds')],
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

function comparedSection({ comparison, directory, plan }: CompileResult, top: number | undefined): readonly string[] {
  return comparedLines(comparison, directory, plan.training !== null, top);
}

/** The combinations that `--top` asks for. */
function topLines({ top }: CompileResult): readonly string[] {
  if (top.length < 2) return [];
  const columns = [...textColumns('degrees'), ...numberColumns('step', 'memory per rank'), ...textColumns('because')];
  const rows = top.map(({ degrees, stepNanoseconds, peakBytes, reason }) => [
    degreesText(degrees),
    secondsText(stepNanoseconds / 1e9),
    bytesText(Math.max(...peakBytes)),
    reason ?? 'chosen',
  ]);
  return tableLines(columns, rows, 60);
}

/** Degrees that the sharding planner alone compared. */
function rejectedLines({ rejected, top, comparison }: CompileResult): readonly string[] {
  if (comparison.proposals) return [];
  const told = top.map(({ degrees }) => degreesText(degrees));
  const shown = rejected
    .map(({ degrees, reason }) => [degreesText(degrees), reason] as const)
    .filter(([degrees]) => !told.includes(degrees))
    .slice(0, 4);
  return shown.length === 0 ? [] : tableLines(textColumns('degrees', 'because'), shown, 90);
}

function section(title: string, lines: readonly string[], bold: (text: string) => string): readonly string[] {
  return lines.length === 0 ? [] : ['', bold(title), ...lines];
}

function nextStep({ directory, programWritten, plan }: CompileResult): string {
  const use = plan.training ? `train ${directory} --data FILE` : `run ${directory} --seed 1`;
  return programWritten ? `next: autopar ${use}, autopar verify ${directory}` : '';
}
