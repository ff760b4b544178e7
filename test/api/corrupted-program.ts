/**
 * @file Ways in which a compiled program that trains can be wrong though its types are right, each as a change of the files that
 * `compile` wrote. Wrong types are refused before a program runs (test/program/corruptions.ts).
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Program } from '../../src/program/program.js';

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

function changedProgram(folder: string, change: (program: Program) => Program | null): boolean {
  const file = join(folder, 'program', 'program.json');
  const changed = change(JSON.parse(readFileSync(file, 'utf8')) as Program);
  if (changed) writeFileSync(file, JSON.stringify(changed));
  return changed !== null;
}

/** Replaces bytes in the segments that update weights, or that make a tensor of a name; program.json says their new content. */
function replacedBytes(folder: string, from: Buffer, to: Buffer, made?: RegExp): boolean {
  return changedProgram(folder, (program) => {
    let count = 0;
    const changed = (file: string): string => {
      const at = join(folder, 'program', file);
      const bytes = readFileSync(at);
      for (let found = bytes.indexOf(from); found >= 0; found = bytes.indexOf(from, found + from.length)) {
        to.copy(bytes, found);
        count++;
      }
      writeFileSync(at, bytes);
      return createHash('sha256').update(bytes).digest('hex');
    };
    const stages = program.stages.map((stage) => {
      const meant = new Set(
        Object.values(stage.phases)
          .flat()
          .flatMap((one) => {
            const isMeant =
              one.kind === 'compute' && (made ? one.outputs.some((name) => made.test(name)) : /update/.test(one.label));
            return isMeant ? [stage.segments[one.segment]?.file] : [];
          }),
      );
      const segments = Object.entries(stage.segments).map(([id, segment]) =>
        meant.has(segment.file) ? [id, { ...segment, sha256: changed(segment.file) }] : [id, segment],
      );
      return { ...stage, segments: Object.fromEntries(segments) };
    });
    return count > 0 ? { ...program, stages } : null;
  });
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
