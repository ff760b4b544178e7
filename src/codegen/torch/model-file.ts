/**
 * @file model.py: a class for each kind of layer, and the model, whose methods are the stage's lists.
 */

import type { ShardedGraph } from '../../partition/sharded-graph.js';
import type { StageWalk } from '../../partition/stage-walk.js';
import type { Layout, Piece } from '../../sharding-propagation/layout.js';
import type { ProgramAxes } from './axes.js';
import { linesOf, type Naming } from './method.js';
import {
  access,
  type FiledConstant,
  isKept,
  LayerWriter,
  namespaceOf,
  type OwnedModule,
  pathOf,
  type Uses,
} from './module.js';
import { dtypeText, tuple } from './operators/operator.js';
import { assignment, deletion, identifier, Names, snakeCase, statement } from './python.js';
import { type Run, runsOf } from './runs.js';
import { type Tensors, tensorOf, tensorsOf } from './tensors.js';

export interface ModelFile {
  readonly text: string;
  readonly uses: Uses;
  /** By weight and kept state: its dotted name in the model. */
  readonly paths: ReadonlyMap<string, string>;
  readonly constants: readonly FiledConstant[];
  readonly axes: ProgramAxes;
  /** Axes of groups over which collectives run. */
  readonly groups: readonly (readonly string[])[];
}

const BODY = '        ';

/** The model of a step of one stage. `title` is its first line. */
export function modelFile(sharded: ShardedGraph, walk: StageWalk, title: string): ModelFile {
  const runs = runsOf(walk);
  const tensors = tensorsOf(sharded, walk, runs);
  const uses: Uses = {
    collectives: new Set(),
    operators: new Set(),
    values: new Set(['Container', 'Value', 'Values']),
  };
  const layers = [...new Set(runs.flatMap(({ layer }) => layer ?? []))];
  const modules = layers.map((layer) =>
    new LayerWriter(layer, tensors, uses).layer(runs.filter((run) => run.layer === layer)),
  );
  const classes = classesOf(modules);
  if (layers.length > 0) uses.values.add('attach');
  const stage = new StageWriter(tensors, modules, uses);
  const body = stage.lines(classes);
  const groups = new Map(
    sharded.nodes.flatMap((node) =>
      node.kind === 'communicate' ? [[node.axes.join(), tensors.axes.named(node.axes)] as const] : [],
    ),
  );
  const text = [
    `"""${title}"""`,
    '',
    ...importLines(uses, [...classes.keys(), body.join('\n')].join('\n')),
    '',
    valuesTable('INPUTS', inputsOf(sharded), tensors),
    '',
    valuesTable('OUTPUTS', outputsOf(sharded), tensors),
    ...[...classes].flatMap(([lines, { name, layers: own }]) => [
      '',
      '',
      `class ${name}(Container):`,
      `    """${own.join(', ')}"""`,
      '',
      lines,
    ]),
    '',
    '',
    'class Model(Container):',
    ...body,
    '',
  ].join('\n');
  const paths = new Map([...modules, stage.module()].flatMap((module) => [...module.paths]));
  const constants = [...modules, stage.module()].flatMap((module) => module.constants);
  return { text, uses, paths, constants, axes: tensors.axes, groups: [...groups.values()] };
}

interface LayerClass {
  readonly name: string;
  readonly layers: readonly string[];
}

/** By text: equal layers are one class. */
function classesOf(modules: readonly OwnedModule[]): ReadonlyMap<string, LayerClass> {
  const classes = new Map<string, LayerClass>();
  for (const { owner, lines } of modules) {
    const text = lines.join('\n');
    const known = classes.get(text);
    const name = known?.name ?? (classes.size === 0 ? 'Layer' : `Layer${classes.size + 1}`);
    classes.set(text, { name, layers: [...(known?.layers ?? []), owner] });
  }
  return classes;
}

