/**
 * @file The modules of a program: model.py, or layers.py and a file for each stage of a pipeline; equal layers of all stages are
 * one class.
 */

import { groupBy } from '../../ir/group-by.js';
import type { ValueRange } from '../../ir/value-range.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { lastList } from '../../partition/program-phases.js';
import type { StageWalk } from '../../partition/stage-walk.js';
import { programAxes } from './axes.js';
import type { MeshTables } from './files/mesh.js';
import { calls } from './files/texts.js';
import { inputsOf, outputsOf, valuesTable } from './interface.js';
import { type FiledConstant, LayerWriter, type OwnedModule } from './module.js';
import { HELPERS } from './operators/helpers.js';
import { OptimizerFile } from './optimizer-file.js';
import { LINE_LENGTH, torchImports } from './python.js';
import { withGradientCalls } from './recorded.js';
import { runsOf } from './runs.js';
import { methodOf, StageWriter } from './stage-writer.js';
import { type TorchTensors, tensorsOf } from './tensors.js';

export interface ModelFiles extends MeshTables {
  /** By name: model.py, or layers.py and one of each stage. */
  readonly files: Readonly<Record<string, string>>;
  readonly stages: readonly StageParameters[];
}

export interface StageParameters {
  /** By weight and state: its dotted name in the stage. */
  readonly paths: ReadonlyMap<string, string>;
  readonly constants: readonly FiledConstant[];
}

/** A list of a pipeline's stage, as schedule.csv names it. */
export type ListNames = readonly ReadonlyMap<string, string>[];

/** The modules of a program's stages. `title` is their first line. */
export function modelFiles(
  lowered: readonly LoweredStage[],
  walks: readonly StageWalk[],
  names: ListNames,
  title: string,
  ranges: ReadonlyMap<string, ValueRange>,
): ModelFiles {
  const axes = programAxes(lowered.map(({ sharded }) => sharded));
  const optimizer = new OptimizerFile();
  const stages = lowered.map(({ sharded }, stage) => {
    const walk = walks[stage] as StageWalk;
    const runs = runsOf(walk, sharded);
    const tensors = withGradientCalls(tensorsOf(sharded, axes, walk, runs, optimizer));
    const layers = [...new Set(runs.flatMap(({ layer }) => layer ?? []))];
    const modules = layers.map((layer) =>
      new LayerWriter(layer, tensors).layer(runs.filter((run) => run.layer === layer)),
    );
    return { tensors, modules, writer: new StageWriter(tensors, stage, modules) };
  });
  const isPipeline = lowered.length > 1;
  const classes = classesOf(stages.flatMap(({ modules }) => modules));
  const classOf = ({ lines }: OwnedModule) => classes.get(lines.join('\n'))?.name ?? '';
  const layerText = [...classes].flatMap(([text, { name, layers }]) => [
    ...['', '', `class ${name}(Container):`],
    ...docstring(layers),
    ...['', text],
  ]);
  const files: Record<string, string> = {};
  const updates = () => optimizer.names;
  if (isPipeline && classes.size > 0) files['layers.py'] = fileText(title, [], updates(), layerText);
  for (const [stage, { tensors, writer }] of stages.entries()) {
    const { sharded } = tensors;
    const body = ['', '', 'class Model(Container):', ...writer.lines(classOf)];
    const tables = [
      '',
      valuesTable('INPUTS', inputsOf(sharded), tensors, ranges),
      '',
      valuesTable('OUTPUTS', outputsOf(sharded), tensors),
      ...(isPipeline ? ['', listsTable(names[stage] ?? new Map(), tensors)] : []),
    ];
    const own = isPipeline ? body : [...layerText, ...body];
    const imported = isPipeline ? [...classes.values()].map(({ name }) => name) : [];
    const what = isPipeline ? `${title.replace(/\.$/, '')}, stage ${stage}.` : title;
    files[isPipeline ? `stage_${stage}.py` : 'model.py'] = fileText(what, imported, updates(), [...tables, ...own]);
  }
  const optimizerText = optimizer.text();
  if (optimizerText !== null) files['optimizer.py'] = optimizerText;
  const groups = new Map(
    lowered.flatMap(({ sharded }) =>
      sharded.nodes.flatMap((node) =>
        node.kind === 'communicate' ? [[node.axes.join(), axes.named(node.axes)] as const] : [],
      ),
    ),
  );
  return {
    files,
    stages: stages.map(({ modules, writer }) => {
      const own = [...modules, writer.module()];
      return {
        paths: new Map(own.flatMap(({ paths }) => [...paths])),
        constants: own.flatMap(({ constants }) => constants),
      };
    }),
    axes,
    groups: [...groups.values()],
    receivers: walks.map(receiversOf),
  };
}

