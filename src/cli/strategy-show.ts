/**
 * @file `autopar strategy show`: a checkpoint of any form as a table.
 */

import type { ExitKind, Shown } from '../api/index.js';
import { camelCase, listedDegrees, withoutUndefined } from '../api/words.js';
import type { Command, CommandContext } from './command.js';
import { scheduleText, stageMeshesText } from './mesh-report.js';
import type { Output } from './output.js';
import { bytesText, countText, listText, secondsText } from './quantity.js';
import { configurationOption, printNotes, strategyData } from './strategy-options.js';
import { type Column, numberColumns, tableLines, textColumns } from './table.js';

interface ShowFlags {
  readonly all?: boolean;
  readonly configuration?: string;
}

export const showCommand: Command<ShowFlags> = {
  name: 'show',
  says: 'print the decisions of a checkpoint of any form',
  arguments: [
    { name: '<checkpoint>', says: 'compiled folder, plan.json, MindSpore checkpoint or annotated ONNX model' },
  ],
  options: [{ flags: '--all', says: 'all rows; by default the first 40 per table' }, configurationOption],
  examples: [
    { line: 'autopar strategy show mlp.ckpt', says: "MindSpore's split counts and layouts" },
    { line: 'autopar strategy show mlp-annotated.onnx --json', says: 'the plan in an annotated model, for programs' },
  ],
  run: runShow,
};

async function runShow(context: CommandContext, [file = '']: readonly string[], flags: ShowFlags): Promise<ExitKind> {
  const { output } = context;
  const { axesInWords, operatorText, showStrategy } = await import('../api/index.js');
  const { configuration, all = false } = flags;
  const shown = await showStrategy(file, withoutUndefined({ configuration }));
  if ('notes' in shown) printNotes(output, shown.notes);
  const most = all ? Number.POSITIVE_INFINITY : 40;
  const lines =
    'plan' in shown
      ? shownPlanLines(shown, output, most, { operatorText, axesInWords })
      : 'document' in shown
        ? documentLines(shown, output, most)
        : pinLines(shown, output, most);
  for (const line of lines) output.print(line);
  strategyData(output, 'show', shownData(shown));
  return 'done';
}

type PlanShown = Extract<Shown, { plan: unknown }>;

function shownPlanLines(
  { plan, form, proposed }: PlanShown,
  output: Output,
  most: number,
  { operatorText, axesInWords }: Pick<typeof import('../api/index.js'), 'operatorText' | 'axesInWords'>,
): readonly string[] {
  const { model, cluster, degrees, layerClasses, predicted, pins, stages, requested = {} } = plan;
  const precision = predicted.precision === undefined ? '' : ` in ${predicted.precision}`;
  const repeated = layerClasses.map(({ name, instances, stages, chunks, recompute }) => {
    const on = stages
      ? `, on ${numbersText('stage', stages)}${chunks ? ` (${numbersText('chunk', chunks)})` : ''}`
      : '';
    const again = recompute
      ? `, of which ${instances.filter((_, index) => recompute[index]).join(', ')} recompute`
      : '';
    return `${name} stands for ${countText(instances.length, 'layer')}${on}${again}`;
  });
  const pipeline = stages.map(
    ({ operators, devices }, stage) =>
      `stage ${stage}    ${countText(operators, 'operator')} on ${countText(devices, 'device')}`,
  );
  const axes = plan.meshes ? stageMeshesText(plan.meshes) : listedDegrees(degrees);
  // A search over training steps leaves its proposal to the operators' planner as pins: they are no one's request.
  const isProposed = (name: string) =>
    proposed.some((option) => option === camelCase(name)) || (proposed.length > 0 && name === 'stages');
  const given = pins.filter((pin) => !isProposed(/^([\w-]+)=/.exec(pin)?.[1] ?? ''));
  return [
    `plan of ${model.name}${form === 'onnx' ? ', in an annotated model' : ''}, version ${plan.version}`,
    `  model      ${model.fingerprint.slice(0, 16)}${Object.entries(model.dims)
      .map(([name, size]) => `, ${name} ${size}`)
      .join('')}${model.globalBatch === null ? '' : `, rebuilt at batch ${model.globalBatch}`}`,
    `  devices    ${cluster.nodes}x${cluster.perNode}:${cluster.device}, ${axes}`,
    `  predicted  ${secondsText(predicted.stepSeconds)} per step${precision}, ` +
      `${predicted.peakBytes.map(bytesText).join(' + ')} of memory, ${bytesText(predicted.bytesCommunicated)} received per rank`,
    ...(given.length > 0 ? [`  pinned     ${given.join(', ')}`] : []),
    ...(plan.server ? [`  server     the first rank of ${plan.server.join(' · ')} updates`] : []),
    ...Object.entries(requested).map(
      ([name, word]) => `  ${isProposed(name) ? 'proposed ' : 'requested'}  ${name} ${word}`,
    ),
    ...(stages.length > 1 ? [`  schedule   ${scheduleText(plan)}`, ...pipeline.map((line) => `  ${line}`)] : []),
    ...repeated.map((line) => `  ${line}`),
    '',
    ...table(
      output,
      most,
      'operators',
      textColumns('operator', 'strategy'),
      Object.entries(plan.operators).map(([name, entry]) => [name, operatorText(entry, plan)]),
    ),
    ...table(
      output,
      most,
      'sharded tensors',
      textColumns('tensor', 'layout'),
      Object.entries(plan.tensors).map(([name, layout]) => [name, axesInWords(layout, plan)]),
    ),
    ...table(
      output,
      most,
      'reshards',
      textColumns('tensor', 'layout', 'by', 'for'),
      Object.entries(plan.redistributions).flatMap(([name, views]) =>
        views.map(({ layout, steps, readers }) => [
          name,
          axesInWords(layout, plan),
          axesInWords(steps.join(', '), plan) || '–',
          readers.join(', '),
        ]),
      ),
    ),
  ];
}

