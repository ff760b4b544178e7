/**
 * @file The output of `autopar inspect` for people, in lines of at most a hundred columns.
 */

import type { Inspection } from '../api/index.js';
import { REGION_DOMAIN, shellWord } from '../api/words.js';
import type { InspectedParameter } from './inspect-json.js';
import type { Output } from './output.js';
import { bytesText, countText, flopsText, integerText } from './quantity.js';
import { type Column, numberColumns, printable, tableLines, textColumns } from './table.js';
import { trainingLines } from './training-report.js';

type ReportRow = readonly string[];

/** Rows of a table that are shown; the others are counted. */
const SHOWN = 10;
const WIDEST_NAME = 36;

/** The report; `allParameters` lists every one. */
export function inspectionLines(inspection: Inspection, output: Output, allParameters: boolean): readonly string[] {
  const { bold, dim } = output.colors;
  const section = (title: string, lines: readonly string[]): readonly string[] =>
    lines.length === 0 ? [] : ['', bold(title), ...lines];
  return [
    bold(printable(inspection.name)),
    ...inspectedLines(inspection),
    ...section('inputs and outputs', tensorLines(inspection)),
    ...section('open dimensions', openLines(inspection)),
    ...section('operators', operatorLines(inspection)),
    ...section('layers', layerLines(inspection)),
    ...section('units of stages', unitLines(inspection)),
    ...section('fused regions', regionLines(inspection)),
    ...section(allParameters ? 'parameters' : 'largest parameters', parameterLines(inspection, allParameters)),
    ...section('shared or untied', decisionLines(inspection, allParameters)),
    ...section('not trained', untrainedLines(inspection, allParameters)),
    ...section('would be replicated', replicatedLines(inspection)),
    ...(inspection.training ? section('training', trainingLines(inspection.training, allParameters)) : []),
    ...(allParameters ? [] : ['', dim('--parameters lists every parameter, --json prints everything')]),
  ];
}

function inspectedLines(inspection: Inspection): readonly string[] {
  const { file, parameters, operators, layers, totalFlops, totalBytes, batch } = inspection;
  const opsets = Object.entries(file.opsets).map(
    ([domain, version]) => `${domain === '' ? '' : `${domain} `}${version}`,
  );
  const count = operators.reduce((sum, row) => sum + row.count, 0);
  const layerCount = layers.reduce((sum, { instances }) => sum + instances.length, 0);
  const functions = file.functions > 0 ? `, ${countText(file.functions, 'function')} inlined` : '';
  const trained = parameters.parameters.filter(({ trainable }) => trainable);
  const all = trained.length === parameters.parameters.length;
  const training = all ? 'all trained' : `${integerText(elementsOf(trained))} of them trained`;
  const written = integerText(file.operators);
  const intensity = totalBytes > 0 ? `, ${Number((totalFlops / totalBytes).toPrecision(3))} FLOP per byte` : '';
  const facts: readonly ReportRow[] = [
    [
      'file',
      [
        file.producer || 'unknown producer',
        `opset ${opsets.join(', ')}`,
        `IR ${file.irVersion}`,
        bytesText(file.bytes),
      ].join(' · '),
    ],
    [
      'graph',
      `${countText(count, 'operator')} (${written} in the file${functions}), ${countText(layerCount, 'layer')}`,
    ],
    ['parameters', parameters.parameters.length === 0 ? 'none' : `${elementsText(parameters.parameters)}, ${training}`],
    ['besides', `${elementsText(parameters.buffers, 'buffer')}; ${elementsText(parameters.constants, 'constant')}`],
    [
      'work',
      `${flopsText(totalFlops)}, ${bytesText(totalBytes)} moved${intensity}${batch === null ? '' : ` (batch ${batch})`}`,
    ],
  ];
  return facts.map(([name = '', text = '']) => `  ${name.padEnd(10)}  ${printable(text)}`);
}

function tensorLines({ inputs, outputs }: Inspection): readonly string[] {
  const rows = [
    ...inputs.map((tensor) => ['in', ...tensorRow(tensor)]),
    ...outputs.map((tensor) => ['out', ...tensorRow(tensor)]),
  ];
  return table(textColumns('', 'name', 'type', 'shape', 'dimensions'), rows, 2 * SHOWN);
}

function tensorRow({ name, dtype, shape, dimensions }: Inspection['inputs' | 'outputs'][number]): ReportRow {
  return [name, dtype, `[${shape.join(', ')}]`, dimensions.map(({ role }) => role).join(', ')];
}

function openLines({ open }: Inspection): readonly string[] {
  const rows = open.map(({ name, places, assumed }) => [
    `--dim ${shellWord(`${name}=N`)}`,
    String(assumed),
    places.join('; '),
  ]);
  return table(
    [...textColumns('bind it with'), ...numberColumns('taken as'), ...textColumns('occurs in')],
    rows,
    rows.length,
    56,
  );
}

