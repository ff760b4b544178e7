/**
 * @file Ways in which program.json can be wrong, each a change of one thing: for every collective, transfer, tensor and stored
 * weight all of its kinds. None leaves the meaning of the program as it is.
 */
import type { DType } from '../../src/ir/dtype.js';
import type {
  Instruction,
  Program,
  ProgramCollective,
  ProgramStage,
  ProgramTensor,
} from '../../src/program/program.js';

/** One wrong program. */
export interface Corrupted {
  /** The kind of mistake, the same for all collectives, transfers or tensors. */
  readonly kind: string;
  readonly where: string;
  readonly program: Program;
}

type Start = Extract<Instruction, { kind: 'start' }>;
type Transfer = Extract<Instruction, { kind: 'send' | 'recv' }>;
type Copy = Extract<Instruction, { kind: 'move' }>;

/** Every corruption of a program. */
export function* corruptionsOf(program: Program): Generator<Corrupted> {
  for (const [index, stage] of program.stages.entries()) {
    for (const [phase, list] of Object.entries(stage.phases))
      for (const [position, instruction] of list.entries()) {
        const at: Place = { program, index, phase, position };
        const where = `stage ${index}, ${phase}, instruction ${position}`;
        if (instruction.kind === 'start')
          for (const [kind, wrong] of ofCollective(at, instruction)) yield { kind, where, program: wrong };
        if (instruction.kind === 'send' || instruction.kind === 'recv')
          for (const [kind, wrong] of ofTransfer(at, instruction)) yield { kind, where, program: wrong };
        if (list.some(({ half }) => half !== undefined)) {
          const { half, ...first } = instruction;
          const other = half === undefined ? { ...instruction, half: 1 as const } : first;
          yield {
            kind: 'an instruction of the other half of a micro-batch',
            where,
            program: inList(at, (list) => list.with(position, other)),
          };
        }
        if (instruction.kind === 'move')
          for (const [kind, wrong] of ofCopy(at, instruction)) yield { kind, where, program: wrong };
        if (instruction.kind === 'accumulate')
          yield {
            kind: 'a sum over micro-batches dropped',
            where,
            program: inList(at, (list) => list.toSpliced(position, 1)),
          };
      }
    for (const name of Object.keys(stage.tensors))
      for (const [kind, wrong] of ofTensor(program, index, name))
        yield { kind, where: `stage ${index}, tensor ${name}`, program: wrong };
    for (const name of Object.keys(stage.weights))
      for (const [kind, wrong] of ofWeight(program, index, name))
        yield { kind, where: `stage ${index}, weight ${name}`, program: wrong };
    for (const name of Object.keys(stage.coordinates))
      for (const [kind, wrong] of ofCoordinate(program, index, name))
        yield { kind, where: `stage ${index}, ${name}`, program: wrong };
  }
}

/** Where an instruction stands. */
interface Place {
  readonly program: Program;
  readonly index: number;
  readonly phase: string;
  readonly position: number;
}

function inStage(
  { program, index }: Pick<Place, 'program' | 'index'>,
  change: (stage: ProgramStage) => ProgramStage,
): Program {
  return { ...program, stages: program.stages.map((stage, at) => (at === index ? change(stage) : stage)) };
}

function inList(place: Place, change: (list: readonly Instruction[]) => readonly Instruction[]): Program {
  return inStage(place, (stage) => ({
    ...stage,
    phases: { ...stage.phases, [place.phase]: change(stage.phases[place.phase] ?? []) },
  }));
}

const NEW = 1_000_000;

