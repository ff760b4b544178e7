/**
 * @file The modules of a stage: a class for each kind of layer, and the model, whose methods call them in order.
 */
import { elementCount } from '../../ir/graph.js';
import { layoutText } from '../../sharding-propagation/layout-text.js';
import { outputsOf } from './interface.js';
import { leading, PLACES, statementsOf } from './method.js';
import type { ChannelEnd, MethodNaming } from './naming.js';
import { dtypeText, numbersText, tuple } from './operators/operator.js';
import { attributeName, Names, PathNames, snakeCase, statement } from './python.js';
import type { LayerInstructions } from './runs.js';
import { type LayerOwner, type TorchTensors, tensorOf } from './tensors.js';

const BODY = '        ';

/** Constants of so many elements stand in the code; larger ones are in a file. */
const WRITTEN_ELEMENTS = 16;

/** A constant that is in a file: the parameter that receives it, with its layer. */
export interface FiledConstant {
  readonly path: string;
  readonly tensor: string;
}

/** A call of a layer's method: its arguments, and its results. */
interface Call {
  readonly namespaces: readonly string[];
  readonly given: readonly string[];
  readonly results: readonly string[];
}

/** One layer, or the stage itself. */
export interface OwnedModule {
  readonly owner: LayerOwner;
  /** Lines of the constructor and of the methods, the same for equal layers. */
  readonly lines: readonly string[];
  /** By parameter: its dotted name in the module, and in the whole model. */
  readonly paths: ReadonlyMap<string, string>;
  readonly calls: ReadonlyMap<LayerInstructions, Call>;
  readonly constants: readonly FiledConstant[];
  /** By tensor: its name in the module's namespace. */
  readonly slots: ReadonlyMap<string, string>;
  /** Next values of state that are written over the state itself. */
  readonly stayed: ReadonlySet<string>;
}

/** Whether a tensor is in its maker's namespace, and not in a variable of one method. */
export function isInNamespace(name: string, tensors: TorchTensors): boolean {
  const run = tensors.madeIn.get(name);
  if (!run) return false;
  if (tensors.readAtStepEnd.has(name)) return true;
  const readers = tensors.readIn.get(name) ?? [];
  const makers = tensors.makers.get(name) ?? new Set();
  const lists = new Set([...makers].map(({ list }) => list));
  const isReadElsewhere = readers.some(({ list }) => !lists.has(list));
  if (run.layer === null) return isReadElsewhere || waitsElsewhere(name, run, tensors);
  const own = readers.some((reader) => !makers.has(reader) && reader.layer === run.layer);
  return own || tensors.pending.has(name) || isReadElsewhere || isSum(name, tensors);
}

function waitsElsewhere(name: string, run: LayerInstructions, { pending, runs }: TorchTensors): boolean {
  return (
    isPendingSum(name, run) ||
    (pending.has(name) &&
      runs.some(
        ({ list, instructions }) =>
          list !== run.list &&
          instructions.some(({ instruction }) => instruction.kind === 'wait' && instruction.node.output === name),
      ))
  );
}

function isPendingSum(name: string, { instructions }: LayerInstructions): boolean {
  return instructions.some(
    ({ instruction }) => instruction.kind === 'accumulate' && instruction.node.outputs[0] === name,
  );
}

function isSum(name: string, { madeIn }: TorchTensors): boolean {
  const run = madeIn.get(name);
  return run !== undefined && isPendingSum(name, run);
}

/** Whether a layer's method gives a tensor to the stage, whose other methods read it. */
function isReturned(name: string, run: LayerInstructions, { readIn, pending }: TorchTensors): boolean {
  if (pending.has(name)) return false;
  return (readIn.get(name) ?? []).some(({ list, layer }) => list === run.list && layer !== run.layer);
}

export function namespaceOf(name: string, { walk }: TorchTensors): 'micro' | 'step' {
  return walk.lifetimeOf(name) === 'micro' ? 'micro' : 'step';
}

