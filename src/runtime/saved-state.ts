/**
 * @file State of a session in a checkpoint: the boxes that each rank saves, and those that it reads.
 */
import path from 'node:path';
import { boxesOf } from '../program/boxes.js';
import { boxKey, type StoredBox, type StoredTensor } from '../program/checkpoint.js';
import type { SavedShard } from '../program/checkpoint-boxes.js';
import { shardIndex } from '../program/mesh.js';
import type { Program, ProgramTensor } from '../program/program.js';
import { holdsTensor } from '../program/rank-stage.js';
import { AutoparError, byteLength, type DType, elementCount } from '../program/values.js';
import type { Ranks } from './launch.js';
import { type RankSetup, userError } from './messages.js';

/** As `Session.save`. */
export async function saveState(
  program: Program,
  setups: readonly RankSetup[],
  ranks: Ranks,
  folder: string,
): Promise<Readonly<Record<string, StoredTensor>>> {
  const kept = savedShards(program, setups);
  const fileOf = (rank: number) => `rank-${rank}.safetensors`;
  const answers = await ranks.ask((rank) => ({
    kind: 'save',
    file: path.join(folder, fileOf(rank)),
    shards: kept[rank] ?? [],
  }));
  const tensors: Record<string, { dtype: DType; shape: readonly number[]; boxes: StoredBox[] }> = {};
  for (const [rank, { saved }] of answers.entries()) {
    if (!saved || 'error' in saved)
      throw (saved && userError(saved.error)) ?? new Error(`rank ${rank} did not report the saved tensors`);
    for (const { name, dtype, shape, boxes } of kept[rank] ?? []) {
      tensors[name] ??= { dtype, shape, boxes: [] };
      for (const { offset, size } of boxes) {
        const sha256 = saved.digests[boxKey(name, shape, { offset, size })] as string;
        tensors[name].boxes.push({ file: fileOf(rank), offset, size, sha256 });
      }
    }
  }
  return tensors;
}

/** As `Session.restore`. */
export async function restoreState(
  program: Program,
  setups: readonly RankSetup[],
  ranks: Ranks,
  { folder, tensors }: { readonly folder: string; readonly tensors: Readonly<Record<string, StoredTensor>> },
): Promise<void> {
  checkStored(program, tensors);
  await ranks.ask((rank) => {
    const { state } = setups[rank] as RankSetup;
    const own = state.map(({ to }) => [to, tensors[to] as StoredTensor] as const);
    return { kind: 'restore', folder, tensors: Object.fromEntries(own) };
  });
}

type ProgramState = NonNullable<Program['state']>[number];

/**
 * By rank. A tensor that several stages keep under one name is the first's; where several ranks hold the same shard, the rank
 * with the fewest bytes to save so far saves it.
 */
function savedShards(program: Program, setups: readonly RankSetup[]): readonly (readonly SavedShard[])[] {
  const kept: SavedShard[][] = setups.map(() => []);
  const bytes = setups.map(() => 0);
  for (const { stage: stageIndex, to: name } of firstOfState(program)) {
    const own = setups.filter((setup) => setup.stageIndex === stageIndex);
    const tensor = program.stages[stageIndex]?.tensors[name] as ProgramTensor;
    const { dtype, shape, layout, localShape: shardShape } = tensor;
    if (layout.partial.length > 0) throw new Error(`state ${name} is partial`);
    const cut = layout.dims.flatMap((pieces) => pieces.flatMap((piece) => piece.axes));
    const holders = new Map<number, RankSetup[]>();
    for (const setup of own) {
      const local = setup.rank - setup.regions.firstRank;
      if (!holdsTensor(setup.stage, setup.axes, local, name)) continue;
      const index = shardIndex(setup.axes, cut, local);
      holders.set(index, [...(holders.get(index) ?? []), setup]);
    }
    for (const same of holders.values()) {
      const least = Math.min(...same.map(({ rank }) => bytes[rank] ?? 0));
      const { rank, regions, axes } = same.find((holder) => bytes[holder.rank] === least) as RankSetup;
      const boxes = boxesOf(shape, layout, axes, rank - regions.firstRank);
      if (boxes.length === 0) continue;
      kept[rank]?.push({ name, dtype, shape, shardShape, boxes });
      bytes[rank] = least + byteLength(dtype, elementCount(shardShape));
    }
  }
  return kept;
}

function firstOfState({ state = [] }: Program): readonly ProgramState[] {
  return state.filter(({ to }, index) => state.findIndex((other) => other.to === to) === index);
}

/**
 * @param isOf whether a tensor counts
 * @throws AutoparError `checkpoint-mismatch` (input), naming the first tensor that is of another model or optimizer
 */
export function checkStored(
  program: Program,
  stored: Readonly<Record<string, StoredTensor>>,
  isOf: (name: string) => boolean = () => true,
): void {
  const own = new Map(
    firstOfState(program).map(({ stage, to }) => [to, program.stages[stage]?.tensors[to] as ProgramTensor]),
  );
  const typeText = (type: Pick<ProgramTensor, 'dtype' | 'shape'> | undefined) =>
    type ? `${type.dtype} [${type.shape.join(', ')}]` : 'absent';
  for (const name of [...own.keys(), ...Object.keys(stored)].filter(isOf)) {
    const [wanted, found] = [typeText(own.get(name)), typeText(stored[name])];
    if (wanted === found) continue;
    throw new AutoparError(
      'checkpoint-mismatch',
      'input',
      `the checkpoint is of another model or optimizer: its tensor ${name} is ${found}, and ${wanted} in the program`,
      { tensor: name },
      'resume with a program of the model that wrote it',
    );
  }
}