function* ofCollective(at: Place, start: Start): Generator<readonly [string, Program]> {
  const { program, index, position } = at;
  const stage = program.stages[index] as ProgramStage;
  const input = stage.tensors[start.input] as ProgramTensor;
  const replaced = (other: Start) => inList(at, (list) => list.with(position, other));
  const isThis = (one: Instruction): boolean => one.kind === 'wait' && one.id === start.id;
  // One that begins in the last micro-batch is waited for in another list.
  const phases = Object.entries(stage.phases);
  const waits = start.last ? (phases.find(([, list]) => list.some(isThis))?.[0] ?? at.phase) : at.phase;
  const isOther = (one: Instruction) => !('id' in one && one.id === start.id);
  const without = inList({ ...at, program: inList(at, (list) => list.filter(isOther)), phase: waits }, (list) =>
    list.filter(isOther),
  );
  const { last: _last, bucket: _bucket, ...alone } = start;
  yield ['a collective dropped', without];
  const rewired = readersOf(without, index, start.output, start.input);
  const isOnlyGathered =
    program.outputs.some(({ tensor, stage: of }) => of === index && tensor === start.output) &&
    input.layout.partial.length === 0;
  if (!isOnlyGathered) yield ['a collective dropped, its operand read instead', rewired];
  yield [
    'a collective doubled',
    inList({ ...at, phase: waits }, (list) =>
      list.flatMap((one) => (isThis(one) ? [one, { ...alone, id: NEW }, { kind: 'wait', id: NEW } as const] : [one])),
    ),
  ];
  const again = `${start.output}/again`;
  const after = readersOf(program, index, start.output, again);
  yield [
    'a collective applied to its own result',
    inStage({ program: after, index }, (other) => ({
      ...other,
      tensors: { ...other.tensors, [again]: stage.tensors[start.output] as ProgramTensor },
      phases: {
        ...other.phases,
        [waits]: (other.phases[waits] ?? []).flatMap((one) =>
          isThis(one)
            ? [one, { ...alone, id: NEW, input: start.output, output: again }, { kind: 'wait', id: NEW } as const]
            : [one],
        ),
      },
    })),
  ];
  yield ['a collective over no axes', replaced({ ...start, axes: [] })];
  yield ['a collective that never begins', inList(at, (list) => list.toSpliced(position, 1))];
  yield ['a collective that begins twice', inList(at, (list) => list.toSpliced(position, 0, start))];
  const list = stage.phases[at.phase] ?? [];
  const [before, behind] = [list[position - 1], list[position + 1]];
  const shares = (other: Instruction | undefined) => other?.kind === 'start' && other.bucket === start.bucket;
  if (start.bucket !== undefined && shares(before) && shares(behind))
    yield ['a bucket in two parts', replaced({ ...start, bucket: NEW })];
  if (start.bucket !== undefined && before?.kind === 'start' && !shares(before) && before.bucket !== undefined)
    if (before.collective.kind !== start.collective.kind && !shares(behind))
      yield ['a bucket of unlike collectives', replaced({ ...start, bucket: before.bucket })];
  if (start.last) {
    const { last: _always, ...always } = start;
    yield ['a collective of the last micro-batch in every one', replaced(always)];
  }
  const axes = program.mesh.flatMap(({ subAxes }) => subAxes.map(({ name }) => name));
  for (const axis of axes) {
    if (start.axes.includes(axis)) {
      if (start.axes.length > 1)
        yield ['a collective over fewer axes', replaced({ ...start, axes: start.axes.filter((one) => one !== axis) })];
      continue;
    }
    yield ['a collective over another axis', replaced({ ...start, axes: [axis] })];
    yield ['a collective over an axis more', replaced({ ...start, axes: [...start.axes, axis] })];
  }
  if (start.axes.length > 1 && !ANY_ORDER.has(start.collective.kind))
    yield ['a collective over its axes in another order', replaced({ ...start, axes: [...start.axes].reverse() })];
  const elements = input.localShape.reduce((product, size) => product * size, 1);
  const members = start.axes.reduce((product, name) => product * sizeOf(program, name), 1);
  for (const collective of others(start.collective, elements, members))
    yield ['a collective of another kind', replaced({ ...start, collective })];
  for (const name of Object.keys(stage.tensors)) {
    const type = stage.tensors[name] as ProgramTensor;
    if (name === start.input || JSON.stringify(type.layout) === JSON.stringify(input.layout)) continue;
    yield ['a collective of another tensor', replaced({ ...start, input: name })];
    break;
  }
}

function sizeOf(program: Program, name: string): number {
  return program.mesh.flatMap(({ subAxes }) => subAxes).find((sub) => sub.name === name)?.size ?? 1;
}

/** The order of their axes is that of the sum at most. */
const ANY_ORDER: ReadonlySet<string> = new Set(['all-reduce', 'reduce', 'broadcast']);

/** Other collectives on a shard of so many elements; those that mean the same in other numbers are left out. */
function others(collective: ProgramCollective, elements: number, members: number): readonly ProgramCollective[] {
  const rows = { outer: 1, inner: elements };
  const parts = { outer: 1, inner: elements / members };
  const all: readonly ProgramCollective[] = [
    { kind: 'all-reduce', reduction: 'sum' },
    { kind: 'all-reduce', reduction: 'max' },
    { kind: 'all-gather', ...rows },
    { kind: 'reduce-scatter', reduction: 'sum', ...parts },
    { kind: 'reduce-scatter', reduction: 'min', ...parts },
    { kind: 'all-to-all', split: parts, concat: parts },
    { kind: 'permute', to: Array.from({ length: members }, (_, member) => member) },
    { kind: 'permute', to: Array.from({ length: members }, (_, member) => (member + 1) % members) },
    { kind: 'reduce', reduction: 'sum' },
    { kind: 'broadcast' },
  ];
  const same = (other: ProgramCollective) =>
    other.kind === collective.kind &&
    !('reduction' in other && 'reduction' in collective && other.reduction !== collective.reduction) &&
    other.kind !== 'permute';
  return all.filter((other) => !same(other) && JSON.stringify(other) !== JSON.stringify(collective));
}