/** Gives a tensor the variable of another one, whose name is removed. */
export function renamed(locals: Map<string, string>, name: string, other: string): string | undefined {
  const local = locals.get(other);
  locals.delete(other);
  if (local !== undefined) locals.set(name, local);
  return local;
}

/** Writes the module of a layer. */
export class LayerWriter {
  private readonly names = new Names();
  private readonly paths = new Map<string, string>();
  private readonly pathNames: PathNames;
  /** By tensor: its expression in every method. */
  private readonly fixed = new Map<string, string>();
  private readonly slots = new Map<string, string>();
  private readonly constructorLines: string[] = [];
  private readonly constants: FiledConstant[] = [];
  private readonly hosted = new Map<string, string>();
  private readonly groups = new Set<string>();
  readonly stayed = new Set<string>();

  constructor(
    private readonly owner: LayerOwner,
    private readonly tensors: TorchTensors,
    /** Paths of parameters that are not its own. */
    taken: Iterable<string> = [],
  ) {
    this.pathNames = new PathNames(taken);
  }

  /** The module of a layer, its methods in the order in which they run. */
  layer(runs: readonly LayerInstructions[]): OwnedModule {
    const calls = new Map<LayerInstructions, Call>();
    const methods = runs.flatMap((run) => {
      const { lines, call } = this.method(run);
      calls.set(run, call);
      return ['', ...lines];
    });
    return { ...this.module(methods), calls };
  }

  /** The module with its constructor and methods. */
  module(methods: readonly string[]): Omit<OwnedModule, 'calls'> {
    const { owner, paths, constants, slots, stayed } = this;
    const lines = ['    def __init__(self, mesh):', `${BODY}super().__init__()`, ...this.constructorLines, ...methods];
    return { owner, lines, paths, constants, slots, stayed };
  }

  private method(run: LayerInstructions): { readonly lines: readonly string[]; readonly call: Call } {
    const locals = new Map<string, string>();
    const given: string[] = [];
    const namespaces = new Set<string>();
    const inNamespace = (name: string, slot: string) => {
      const namespace = namespaceOf(name, this.tensors);
      namespaces.add(namespace);
      return `${namespace}.${slot}`;
    };
    const known = (name: string): string | undefined => {
      const slot = this.slots.get(name);
      return locals.get(name) ?? this.fixed.get(name) ?? (slot === undefined ? undefined : inNamespace(name, slot));
    };
    const read = (name: string): string => {
      const text = known(name) ?? this.own(name);
      if (text !== undefined) return text;
      const argument = this.names.take('x');
      locals.set(name, argument);
      given.push(name);
      return argument;
    };
    const naming: MethodNaming = {
      read,
      onHost: (name) => this.onHost(name),
      make: (name, base) => {
        if (!isInNamespace(name, this.tensors)) {
          const local = this.names.take(base);
          locals.set(name, local);
          return local;
        }
        return inNamespace(name, this.slot(name, base));
      },
      over: (name, operand) =>
        isInNamespace(name, this.tensors) || given.includes(operand) ? undefined : renamed(locals, name, operand),
      staysIn: (name, text) => this.staysIn(name, text),
      local: (base) => this.names.take(base),
      group: (axes) => this.group(axes),
      holders: (name) => {
        const slot = this.slots.get(name);
        if (slot !== undefined) return [inNamespace(name, slot)];
        const local = locals.get(name);
        return local === undefined || given.includes(name) || isReturned(name, run, this.tensors) ? [] : [local];
      },
      waitsHere: () => true,
      wait: (name) => `${read(name)} = ${read(name)}.wait()`,
      sum: (name) => {
        const slot = this.slot(name, 'total');
        return [inNamespace(name, slot).replace(`.${slot}`, ''), slot];
      },
      device: () => this.device(),
      lead: (axes) => this.lead(axes),
      channel: (end, stage) => this.channel(end, stage),
    };
    const statements = statementsOf(run, this.tensors, naming);
    for (const { from, to } of this.tensors.stores.get(run) ?? []) {
      if (this.stayed.has(from)) continue;
      const stored = { text: `${read(to)}.data = ${read(from)}`, comment: '' };
      statements.add([stored], leading([to], this.tensors.sharded, naming));
    }
    const body = [...statements.lines()];
    const made = run.instructions.flatMap(({ instruction, makes }) =>
      instruction.kind === 'start' ? [instruction.node.output] : makes,
    );
    const results = [...new Set(made)].filter((name) => isReturned(name, run, this.tensors));
    if (results.length > 0) body.push(...statement(`return ${results.map(read).join(', ')}`, BODY));
    const lasting = ['micro', 'step'].filter((namespace) => namespaces.has(namespace));
    const parameters = ['self', ...lasting, ...given.map((name) => locals.get(name) as string)];
    const lines = [...statement(`def ${run.method}(${parameters.join(', ')}):`, '    '), ...body];
    return { lines, call: { namespaces: lasting, given, results } };
  }