/** Imports as ruff sorts them. */
function importLines({ collectives, operators, values }: Uses, text: string): readonly string[] {
  const from = (file: string, names: ReadonlySet<string>) => {
    const sorted = [...names].sort((a, b) => rankOf(a) - rankOf(b) || (a < b ? -1 : 1));
    return names.size > 0 ? statement(`from ${file} import ${sorted.join(', ')}`, '') : [];
  };
  return [
    'import torch',
    ...(/\bF\./.test(text) ? ['import torch.nn.functional as F'] : []),
    '',
    ...from('collectives', collectives),
    ...from('operators', operators),
    ...from('values', values),
  ];
}

/** Classes stand before functions. */
function rankOf(name: string): number {
  return /^[A-Z]/.test(name) ? 0 : 1;
}

interface NamedTensor {
  readonly name: string;
  readonly tensor: string;
}

export function inputsOf({ inputs, state, microBatches }: ShardedGraph): readonly NamedTensor[] {
  const kept = new Set(state.map(({ to }) => to));
  return inputs
    .filter(({ tensor, input }) => !kept.has(tensor) && input !== microBatches?.index)
    .map(({ tensor, input }) => ({ tensor, name: input }));
}

export function outputsOf({ outputs, state }: ShardedGraph): readonly NamedTensor[] {
  const left = new Set(state.map(({ from }) => from));
  return outputs.filter(({ tensor }) => !left.has(tensor)).map(({ tensor, output }) => ({ tensor, name: output }));
}

/** A layout as Python: per dimension its pieces, each a size and axes. */
function layoutTable({ dims }: Layout, { named }: ProgramAxes): string {
  const piece = ({ size, axes }: Piece) => {
    const names = named(axes).map((axis) => `"${axis}"`);
    return `(${size}, (${names.join(', ')}${names.length === 1 ? ',' : ''}))`;
  };
  return `[${dims.map((pieces) => `[${pieces.map(piece).join(', ')}]`).join(', ')}]`;
}

function valuesTable(name: string, values: readonly NamedTensor[], { sharded, axes }: Tensors): string {
  const rows = values.map(({ name: own, tensor }) => {
    const { dtype, shape, layout } = tensorOf(sharded, tensor);
    const axis = sharded.microBatches?.cut.get(own);
    const count = sharded.microBatches?.count ?? 1;
    const whole = axis === undefined ? shape : shape.map((size, index) => (index === axis ? size * count : size));
    const cut = axis === undefined ? 'None, None' : `${axis}, ${count}`;
    return `${JSON.stringify(own)}: Value(${dtypeText(dtype)}, ${tuple(whole)}, ${layoutTable(layout, axes)}, ${cut})`;
  });
  return [`${name} = {`, ...rows.flatMap((row) => statement(`${row},`, '    ')), '}'].join('\n');
}

/** Writes the model's own methods. */
class StageWriter {
  private readonly writer: LayerWriter;
  private readonly layers: ReadonlyMap<string, OwnedModule>;
  private readonly names = new Names();
  private methods: readonly string[] = [];

  constructor(
    private readonly tensors: Tensors,
    modules: readonly OwnedModule[],
    private readonly uses: Uses,
  ) {
    this.writer = new LayerWriter('', tensors, uses);
    this.layers = new Map(modules.map((module) => [module.owner, module]));
  }

  module(): Omit<OwnedModule, 'calls'> {
    return this.writer.module(this.methods);
  }

  lines(classes: ReadonlyMap<string, LayerClass>): readonly string[] {
    const { walk } = this.tensors;
    const lists = walk.lists.filter(({ steps }) => steps.length > 0);
    const methods = lists.flatMap(({ name }) => ['', ...this.method(name)]);
    const run = this.run();
    this.methods = [...methods, '', ...run];
    const { lines } = this.module();
    const attached = [...classes.values()].flatMap(({ name, layers }) => [
      ...(layers.length === 1
        ? statement(`attach(self, "${pathOf(layers[0] as string)}", ${name}(mesh))`, BODY)
        : [
            ...statement(`for layer in (${layers.map((layer) => `"${pathOf(layer)}"`).join(', ')}):`, BODY),
            ...statement(`attach(self, layer, ${name}(mesh))`, `${BODY}    `),
          ]),
    ]);
    return [...lines.slice(0, 2), ...attached, ...lines.slice(2)];
  }