function* ofTransfer(at: Place, transfer: Transfer): Generator<readonly [string, Program]> {
  const { program, position, index } = at;
  const stage = program.stages[index] as ProgramStage;
  yield ['a transfer dropped at one end', inList(at, (list) => list.toSpliced(position, 1))];
  yield ['a transfer doubled at one end', inList(at, (list) => list.toSpliced(position, 0, transfer))];
  for (const other of program.stages.keys())
    if (other !== transfer.stage)
      yield ['a transfer with another stage', inList(at, (list) => list.with(position, { ...transfer, stage: other }))];
  yield [
    'a transfer under another name',
    inList(at, (list) => list.with(position, { ...transfer, label: `${transfer.label}/other` })),
  ];
  const own = stage.tensors[transfer.tensor] as ProgramTensor;
  const other = Object.entries(stage.tensors).find(
    ([, type]) => JSON.stringify(type.layout) !== JSON.stringify(own.layout),
  );
  if (other)
    yield [
      'a transfer of another tensor',
      inList(at, (list) => list.with(position, { ...transfer, tensor: other[0] })),
    ];
  if (transfer.kind === 'recv') return;
  const bothEnds = (list: readonly Instruction[]) =>
    list.filter((one) => !('label' in one && 'tensor' in one && one.label === transfer.label));
  const lists = (one: ProgramStage) => ({
    ...one,
    phases: Object.fromEntries(Object.entries(one.phases).map(([name, list]) => [name, bothEnds(list)])),
  });
  yield ['a transfer dropped at both ends', { ...program, stages: program.stages.map(lists) }];
}

/** Corruptions of copies between memories. */
function* ofCopy(at: Place, copy: Copy): Generator<readonly [string, Program]> {
  const { program, position, index } = at;
  const stage = program.stages[index] as ProgramStage;
  const { input, output } = copy;
  const replaced = (other: Copy) => inList(at, (list) => list.with(position, other));
  const without = inList(at, (list) => list.toSpliced(position, 1));
  yield ['a copy dropped', without];
  yield ['a copy dropped, its operand read instead', readersOf(without, index, output, input)];
  yield ['a copy doubled', inList(at, (list) => list.toSpliced(position, 0, copy))];
  yield ['a copy the other way', replaced({ ...copy, input: output, output: input })];
  yield ['a copy of itself', replaced({ ...copy, output: input })];
  const own = stage.tensors[input] as ProgramTensor;
  const inMemory = (name: string, place: ProgramTensor['place']) =>
    inStage({ program, index }, (other) => {
      const { place: _place, ...tensor } = other.tensors[name] as ProgramTensor;
      return { ...other, tensors: { ...other.tensors, [name]: place ? { ...tensor, place } : tensor } };
    });
  yield ['a copy within a memory', inMemory(output, own.place)];
  if (!own.place) yield ['a copy from another memory', inMemory(input, 'disk')];
  const other = Object.entries(stage.tensors).find(
    ([, { layout, place }]) => place === own.place && JSON.stringify(layout) !== JSON.stringify(own.layout),
  );
  if (other) yield ['a copy of another tensor', replaced({ ...copy, input: other[0] })];
}

function* ofTensor(program: Program, index: number, name: string): Generator<readonly [string, Program]> {
  const changed = (change: (tensor: ProgramTensor) => ProgramTensor) =>
    inStage({ program, index }, (stage) => ({
      ...stage,
      tensors: { ...stage.tensors, [name]: change(stage.tensors[name] as ProgramTensor) },
    }));
  const stage = program.stages[index] as ProgramStage;
  const tensor = stage.tensors[name] as ProgramTensor;
  // A coordinate is what its own record says.
  if (name in stage.coordinates) return;
  const other: DType = tensor.dtype === 'float32' ? 'int32' : tensor.dtype === 'int64' ? 'float64' : 'float32';
  yield ['a tensor of another dtype', changed((type) => ({ ...type, dtype: other }))];
  if (tensor.layout.partial.length > 0) {
    yield ['a partial sum said to be whole', changed((type) => ({ ...type, layout: { ...type.layout, partial: [] } }))];
    const partial = tensor.layout.partial.map(
      (entry) => ({ ...entry, reduction: entry.reduction === 'sum' ? 'max' : 'sum' }) as const,
    );
    yield ['a partial value of another kind', changed((type) => ({ ...type, layout: { ...type.layout, partial } }))];
  }
  if (tensor.varying) yield ['a varying tensor said to be replicated', changed(({ varying: _, ...type }) => type)];
  if (tensor.first) yield ["a first rank's tensor said to be on all ranks", changed(({ first: _, ...type }) => type)];
  const free = program.mesh
    .flatMap(({ axis, subAxes }) => (axis === 'pp' ? [] : subAxes.map((sub) => sub.name)))
    .find((axis) => !JSON.stringify(tensor).includes(`"${axis}"`));
  if (free !== undefined) {
    const partial = [...tensor.layout.partial, { axis: free, reduction: 'sum' as const }];
    yield ['a tensor said to be partial', changed((type) => ({ ...type, layout: { ...type.layout, partial } }))];
    const first = [...(tensor.first ?? []), free];
    yield ["a tensor said to be the first rank's alone", changed((type) => ({ ...type, first }))];
  }
}