/** The stages that a stage sends to, in ascending order. */
function receiversOf({ lists }: StageWalk): readonly number[] {
  const instructions = lists.flatMap((list) => list.instructions);
  const stages = instructions.flatMap(({ instruction }) =>
    instruction.kind === 'send' ? instruction.transfer.stage : [],
  );
  return [...new Set(stages)].sort((a, b) => a - b);
}

interface TorchLayerClass {
  readonly name: string;
  readonly layers: readonly string[];
}

/** By text: equal layers are one class. */
function classesOf(modules: readonly OwnedModule[]): ReadonlyMap<string, TorchLayerClass> {
  const byText = groupBy(modules, ({ lines }) => lines.join('\n'));
  const named = [...byText].map(([text, own], index) => {
    const layers = own.map(({ owner }) => owner);
    return [text, { name: index === 0 ? 'Layer' : `Layer${index + 1}`, layers }] as const;
  });
  return new Map(named);
}

/** A docstring of names, in lines of at most LINE_LENGTH columns. */
function docstring(names: readonly string[]): readonly string[] {
  const lines: string[] = [];
  for (const name of names) {
    const longer = `${lines.at(-1)}, ${name}`;
    if (lines.length > 0 && longer.length < LINE_LENGTH) lines[lines.length - 1] = longer;
    else {
      if (lines.length > 0) lines[lines.length - 1] += ',';
      lines.push(lines.length === 0 ? `    """${name}` : `    ${name}`);
    }
  }
  const last = `${lines.at(-1)}"""`;
  return lines.length === 1 && last.length <= LINE_LENGTH ? [last] : [...lines, '    """'];
}

/** By name in schedule.csv: the method of a list. */
function listsTable(names: ReadonlyMap<string, string>, { walk, sharded }: TorchTensors): string {
  const table = (title: string, nameOf: (list: string) => string) => {
    const rows = walk.lists.flatMap(({ name, instructions }) => {
      const known = [...names].find(([list]) => nameOf(list) === name)?.[1];
      return known === undefined || instructions.length === 0 ? [] : [`    "${known}": "${methodOf(name)}",`];
    });
    return [`${title} = {`, ...rows, '}'].join('\n');
  };
  const all = table('LISTS', (list) => list);
  return sharded.microBatches?.exceptLast ? `${all}\n\n${table('LAST_LISTS', lastList)}` : all;
}

const COLLECTIVES = 'all_gather all_reduce all_to_all broadcast permute receive reduce reduce_scatter send'.split(' ');
const VALUES = 'Container Value Values accumulate attach declare progress read_schedule run_halves to_disk'.split(' ');

/** A module: its imports, as ruff sorts them, and its text. */
function fileText(
  title: string,
  layers: readonly string[],
  updates: readonly string[],
  lines: readonly string[],
): string {
  const text = lines.join('\n');
  const from = (file: string, names: readonly string[]) => {
    const used = names.filter(
      (name) => calls(text, name) || text.includes(`(${name})`) || text.includes(`${name}.is_last`),
    );
    const line = `from ${file} import ${used.join(', ')}`;
    if (line.length > LINE_LENGTH) return [`from ${file} import (`, ...used.map((name) => `    ${name},`), ')'];
    return used.length > 0 ? [line] : [];
  };
  const plain = torchImports(text);
  const own = [
    ...from('collectives', COLLECTIVES),
    ...from('layers', layers),
    ...from('operators', Object.keys(HELPERS).sort()),
    ...from('optimizer', updates),
    ...from('values', VALUES),
  ];
  return [
    `"""${title}"""`,
    '',
    ...plain,
    ...(plain.length > 0 && own.length > 0 ? [''] : []),
    ...own,
    ...lines,
    '',
  ].join('\n');
}
