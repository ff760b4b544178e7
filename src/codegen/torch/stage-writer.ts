/**
 * @file The class of a stage: a method for each of its lists, which calls the layers' methods, and one that runs a step.
 */
import { BEGIN, lastList, UPDATE } from '../../partition/program-phases.js';
import { type InterfaceTensor, inputsOf, outputsOf } from './interface.js';
import { leading, statementsOf } from './method.js';
import { access, isInNamespace, LayerWriter, namespaceOf, type OwnedModule, pathOf, renamed } from './module.js';
import type { MethodNaming } from './naming.js';
import { deletion, identifier, Names, snakeCase, statement } from './python.js';
import type { LayerInstructions } from './runs.js';
import type { TorchTensors } from './tensors.js';

const BODY = '        ';

/** Writes the model's own methods. */
export class StageWriter {
  private readonly writer: LayerWriter;
  private readonly layers: ReadonlyMap<string, OwnedModule>;
  private readonly names = new Names();
  private methods: readonly string[] = [];

  constructor(
    private readonly tensors: TorchTensors,
    private readonly stage: number,
    modules: readonly OwnedModule[],
  ) {
    const taken = modules.flatMap(({ paths }) => [...paths.values()]);
    this.writer = new LayerWriter('', tensors, taken);
    this.layers = new Map(modules.map((module) => [module.owner, module]));
  }

  module(): Omit<OwnedModule, 'calls'> {
    return this.writer.module(this.methods);
  }

