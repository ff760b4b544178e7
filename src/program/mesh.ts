/**
 * @file Ranks and groups of a program's mesh, from its JSON form.
 *
 * Ranks are numbered with the last sub-axis fastest. For dp 2 (one sub-axis) and tp 4 (tp.0, tp.1):
 *
 *     rank   0 1 2 3 4 5 6 7
 *     dp     0 0 0 0 1 1 1 1
 *     tp.0   0 0 1 1 0 0 1 1
 *     tp.1   0 1 0 1 0 1 0 1
 */
import type { ProgramAxis } from './program.js';

/** Name of the axis that carries pipeline stages. */
export const STAGE_AXIS = 'pp';

/** Number of ranks of the mesh: the product of all axes. */
export function rankCount(axes: readonly ProgramAxis[]): number {
  return axes.reduce((product, axis) => product * axis.size, 1);
}

/** The axes inside one stage: all of them, less `pp` where there are several stages. */
export function stageAxes(axes: readonly ProgramAxis[], stages: number): readonly ProgramAxis[] {
  return stages > 1 ? axes.filter((axis) => axis.axis !== STAGE_AXIS) : axes;
}

/** Number of shards that a list of sub-axes makes. Throws on a name that the mesh lacks. */
export function shardCount(axes: readonly ProgramAxis[], names: readonly string[]): number {
  return names.reduce((product, name) => product * subAxis(axes, name).size, 1);
}

/** Which shard a rank holds: its mixed-radix index on a list of sub-axes, the first being major. */
export function shardIndex(axes: readonly ProgramAxis[], names: readonly string[], rank: number): number {
  return names.reduce((index, name) => {
    const { size, stride } = subAxis(axes, name);
    return index * size + (Math.floor(rank / stride) % size);
  }, 0);
}

/** The name of a weight's file, or its key in it, for one shard. */
export function shardText(text: string, shard: number): string {
  return text.replace('{k}', String(shard));
}

/** The ranks that differ from `rank` only on `names`; member k is the one with index k on them. */
export function groupOf(axes: readonly ProgramAxis[], names: readonly string[], rank: number): readonly number[] {
  let members = [rank];
  for (const name of names) {
    const { size, stride } = subAxis(axes, name);
    members = members.flatMap((member) => {
      const zero = member - (Math.floor(member / stride) % size) * stride;
      return Array.from({ length: size }, (_, index) => zero + index * stride);
    });
  }
  return members;
}

/** All sub-axes with how many ranks apart two neighbours on each are, outermost first. */
export function subAxesOf(
  axes: readonly ProgramAxis[],
): readonly { readonly name: string; readonly size: number; readonly stride: number }[] {
  const subs = axes.flatMap((axis) => axis.subAxes);
  let stride = 1;
  return subs
    .toReversed()
    .map(({ name, size }) => {
      const entry = { name, size, stride };
      stride *= size;
      return entry;
    })
    .reverse();
}

function subAxis(axes: readonly ProgramAxis[], name: string): { readonly size: number; readonly stride: number } {
  const found = subAxesOf(axes).find((sub) => sub.name === name);
  if (!found) throw new Error(`the program's mesh has no sub-axis ${name}`);
  return found;
}