function* ofWeight(program: Program, index: number, name: string): Generator<readonly [string, Program]> {
  const changed = (change: Partial<ProgramStage['weights'][string]>) =>
    inStage({ program, index }, (stage) => {
      const weight = stage.weights[name];
      return weight ? { ...stage, weights: { ...stage.weights, [name]: { ...weight, ...change } } } : stage;
    });
  const weight = program.stages[index]?.weights[name];
  if (!weight) return;
  yield ['a weight of another dtype', changed({ dtype: weight.dtype === 'float32' ? 'int32' : 'float32' })];
  if (weight.first) yield ["a first rank's weight read on all ranks", changed({ first: [] })];
  if (weight.axes.length > 0) yield ['a sharded weight read as one', changed({ axes: [] })];
  if (weight.axes.length > 1)
    yield ['shards of a weight numbered otherwise', changed({ axes: [...weight.axes].reverse() })];
}

function* ofCoordinate(program: Program, index: number, name: string): Generator<readonly [string, Program]> {
  const changed = (change: Partial<ProgramStage['coordinates'][string]>) =>
    inStage({ program, index }, (stage) => {
      const own = stage.coordinates[name];
      return own ? { ...stage, coordinates: { ...stage.coordinates, [name]: { ...own, ...change } } } : stage;
    });
  const own = program.stages[index]?.coordinates[name];
  if (!own) return;
  yield ['a coordinate of shards of another size', changed({ block: own.block + 1 })];
  yield ['a coordinate over no axes', changed({ axes: [] })];
}

/** The program with everything that reads `from` reading `to`. */
function readersOf(program: Program, index: number, from: string, to: string): Program {
  const name = (one: string) => (one === from ? to : one);
  const read = (one: Instruction): Instruction => {
    if (one.kind === 'compute') return { ...one, inputs: one.inputs.map(name) };
    if (one.kind === 'start' || one.kind === 'accumulate') return { ...one, input: name(one.input) };
    if (one.kind === 'send') return { ...one, tensor: name(one.tensor) };
    if (one.kind === 'free') return { ...one, tensors: [...new Set(one.tensors.map(name))] };
    return one;
  };
  // The operand lives until its new readers have run.
  const freedLast = (lists: readonly (readonly [string, readonly Instruction[]])[]) => {
    const reads = (one: Instruction) =>
      (one.kind === 'compute' && one.inputs.includes(to)) ||
      ((one.kind === 'start' || one.kind === 'accumulate') && one.input === to) ||
      (one.kind === 'free' && one.tensors.includes(to)) ||
      (one.kind === 'send' && one.tensor === to);
    const all = lists.flatMap(([phase, list]) => list.map((one, at) => ({ phase, at, one })));
    const last = all.findLast(({ one }) => reads(one));
    return lists.map(([phase, list]) => [
      phase,
      list.flatMap((one, at): readonly Instruction[] => {
        if (one.kind !== 'free') return phase === last?.phase && at === last.at ? [one] : [one];
        const isLast = phase === last?.phase && at === last.at;
        const tensors = one.tensors.filter((tensor) => tensor !== to || isLast);
        return tensors.length > 0 ? [{ ...one, tensors }] : [];
      }),
    ]);
  };
  const isHere = (stage: number) => stage === index;
  return {
    ...inStage({ program, index }, (stage) => ({
      ...stage,
      phases: Object.fromEntries(
        freedLast(Object.entries(stage.phases).map(([phase, list]) => [phase, list.map(read)])),
      ),
    })),
    outputs: program.outputs.map((value) => (isHere(value.stage) ? { ...value, tensor: name(value.tensor) } : value)),
    ...(program.state
      ? { state: program.state.map((pair) => (isHere(pair.stage) ? { ...pair, from: name(pair.from) } : pair)) }
      : {}),
  };
}
