/**
 * @file Ways in which a compiled program that trains can be wrong, each as a change of the files that `compile` wrote.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Instruction, Program } from '../../src/program/program.js';

export interface Corruption {
  readonly name: string;
  /** Changes the files; false where the program has nothing of the kind. */
  readonly apply: (folder: string) => boolean;
  /** Names of tensors, one of which is among those that fail. */
  readonly fails: RegExp;
}

const STATE_OR_GRADIENT = /fc\d\.(weight|bias)/;

export const CORRUPTIONS: readonly Corruption[] = [
  {
    name: 'the reduction of the gradients is dropped',
    apply: (folder) =>
      changedCollectives(folder, ({ collective, ...start }, members) =>
        collective.kind === 'all-reduce' && start.label.endsWith('/update')
          ? { ...start, collective: { kind: 'permute', to: Array.from({ length: members }, (_, index) => index) } }
          : null,
      ),
    fails: STATE_OR_GRADIENT,
  },
  {
    name: 'gradients are reduced to the largest instead of the sum',
    apply: (folder) =>
      changedCollectives(folder, ({ collective, ...start }) =>
        'reduction' in collective && start.label.endsWith('/update')
          ? { ...start, collective: { ...collective, reduction: 'max' } }
          : null,
      ),
    fails: STATE_OR_GRADIENT,
  },
  {
    name: 'the learning rate is a hundred times as large',
    apply: (folder) => replacedBytes(folder, float(LEARNING_RATE), float(100 * LEARNING_RATE)),
    fails: STATE_OR_GRADIENT,
  },
  {
    name: 'a step counts twice',
    apply: (folder) => replacedBytes(folder, whole(1), whole(2), /^optimizer\/update\/Add$/),
    fails: /^optimizer\/step$/,
  },
  {
    name: "the first moment's decay is another",
    apply: (folder) => replacedBytes(folder, float(0.9), float(0.91)),
    fails: /\/mean$|\/momentum$/,
  },
  {
    name: 'what the second moment takes of the gradient is another',
    apply: (folder) => replacedBytes(folder, float(1 - 0.999), float(0.00102)),
    fails: /\/square$/,
  },
  {
    name: 'two tensors of state are swapped',
    apply: (folder) =>
      changedProgram(folder, (program) => {
        const pairs = program.state ?? [];
        const [stage] = program.stages;
        const like = (one: string, other: string) =>
          one !== other && stage?.tensors[one]?.localShape.join() === stage?.tensors[other]?.localShape.join();
        const moments = pairs.filter(({ to }) => /\/(mean|square|momentum)$/.test(to));
        const first = moments.find(({ to }) => moments.some((other) => like(to, other.to)));
        const second = moments.find((other) => first && like(first.to, other.to));
        if (!first || !second) return null;
        const other = (to: string) => (to === first.to ? second : to === second.to ? first : null);
        return { ...program, state: pairs.map((pair) => ({ ...pair, from: other(pair.to)?.from ?? pair.from })) };
      }),
    fails: /\/(mean|square|momentum)$/,
  },
  {
    name: 'a weight begins with another value',
    apply: (folder) => {
      const weights = join(folder, 'program', 'weights');
      const file = join(weights, readdirSync(weights).sort().at(-1) ?? '');
      const bytes = readFileSync(file);
      bytes.writeFloatLE(bytes.readFloatLE(bytes.byteLength - 4) + 1e-3, bytes.byteLength - 4);
      writeFileSync(file, bytes);
      return true;
    },
    fails: /./,
  },
];

/** The rate to compile with: no other constant has its bits. */
export const LEARNING_RATE = 0.0123;

type Start = Extract<Instruction, { kind: 'start' }>;

function changedProgram(folder: string, change: (program: Program) => Program | null): boolean {
  const file = join(folder, 'program', 'program.json');
  const changed = change(JSON.parse(readFileSync(file, 'utf8')) as Program);
  if (changed) writeFileSync(file, JSON.stringify(changed));
  return changed !== null;
}

function changedCollectives(folder: string, change: (start: Start, members: number) => Start | null): boolean {
  return changedProgram(folder, (program) => {
    let count = 0;
    const sizes = new Map(
      program.mesh.flatMap(({ subAxes }) => subAxes.map(({ name, size }) => [name, size] as const)),
    );
    const changed = (instruction: Instruction): Instruction => {
      if (instruction.kind !== 'start') return instruction;
      const other = change(
        instruction,
        instruction.axes.reduce((product, name) => product * (sizes.get(name) ?? 1), 1),
      );
      if (other) count++;
      return other ?? instruction;
    };
    const stages = program.stages.map((stage) => ({
      ...stage,
      phases: Object.fromEntries(Object.entries(stage.phases).map(([name, list]) => [name, list.map(changed)])),
    }));
    return count > 0 ? { ...program, stages } : null;
  });
}

/** Replaces bytes in the segments that update weights, or that make a tensor of a name. */
function replacedBytes(folder: string, from: Buffer, to: Buffer, made?: RegExp): boolean {
  const program = JSON.parse(readFileSync(join(folder, 'program', 'program.json'), 'utf8')) as Program;
  const files = program.stages.flatMap(({ phases, segments }) =>
    Object.values(phases)
      .flat()
      .flatMap((one) => {
        const isMeant =
          one.kind === 'compute' && (made ? one.outputs.some((name) => made.test(name)) : /update/.test(one.label));
        return isMeant ? [segments[one.segment]?.file ?? ''] : [];
      }),
  );
  let count = 0;
  for (const file of new Set(files)) {
    const bytes = readFileSync(join(folder, 'program', file));
    for (let at = bytes.indexOf(from); at >= 0; at = bytes.indexOf(from, at + from.length)) {
      to.copy(bytes, at);
      count++;
    }
    writeFileSync(join(folder, 'program', file), bytes);
  }
  return count > 0;
}

function float(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
}

function whole(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64LE(BigInt(value));
  return bytes;
}