  /** The list's lines: operators of no layer, and calls of the layers' methods. */
  private method(list: string): readonly string[] {
    const { runs, walk } = this.tensors;
    const locals = new Map<string, string>();
    const naming = this.naming(list, locals);
    const body = runs
      .filter((run) => run.list === list)
      .flatMap((run) =>
        run.layer === null ? linesOf(run.steps, this.tensors, naming) : this.call(run, naming, locals),
      );
    const isMicro = walk.lists.find(({ name }) => name === list)?.runs === 'micro';
    return [
      ...statement(`def ${methodOf(list)}(self, ${isMicro ? 'micro, ' : ''}step):`, '    '),
      ...withoutLast(body),
    ];
  }

  private naming(list: string, locals: Map<string, string>): Naming {
    const { tensors, writer } = this;
    const read = (name: string): string => {
      const text = locals.get(name) ?? this.keptAt(name) ?? writer.own(name);
      if (text === undefined) throw new Error(`nothing holds ${name} in ${list}`);
      return text;
    };
    return {
      read,
      make: (name, base) => {
        if (isKept(name, tensors)) return `${namespaceOf(name, tensors)}.${writer.slot(name, base)}`;
        const local = this.names.take(base);
        locals.set(name, local);
        return local;
      },
      group: (axes) => writer.group(axes),
      holders: (name) => [locals.get(name), this.keptAt(name)].filter((text) => text !== undefined),
      waitsHere: (name) => locals.has(name),
      wait: (name) => `${read(name)} = ${read(name)}.wait()`,
      sum: (name) => [namespaceOf(name, tensors), writer.slot(name, 'total')],
      uses: (file, name) => this.uses[file].add(name),
    };
  }

  /** A layer's parameter. */
  private parameterOf(name: string): string | undefined {
    const path = this.layers.get(this.tensors.parameters.get(name) ?? '')?.paths.get(name);
    return path === undefined ? undefined : access(path);
  }

  /** Where a tensor is that lasts longer than a method; undefined where it is in none of the namespaces. */
  private keptAt(name: string): string | undefined {
    const { tensors, writer, layers } = this;
    const run = tensors.madeIn.get(name);
    if (!run) {
      const isGiven = tensors.sharded.inputs.some(({ tensor }) => tensor === name) && !tensors.parameters.has(name);
      return isGiven ? `${namespaceOf(name, tensors)}.${writer.slot(name, identifier(name))}` : undefined;
    }
    if (!isKept(name, tensors)) return undefined;
    const namespace = namespaceOf(name, tensors);
    if (run.layer === null) return `${namespace}.${writer.slot(name, 'value')}`;
    const slot = layers.get(run.layer)?.slots.get(name);
    return slot === undefined ? undefined : `${namespace}["${run.layer}"].${slot}`;
  }

  private call(run: Run, naming: Naming, locals: Map<string, string>): readonly string[] {
    const layer = run.layer as string;
    const call = this.layers.get(layer)?.calls.get(run);
    if (!call) throw new Error(`layer ${layer} has no method ${run.method}`);
    const given = [...call.namespaces.map((namespace) => `${namespace}["${layer}"]`), ...call.given.map(naming.read)];
    const text = `${access(pathOf(layer))}.${run.method}(${given.join(', ')})`;
    const targets = call.results.map((name) => {
      const local = this.names.take(this.baseOf(name));
      locals.set(name, local);
      return local;
    });
    const gone = run.steps
      .flatMap(({ frees }) => frees)
      .flatMap((name) => {
        const isOwn = this.tensors.madeIn.get(name)?.layer === layer;
        return [locals.get(name), isOwn ? undefined : this.keptAt(name)].filter((held) => held !== undefined);
      });
    return [...statement(targets.length > 0 ? `${targets.join(', ')} = ${text}` : text, BODY), ...deletion(gone, BODY)];
  }