  /** The class's lines; `classOf` names the class of a layer. */
  lines(classOf: (layer: OwnedModule) => string): readonly string[] {
    const { walk } = this.tensors;
    const lists = walk.lists.filter(({ instructions }) => instructions.length > 0);
    const methods = lists.flatMap(({ name }) => ['', ...this.method(name)]);
    const run = this.run();
    this.methods = [...methods, '', ...run];
    const { lines } = this.module();
    const classes = new Map<string, string[]>();
    for (const module of this.layers.values()) {
      const known = classes.get(classOf(module));
      if (known) known.push(module.owner);
      else classes.set(classOf(module), [module.owner]);
    }
    const attached = [...classes].flatMap(([name, layers]) => [
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
    const { runs, sharded, walk } = this.tensors;
    const locals = new Map<string, string>();
    const naming = this.naming(list, locals);
    const body = runs
      .filter((run) => run.list === list)
      .flatMap((run) =>
        run.layer === null ? statementsOf(run, this.tensors, naming).lines() : this.call(run, naming, locals),
      );
    const isOnce = list === BEGIN || list === UPDATE;
    const isMicro = sharded.pipeline ? !isOnce : walk.lists.find(({ name }) => name === list)?.runs === 'micro';
    return [
      ...statement(`def ${methodOf(list)}(self, ${isMicro ? 'micro, ' : ''}step):`, '    '),
      ...withoutLast(body),
    ];
  }

  private naming(list: string, locals: Map<string, string>): MethodNaming {
    const { tensors, writer } = this;
    const read = (name: string): string => {
      const text = locals.get(name) ?? this.namespacePlace(name) ?? writer.own(name);
      if (text === undefined) throw new Error(`nothing holds ${name} in ${list}`);
      return text;
    };
    return {
      read,
      onHost: (name) => writer.onHost(name),
      make: (name, base) => {
        if (isInNamespace(name, tensors)) return `${namespaceOf(name, tensors)}.${writer.slot(name, base)}`;
        const local = this.names.take(base);
        locals.set(name, local);
        return local;
      },
      over: (name, operand) => (isInNamespace(name, tensors) ? undefined : renamed(locals, name, operand)),
      staysIn: (name, text) => writer.staysIn(name, text),
      local: (base) => this.names.take(base),
      group: (axes) => writer.group(axes),
      holders: (name) => [locals.get(name), this.namespacePlace(name)].filter((text) => text !== undefined),
      waitsHere: (name) => locals.has(name),
      wait: (name) => `${read(name)} = ${read(name)}.wait()`,
      sum: (name) => [namespaceOf(name, tensors), writer.slot(name, 'total')],
      device: () => writer.device(),
      lead: (axes) => writer.lead(axes),
      channel: (end, stage) => writer.channel(end, stage),
    };
  }

  /** A layer's parameter. */
  private parameterOf(name: string): string | undefined {
    const path = this.layers.get(this.tensors.parameters.get(name) ?? '')?.paths.get(name);
    return path === undefined ? undefined : access(path);
  }

  /** Where a tensor is that lasts longer than a method; undefined where it is in none of the namespaces. */
  private namespacePlace(name: string): string | undefined {
    const { tensors, writer, layers } = this;
    const run = tensors.madeIn.get(name);
    if (!run) {
      const isGiven = tensors.sharded.inputs.some(({ tensor }) => tensor === name) && !tensors.parameters.has(name);
      return isGiven ? `${namespaceOf(name, tensors)}.${writer.slot(name, identifier(name))}` : undefined;
    }
    if (!isInNamespace(name, tensors)) return undefined;
    const namespace = namespaceOf(name, tensors);
    if (run.layer === null) return `${namespace}.${writer.slot(name, 'value')}`;
    const slot = layers.get(run.layer)?.slots.get(name);
    return slot === undefined ? undefined : `${namespace}["${run.layer}"].${slot}`;
  }

  private call(run: LayerInstructions, naming: MethodNaming, locals: Map<string, string>): readonly string[] {
    const layer = run.layer as string;
    const call = this.layers.get(layer)?.calls.get(run);
    if (!call) throw new Error(`layer ${layer} has no method ${run.method}`);
    const given = [...call.namespaces.map((namespace) => `${namespace}["${layer}"]`), ...call.given.map(naming.read)];
    const text = `${run.takesTurns ? 'yield from ' : ''}${access(pathOf(layer))}.${run.method}(${given.join(', ')})`;
    const targets = call.results.map((name) => {
      const local = this.names.take(this.baseOf(name));
      locals.set(name, local);
      return local;
    });
    const gone = run.instructions
      .flatMap(({ frees }) => frees)
      .flatMap((name) => {
        const isOwn = this.tensors.madeIn.get(name)?.layer === layer;
        return [locals.get(name), isOwn ? undefined : this.namespacePlace(name)].filter((held) => held !== undefined);
      });
    return [...statement(targets.length > 0 ? `${targets.join(', ')} = ${text}` : text, BODY), ...deletion(gone, BODY)];
  }

  /** A layer's result is named as the operator that makes it. */
  private baseOf(name: string): string {
    const maker = (this.tensors.madeIn.get(name)?.instructions ?? [])
      .flatMap(({ instruction }) => (instruction.kind === 'segment' ? instruction.nodes : []))
      .find(({ outputs }) => outputs.includes(name));
    return maker ? snakeCase(maker.op) : 'result';
  }

  /** A step from inputs to outputs. */
  private run(): readonly string[] {
    const { sharded, walk, storedLast } = this.tensors;
    const stayed = new Set([this.writer, ...this.layers.values()].flatMap((module) => [...module.stayed]));
    const isMicro = ({ tensor }: InterfaceTensor) => walk.lifetimeOf(tensor) === 'micro';
    const inputs = inputsOf(sharded);
    const index = sharded.inputs.find(({ input }) => input === sharded.microBatches?.index);
    const fedPerMicro = [
      ...inputs.filter(isMicro).flatMap((input) => this.fed(input, 'number')),
      ...(index ? [`${this.at(index.tensor)} = torch.tensor([number])`] : []),
    ];
    const results = outputsOf(sharded).map((output) => {
      const at = this.at(output.tensor);
      const count = sharded.microBatches?.count ?? 1;
      const each = `[${at.replace(/^micro/, 'micros[number]')} for number in range(${count})]`;
      const value = isMicro(output) ? each : `[${at}]`;
      return `${JSON.stringify(output.name)}: ${value}`;
    });
    return [
      '    def run(self, fed):',
      `${BODY}"""One step: takes shards of inputs and returns shards of outputs, one per micro-batch."""`,
      `${BODY}step = Values()`,
      ...inputs
        .filter((input) => !isMicro(input))
        .flatMap((input) => this.fed(input, '0').map((text) => `${BODY}${text}`)),
      ...(sharded.pipeline ? this.scheduled(fedPerMicro) : this.inTurn(fedPerMicro)),
      ...statement(`results = {${results.join(', ')}}`, BODY),
      ...storedLast.flatMap(({ from, to }) => (stayed.has(from) ? [] : this.stored(from, to))),
      `${BODY}return results`,
    ];
  }

  /** The next value of state, on the ranks that keep it. */
  private stored(from: string, to: string): readonly string[] {
    const { writer, tensors } = this;
    const [header] = leading([to], tensors.sharded, { lead: (axes) => writer.lead(axes) });
    const text = `${this.at(to)}.data = ${this.at(from)}`;
    if (!header) return statement(text, BODY);
    return [`${BODY}${header.text}:`, ...statement(text, `${BODY}    `)];
  }

  private fed({ name, tensor }: InterfaceTensor, number: string): readonly string[] {
    return [`${this.at(tensor)} = fed[${JSON.stringify(name)}][${number}]`];
  }

  /** Where a tensor is before the step, or when it ends. */
  private at(tensor: string): string {
    const text = this.namespacePlace(tensor) ?? this.parameterOf(tensor) ?? this.writer.own(tensor);
    if (text === undefined) throw new Error(`nothing holds ${tensor} when the step ends`);
    return text;
  }

  /** The list that begins a step, every micro-batch, then the lists that run once. */
  private inTurn(fedPerMicro: readonly string[]): readonly string[] {
    const { microBatches, interleave = 1 } = this.tensors.sharded;
    const inner = `${BODY}    `;
    const { count } = microBatches ?? { count: 1 };
    const micro = microBatches
      ? [
          `${BODY}micros = {}`,
          interleave > 1
            ? `${BODY}for number in range(0, ${count}, ${interleave}):`
            : `${BODY}for number in range(${count}):`,
          ...this.begun(fedPerMicro, inner),
          ...this.marksLast(count, inner),
          ...(microBatches.exceptLast
            ? [
                `${inner}if number < ${count - interleave}:`,
                ...this.ran(`self.${methodOf('micro')}`, `${inner}    `),
                `${inner}else:`,
                ...this.ran(`self.${methodOf(lastList('micro'))}`, `${inner}    `),
              ]
            : this.ran(`self.${methodOf('micro')}`, inner)),
        ]
      : [];
    return [...this.once((list) => list === BEGIN), ...micro, ...this.once((list) => list !== BEGIN)];
  }

  /** The values of a micro-batch, or of each half of one, when it begins. */
  private begun(fedPerMicro: readonly string[], indent: string): readonly string[] {
    const isInHalves = (this.tensors.sharded.interleave ?? 1) > 1;
    const inner = isInHalves ? `${indent}    ` : indent;
    const number = isInHalves ? 'half' : 'number';
    return [
      ...(isInHalves ? [`${indent}for half in (number, number + 1):`] : []),
      `${inner}${fedPerMicro.length > 0 ? 'micro = ' : ''}micros[${number}] = Values()`,
      ...fedPerMicro.flatMap((text) => statement(text.replaceAll('[number]', `[${number}]`), inner)),
    ];
  }

  /** A run of a list for a micro-batch, or both of its halves. */
  private ran(method: string, indent: string): readonly string[] {
    const { microBatches, interleave = 1 } = this.tensors.sharded;
    const text =
      interleave > 1
        ? `run_halves(${method}, micros, number, step, ${microBatches?.count})`
        : `${method}(micros[number], step)`;
    return statement(text, indent);
  }

  /** A pipeline's actions in the order of its schedule. */
  private scheduled(fedPerMicro: readonly string[]): readonly string[] {
    const inner = `${BODY}    `;
    const { microBatches, interleave = 1 } = this.tensors.sharded;
    const count = microBatches?.count ?? 1;
    return [
      ...this.once((list) => list === BEGIN),
      `${BODY}micros = {}`,
      `${BODY}for name, number in read_schedule(${this.stage}):`,
      ...(interleave > 1 ? [`${inner}number *= ${interleave}`] : []),
      `${inner}if number not in micros:`,
      ...this.begun(fedPerMicro, `${inner}    `),
      ...this.marksLast(count, inner),
      ...(microBatches?.exceptLast ? [`${inner}lists = LAST_LISTS if number == ${count - interleave} else LISTS`] : []),
      ...this.ran(`getattr(self, ${microBatches?.exceptLast ? 'lists' : 'LISTS'}[name])`, inner),
      ...this.once((list) => list === UPDATE),
    ];
  }

  /** Where collectives start in the last micro-batch alone. */
  private marksLast(count: number, indent: string): readonly string[] {
    const { lists } = this.tensors.walk;
    // run_halves does it for each half.
    if ((this.tensors.sharded.interleave ?? 1) > 1) return [];
    const isThere = lists.some(({ instructions }) =>
      instructions.some(({ instruction }) => instruction.kind === 'start' && instruction.last),
    );
    return isThere ? [`${indent}progress.is_last = number == ${count - 1}`] : [];
  }

  private once(isWanted: (list: string) => boolean): readonly string[] {
    const { walk } = this.tensors;
    const isThere = (list: string) =>
      walk.lists.some(({ name, instructions }) => name === list && instructions.length > 0);
    return walk.actions.flatMap(({ microBatch, list }) =>
      microBatch === null && isWanted(list) && isThere(list) ? [`${BODY}self.${methodOf(list)}(step)`] : [],
    );
  }
}

/** The method of a list of instructions. */
export function methodOf(list: string): string {
  return `run_${identifier(list.replaceAll(' ', '_'))}`.replace(/_$/, '');
}

/** A method's variables go when it ends: those that it deletes at its end need no line. */
function withoutLast(body: readonly string[]): readonly string[] {
  const last = body.at(-1);
  return last?.startsWith(`${BODY}del `) && !/[.[]/.test(last) && body.length > 1 ? body.slice(0, -1) : body;
}