/** `stage 0`, `stages 0 and 3`, `chunks 0–3`: those among the numbers. */
function numbersText(thing: string, numbers: readonly number[]): string {
  const own = [...new Set(numbers)].sort((a, b) => a - b);
  const [first = 0, last = 0] = [own[0], own.at(-1)];
  const isRun = own.length > 2 && last - first === own.length - 1;
  return `${thing}${own.length === 1 ? '' : 's'} ${isRun ? `${first}–${last}` : listText(own.map(String))}`;
}

function documentLines(
  { document, form }: Extract<Shown, { document: unknown }>,
  output: Output,
  most: number,
): readonly string[] {
  const stages = new Set([...document.operators.values()].map(({ stage }) => stage));
  return [
    `MindSpore strategy checkpoint${form === 'mindspore-json' ? ' in JSON' : ''}: ` +
      `${countText(document.operators.size, 'operator')}, ${countText(document.parameters.size, 'parameter')}, ` +
      `${countText(stages.size, 'stage')}`,
    '',
    ...table(
      output,
      most,
      'operators',
      [...textColumns('operator'), ...numberColumns('stage'), ...textColumns('splits of operands')],
      [...document.operators].map(([key, { stage, splits }]) => [key, String(stage), splits.map(tuple).join(' ')]),
    ),
    ...table(
      output,
      most,
      'parameters',
      textColumns('parameter', 'device matrix', 'tensor map'),
      [...document.parameters].map(([name, { deviceMatrix, tensorMap }]) => [
        name,
        tuple(deviceMatrix),
        `(${tensorMap.map((axes) => (axes.length === 1 ? `${axes[0]}` : tuple(axes))).join(',')})`,
      ]),
    ),
  ];
}

function pinLines({ pins }: Extract<Shown, { pins: unknown }>, output: Output, most: number): readonly string[] {
  const mesh = Object.entries(pins.mesh ?? {}).map(([axis, size]) => `${axis} ${size}`);
  return [
    'multi-device annotations of an ONNX model: ' +
      `${countText(pins.pins.length, 'pin')}${mesh.length > 0 ? ` on ${mesh.join(' · ')}` : ''}`,
    '',
    ...table(
      output,
      most,
      'pins',
      textColumns('of', 'requested'),
      pins.pins.map(({ match, why: _why, ...asked }) => [
        Object.values(match).join(' '),
        Object.entries(asked)
          .map(([key, value]) => `${key} ${typeof value === 'string' ? value : JSON.stringify(value)}`)
          .join(', '),
      ]),
    ),
  ];
}

function table(
  output: Output,
  most: number,
  title: string,
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
): readonly string[] {
  if (rows.length === 0) return [];
  const rest = rows.length - most;
  return [
    output.colors.bold(`${title} (${rows.length})`),
    ...tableLines(columns, rows.slice(0, most), 64),
    ...(rest > 0 ? [`  … and ${rest} more (--all)`] : []),
    '',
  ];
}

function tuple(values: readonly number[]): string {
  return `(${values.join(',')})`;
}

/** Maps as plain objects, for JSON. */
function shownData(shown: Shown): Readonly<Record<string, unknown>> {
  if (!('document' in shown)) return { ...shown };
  const { document, ...rest } = shown;
  const maps = Object.entries(document).map(([key, value]) => [
    key,
    value instanceof Map ? Object.fromEntries(value) : value,
  ]);
  return { ...rest, document: Object.fromEntries(maps) };
}