function operatorLines({ operators, totalFlops, totalBytes }: Inspection): readonly string[] {
  const rows = operators.map(({ op, domain, count, flops, bytes }) => [
    typeText(op, domain),
    integerText(count),
    flopsText(flops),
    share(flops, totalFlops),
    bytesText(bytes),
    share(bytes, totalBytes),
  ]);
  return table([...textColumns('type'), ...numberColumns('count', 'work', 'share', 'moves', 'share')], rows, SHOWN + 5);
}

function layerLines({ layers, totalFlops }: Inspection): readonly string[] {
  const rows = layers.map(({ name, instances, operators, flops }) => [
    instances.length > 1 ? `${name} … ${instances.at(-1)?.split('.').at(-1) ?? ''}` : name,
    String(instances.length),
    String(operators),
    flopsText(flops),
    share(flops * instances.length, totalFlops),
  ]);
  return table(
    [...textColumns('layers of one structure'), ...numberColumns('layers', 'operators each', 'work each', 'share')],
    rows,
  );
}

/** The units that `--stages` places. */
function unitLines({ units }: Inspection): readonly string[] {
  const rows = units.kinds.map(({ letter, count, name, operators }) => [
    letter,
    String(count),
    String(operators),
    name,
  ]);
  const columns = [...textColumns('letter'), ...numberColumns('units', 'operators each'), ...textColumns('the first')];
  return [`  ${units.layout}`, ...table(columns, rows)];
}

function regionLines({ fusedRegions }: Inspection): readonly string[] {
  const rows = fusedRegions.map(({ kind, count, single }) => [
    kind,
    String(count),
    single === count ? 'operators of the file' : single === 0 ? 'recognised' : `${count - single} recognised`,
  ]);
  return table([...textColumns('kind'), ...numberColumns('count'), ...textColumns('')], rows);
}

function parameterLines({ parameters: { parameters } }: Inspection, all: boolean): readonly string[] {
  if (!all) return largestLines(parameters);
  const rows = parameters.map((parameter) => [
    parameter.name,
    parameter.dtype,
    `[${parameter.shape.join(', ')}]`,
    integerText(parameter.elements),
    `${parameter.trainable ? '' : 'not trained: '}${parameter.why}`,
  ]);
  const columns = [...textColumns('name', 'type', 'shape'), ...numberColumns('elements'), ...textColumns('because')];
  return table(columns, rows, rows.length);
}

/** The largest, those of corresponding places in repeated layers as one row. */
function largestLines(parameters: readonly InspectedParameter[]): readonly string[] {
  const alike = new Map<
    string,
    { readonly name: string; readonly first: InspectedParameter; readonly count: number }
  >();
  for (const parameter of parameters) {
    const name = layerlessName(parameter);
    const key = `${name} ${parameter.dtype} ${parameter.shape.join()}`;
    const found = alike.get(key);
    alike.set(key, found ? { ...found, count: found.count + 1 } : { name, first: parameter, count: 1 });
  }
  const rows = [...alike.values()]
    .sort((a, b) => b.first.elements * b.count - a.first.elements * a.count)
    .map(({ name, first, count }) => [
      count > 1 ? name : first.name,
      first.dtype,
      `[${first.shape.join(', ')}]`,
      count > 1 ? `× ${count}` : '',
      integerText(first.elements * count),
    ]);
  const columns = [...textColumns('name', 'type', 'shape'), ...numberColumns('', 'elements')];
  return table(columns, rows, SHOWN, 46);
}

/** The name with `*` for the number of its layer. */
function layerlessName({ name, places }: InspectedParameter): string {
  const layer = places[0]?.layer;
  return layer && name.startsWith(`${layer}.`) ? layer.replace(/\d+$/, '*') + name.slice(layer.length) : name;
}

function decisionLines({ parameters: { decisions, parameters } }: Inspection, all: boolean): readonly string[] {
  const byName = new Map(parameters.map((parameter) => [parameter.name, parameter]));
  const lines = decisions.map(({ kind, parameters: names, weights, why }) => {
    if (kind === 'separated')
      return [`  ${weights[0] ?? ''}: stored once, serves ${countText(names.length, 'parameter')}`, ...wrapped(why)];
    const [name = ''] = names;
    const how = weights.length > 1 ? `stored as ${weights.join(' and ')}` : sharedText(byName.get(name));
    return [`  ${name}: one, ${how}`, ...wrapped(why)];
  });
  const shown = all ? lines.length : SHOWN;
  const rest = lines.length - shown;
  return [...lines.slice(0, shown).flat().map(printable), ...(rest > 0 ? [`  and ${integerText(rest)} more`] : [])];
}

