/**
 * @file The placed schedule of a program in PyTorch's action grammar (torch.distributed.pipelining): a row per stage, `3F0` being
 * the forward of micro-batch 0 through part 3 of the model, `B` a backward, `I` and `W` its halves, `3SEND_F0` and `4RECV_F0`
 * the two ends of a transfer. The grammar knows transfers between neighbouring parts only: those of skip connections, of
 * gradients that several stages add up, and transfers once a step have no name in it and are left out.
 */
import { type ChunkList, computeLists, lastList, programPhases } from '../partition/program-phases.js';
import type { PipelineStage, ShardedGraph } from '../partition/sharded-graph.js';
import type { Program } from '../program/program.js';

/** The text of schedule.csv; null for a program that is not a pipeline. */
export function scheduleCsv({ schedule }: Program, stages: readonly ShardedGraph[]): string | null {
  const pipelines = stages.flatMap(({ pipeline }) => pipeline ?? []);
  if (pipelines.length !== stages.length) return null;
  const names = listNames(stages);
  const rows: string[][] = stages.map(() => []);
  for (const { stage, phase, microBatch } of schedule) {
    const name = names[stage]?.get(phase);
    // Halves are numbered in the program, whole micro-batches in the schedule.
    const { interleave = 1 } = stages[stage] ?? {};
    if (name !== undefined) rows[stage]?.push(`${name}${(microBatch ?? 0) / interleave}`);
  }
  return rows.map((row) => `${row.join(',')}\n`).join('');
}

/** Per stage of a pipeline, by list: its action without the micro-batch, where the grammar has one. */
export function listNames(stages: readonly ShardedGraph[]): readonly ReadonlyMap<string, string>[] {
  const pipelines = stages.flatMap(({ pipeline }) => pipeline ?? []);
  return stages.map((sharded, stage) => namesOf(sharded, stage, pipelines));
}

function namesOf(
  sharded: ShardedGraph,
  stage: number,
  pipelines: readonly PipelineStage[],
): ReadonlyMap<string, string> {
  const lists = pipelines.map((pipeline) => new Map(computeLists(pipeline).map((list) => [list.phase, list])));
  const partOf = (of: number, { chunk }: ChunkList) => pipelines[of]?.parts[chunk] as number;
  const names = new Map<string, string>();
  for (const [phase, list] of lists[stage] ?? []) names.set(phase, `${partOf(stage, list)}${LETTERS[list.does]}`);
  for (const { phase, runs, transfers } of programPhases(sharded)) {
    const [first] = transfers;
    if (runs !== 'micro' || !first) continue;
    const { kind, transfer } = first;
    const [from, to] = kind === 'send' ? [stage, transfer.stage] : [transfer.stage, stage];
    const maker = lists[from]?.get(transfer.list);
    const way = maker && WAYS[maker.does];
    if (!maker || !way) continue;
    const part = partOf(from, maker);
    const next = part + way.by;
    if (!pipelines[to]?.parts.includes(next)) continue;
    names.set(phase, kind === 'send' ? `${part}SEND_${way.letter}` : `${next}RECV_${way.letter}`);
  }
  for (const [phase, name] of [...names]) names.set(lastList(phase), name);
  return names;
}

const LETTERS: Readonly<Record<string, string>> = {
  forward: 'F',
  backward: 'B',
  'input-gradient': 'I',
  'weight-gradient': 'W',
};

/** Which part the results of a phase go to. */
const WAYS: Readonly<Record<string, { readonly letter: string; readonly by: number }>> = {
  forward: { letter: 'F', by: 1 },
  backward: { letter: 'B', by: -1 },
  'input-gradient': { letter: 'B', by: -1 },
};