  /** As `MethodNaming` has it: for a parameter of its own, whose next value nothing else reads. */
  staysIn(name: string, text: string): boolean {
    const { sharded, readIn } = this.tensors;
    const states = sharded.state.filter(({ from }) => from === name);
    const isRead = readIn.has(name) || outputsOf(sharded).some(({ tensor }) => tensor === name);
    const isOwn = states.length === 1 && states.every(({ to }) => this.own(to) === text);
    if (isRead || !isOwn) return false;
    this.stayed.add(name);
    return true;
  }

  /** The name of a tensor in the module's namespace. */
  slot(name: string, base: string): string {
    const known = this.slots.get(name);
    if (known !== undefined) return known;
    const slot = this.names.take(base);
    this.slots.set(name, slot);
    return slot;
  }

  /** The attribute of a parameter, constant or coordinate; undefined for computed tensors. */
  own(name: string): string | undefined {
    const known = this.fixed.get(name);
    if (known !== undefined) return known;
    const text = this.inline(name) ?? this.coordinate(name) ?? this.parameter(name);
    if (text !== undefined) this.fixed.set(name, text);
    return text;
  }

  /** The attribute of a constant or coordinate in the host's memory; undefined for tensors with a place of their own. */
  onHost(name: string): string | undefined {
    const known = this.hosted.get(name);
    if (known !== undefined) return known;
    const text = this.inline(name, 'cpu') ?? this.coordinate(name, '.cpu()');
    if (text !== undefined) this.hosted.set(name, text);
    return text;
  }

  private inline(name: string, device = ''): string | undefined {
    const data = this.tensors.inline.get(name);
    if (!data) return undefined;
    const { dtype, localShape: shape } = tensorOf(this.tensors.sharded, name);
    const attribute = this.names.take('constant');
    const dtypeName = dtypeText(dtype);
    if (elementCount(shape) > WRITTEN_ELEMENTS) {
      this.constants.push({ path: this.fullPath(attribute), tensor: name });
      this.declare(attribute, shape, `${dtypeName}${device && `, place="${device}"`}`, '');
      return `self.${attribute}`;
    }
    const values = numbersText({ dtype, shape, data });
    const isScalar = shape.length === 0;
    const list = isScalar ? (values[0] ?? '0') : `[${values.join(', ')}]`;
    const reshaped = shape.length > 1 || elementCount(shape) === 0 ? `.reshape(${shape.join(', ')})` : '';
    this.add(
      `self.${attribute} = torch.tensor(${list}, dtype=${dtypeName}${device && `, device="${device}"`})${reshaped}`,
    );
    return `self.${attribute}`;
  }