  /** A layer's result is named as the operator that makes it. */
  private baseOf(name: string): string {
    const maker = (this.tensors.madeIn.get(name)?.steps ?? [])
      .flatMap(({ step }) => (step.kind === 'segment' ? step.nodes : []))
      .find(({ outputs }) => outputs.includes(name));
    return maker ? snakeCase(maker.op) : 'result';
  }

  /** A whole step. */
  private run(): readonly string[] {
    const { sharded, walk, storedLast } = this.tensors;
    const { microBatches } = sharded;
    const at = (tensor: string) => {
      const text = this.keptAt(tensor) ?? this.parameterOf(tensor) ?? this.writer.own(tensor);
      if (text === undefined) throw new Error(`nothing holds ${tensor} when the step ends`);
      return text;
    };
    const isMicro = (tensor: string) => walk.lifetimeOf(tensor) === 'micro';
    const feed = (values: readonly NamedTensor[], index: string, indent: string) =>
      values.flatMap(({ name, tensor }) => statement(`${at(tensor)} = fed[${JSON.stringify(name)}][${index}]`, indent));
    const inputs = inputsOf(sharded);
    const outputs = outputsOf(sharded);
    const perMicro = outputs.filter(({ tensor }) => isMicro(tensor));
    const lines = [
      '    def run(self, fed):',
      `${BODY}"""One step: blocks of inputs in, blocks of outputs out, one per micro-batch."""`,
      `${BODY}step = Values()`,
      ...feed(
        inputs.filter(({ tensor }) => !isMicro(tensor)),
        '0',
        BODY,
      ),
    ];
    if (perMicro.length > 0)
      lines.push(
        ...statement(`results = {${perMicro.map(({ name }) => `${JSON.stringify(name)}: []`).join(', ')}}`, BODY),
      );
    const inner = `${BODY}    `;
    if (microBatches) {
      const index = sharded.inputs.find(({ input }) => input === microBatches.index);
      lines.push(
        `${BODY}for number in range(${microBatches.count}):`,
        `${inner}micro = Values()`,
        ...feed(
          inputs.filter(({ tensor }) => isMicro(tensor)),
          'number',
          inner,
        ),
        ...(index ? statement(`${at(index.tensor)} = torch.tensor([number])`, inner) : []),
        `${inner}self.${methodOf('micro')}(micro, step)`,
        ...perMicro.flatMap(({ name, tensor }) =>
          statement(`results[${JSON.stringify(name)}].append(${at(tensor)})`, inner),
        ),
      );
    }
    for (const { microBatch, list } of walk.actions)
      if (microBatch === null && walk.lists.some(({ name, steps }) => name === list && steps.length > 0))
        lines.push(`${BODY}self.${methodOf(list)}(step)`);
    const last = outputs.filter(({ tensor }) => !isMicro(tensor));
    const given = last.map(({ name, tensor }) => `${JSON.stringify(name)}: [${at(tensor)}]`);
    if (perMicro.length === 0) lines.push(...statement(assignment('results', '{', given, '}'), BODY));
    else
      for (const { name, tensor } of last)
        lines.push(...statement(`results[${JSON.stringify(name)}] = [${at(tensor)}]`, BODY));
    for (const { from, to } of storedLast) lines.push(...statement(`${at(to)}.data = ${at(from)}`, BODY));
    return [...lines, `${BODY}return results`];
  }
}

/** The method of a list of instructions. */
function methodOf(list: string): string {
  return `run_${identifier(list.replaceAll(' ', '_'))}`.replace(/_$/, '');
}

/** A method's variables go when it ends: those that it deletes at its end need no line. */
function withoutLast(body: readonly string[]): readonly string[] {
  const last = body.at(-1);
  return last?.trimStart().startsWith('del ') && !/[.[]/.test(last) && body.length > 1 ? body.slice(0, -1) : body;
}