function sharedText(parameter: InspectedParameter | undefined): string {
  // Iterations of a loop are one of its places.
  const modules = new Set(parameter?.places.map(({ module }) => (module.at(-1) ?? '').replace(/#\d+$/, '')) ?? []);
  const named = [...modules].filter((module) => module !== '');
  return named.length > 0 ? `used in ${named.join(', ')}` : 'used in several places';
}

function untrainedLines({ folded, parameters }: Inspection, all: boolean): readonly string[] {
  const { generated, buffers, constants } = parameters;
  const lines = parameters.parameters.flatMap(({ trainable, name, elements, why }) =>
    trainable ? [] : [`  ${name} (${integerText(elements)} elements): ${why}`],
  );
  const made = generated.filter(({ place }) => place.use !== 'statistics');
  if (made.length > 0) {
    const elements = made.reduce((sum, item) => sum + item.elements, 0);
    const places = countText(made.length, 'place');
    lines.push(`  ${integerText(elements)} elements in ${places} of weights: constants that the graph computes`);
  }
  for (const { name, elements, into } of folded)
    lines.push(`  ${name} (${integerText(elements)} elements): folded${into === null ? '' : ` into ${into}`}`);
  const shown = all ? lines.length : SHOWN;
  const rest = lines.length - shown;
  return [
    ...lines.slice(0, shown).map(printable),
    ...(rest > 0 ? [`  and ${integerText(rest)} more`] : []),
    ...(all ? constantLines([...buffers, ...constants]) : []),
  ];
}

/** Every floating-point value of the graph that is not a parameter, with the reason. */
function constantLines(values: readonly InspectedParameter[]): readonly string[] {
  const rows = values.flatMap(({ name, dtype, shape, role, why }) =>
    dtype.includes('float') ? [[name, dtype, `[${shape.join(', ')}]`, role, why]] : [],
  );
  return table(textColumns('name', 'type', 'shape', 'is a', 'because'), rows, rows.length, 72);
}

function replicatedLines({ replicated, totalFlops, totalBytes }: Inspection): readonly string[] {
  const weighs = ({ flops, bytes }: Inspection['replicated'][number]) =>
    flops >= SLIGHT * totalFlops || bytes >= SLIGHT * totalBytes;
  const rows = replicated.filter(weighs);
  const lines = rows.slice(0, SHOWN).flatMap(({ op, domain, count, over, flops, bytes, why }) => {
    const type = typeText(op, domain);
    const parts = [
      ...(flops > 0 ? [`${share(flops, totalFlops)} of work`] : []),
      ...(bytes > 0 ? [`${share(bytes, totalBytes)} of bytes`] : []),
    ];
    return [`  ${printable(type)} × ${integerText(count)}, over ${over} (${parts.join(', ')})`, ...wrapped(why)];
  });
  const rest = replicated.reduce((sum, row) => sum + (weighs(row) ? 0 : row.count), 0);
  const more = Math.max(0, rows.length - SHOWN);
  return [
    ...lines,
    ...(more > 0 ? [`  and ${countText(more, 'other kind')}`] : []),
    ...(rest > 0 ? [`  ${countText(rest, 'operator')} of less than 0.1 %`] : []),
  ];
}

/** A sentence in lines of at most ninety-six columns, indented. */
function wrapped(text: string): readonly string[] {
  const lines: string[] = [];
  for (const word of printable(text).split(' ')) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + word.length < 96) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(`      ${word}`);
  }
  return lines;
}

/** Shares of work and bytes below this are not listed one by one. */
const SLIGHT = 0.001;

/** A table of the first rows, and how many more there are; nothing where there are none. */
function table(
  columns: readonly Column[],
  rows: readonly ReportRow[],
  shown = SHOWN,
  widest = WIDEST_NAME,
): readonly string[] {
  if (rows.length === 0) return [];
  const lines = tableLines(columns, rows.slice(0, shown), widest);
  const rest = rows.length - shown;
  return rest > 0 ? [...lines, `  and ${integerText(rest)} more`] : lines;
}

function elementsText(parameters: readonly InspectedParameter[], noun = 'parameter'): string {
  const bytes = parameters.reduce((sum, parameter) => sum + parameter.bytes, 0);
  if (parameters.length === 0) return `no ${noun}s`;
  return `${integerText(elementsOf(parameters))} in ${countText(parameters.length, noun)} (${bytesText(bytes)})`;
}

function elementsOf(parameters: readonly InspectedParameter[]): number {
  return parameters.reduce((sum, { elements }) => sum + elements, 0);
}

/** The domain of fused regions goes without saying. */
function typeText(op: string, domain: string): string {
  return domain === '' || domain === REGION_DOMAIN ? op : `${domain}.${op}`;
}

function share(part: number, whole: number): string {
  if (part === 0 || whole === 0) return '–';
  return part / whole < 0.001 ? '< 0.1 %' : `${((100 * part) / whole).toFixed(1)} %`;
}