  private coordinate(name: string, moved = ''): string | undefined {
    const coordinate = this.tensors.sharded.coordinates.find((item) => item.name === name);
    if (!coordinate) return undefined;
    const attribute = this.names.take('offset');
    const names = this.tensors.axes.named(coordinate.axes);
    const axes = `(${names.map((axis) => `"${axis}"`).join(', ')}${names.length === 1 ? ',' : ''})`;
    this.add(`self.${attribute} = mesh.coordinate(${axes}, ${coordinate.block}, ${coordinate.bias})${moved}`);
    return `self.${attribute}`;
  }

  private parameter(name: string): string | undefined {
    if (this.tensors.parameters.get(name) !== this.owner) return undefined;
    const { sharded } = this.tensors;
    const { dtype, localShape, layout, place, first } = tensorOf(sharded, name);
    const isOwn = this.owner !== '' && name.startsWith(`${this.owner}.`);
    const wanted = isOwn ? name.slice(this.owner.length + 1) : this.owner === '' ? name : 'weight';
    const path = this.pathNames.take(wanted.split('.').map(segment).join('.'));
    this.paths.set(name, this.fullPath(path));
    const where = `${place ? `, place="${PLACES[place]}"` : ''}${first ? `, held=${this.lead(first)}` : ''}`;
    this.declare(path, localShape, `${dtypeText(dtype)}${where}`, layoutText(layout, sharded.mesh));
    return access(path);
  }

  private declare(path: string, shape: readonly number[], dtype: string, comment: string): void {
    this.constructorLines.push(...statement(`declare(self, "${path}", ${tuple(shape)}, ${dtype})`, BODY, comment));
  }

  private fullPath(path: string): string {
    return this.owner === '' ? path : `${pathOf(this.owner)}.${path}`;
  }

  group(subAxes: readonly string[]): string {
    const axes = this.tensors.axes.named(subAxes);
    const attribute = `${axes.map(snakeCase).join('_')}_group`;
    if (!this.groups.has(attribute)) {
      this.groups.add(attribute);
      this.add(`self.${attribute} = mesh.group(${axes.map((axis) => `"${axis}"`).join(', ')})`);
    }
    return `self.${attribute}`;
  }

  device(): string {
    if (!this.groups.has('device')) {
      this.groups.add('device');
      this.add('self.device = mesh.device');
    }
    return 'self.device';
  }

  lead(subAxes: readonly string[]): string {
    const axes = this.tensors.axes.named(subAxes);
    const attribute = `is_first_${axes.map(snakeCase).join('_')}`;
    if (!this.groups.has(attribute)) {
      this.groups.add(attribute);
      this.add(`self.${attribute} = mesh.is_first(${axes.map((axis) => `"${axis}"`).join(', ')})`);
    }
    return `self.${attribute}`;
  }

  channel(end: ChannelEnd, stage: number): string {
    const way = end === 'send' ? 'to' : 'from';
    const attribute = `${way}_stage_${stage}`;
    if (!this.groups.has(attribute)) {
      this.groups.add(attribute);
      this.add(`self.${attribute} = mesh.channel_${way}(${stage})`);
    }
    return `self.${attribute}`;
  }

  private add(text: string): void {
    this.constructorLines.push(...statement(text, BODY));
  }
}

/** As Python writes a whole number: without zeros ahead of it. */
const NUMBER = /^(0|[1-9]\d*)$/;

/** Names of attributes and methods of emitted modules. */
const OWN =
  /^(constant|offset|(to|from)_stage_\d|is_first_|run_|(forward|backward|recompute|update)_\d)|_group$|^device$/;

/** A part of a dotted name; numbers stay, as places in a list. */
function segment(text: string): string {
  if (NUMBER.test(text)) return text;
  const name = attributeName(text);
  return OWN.test(name) ? `${name}_` : name;
}

/** The dotted name of a layer's module. */
export function pathOf(layer: string): string {
  return layer.split('.').map(segment).join('.');
}

/** `h.0.attn` → `self.h[0].attn`. */
export function access(path: string): string {
  return path.split('.').reduce((text, part) => (NUMBER.test(part) ? `${text}[${part}]` : `${text}.${part}`), 'self');
}
