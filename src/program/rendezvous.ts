/**
 * @file Whether stages that run their lists in order finish even if every transfer is a rendezvous: a send waits for its
 * receiver, a receive for its sender, and nothing is buffered. A program that finishes without buffers finishes with any.
 */

/** A transfer as one end sees it. */
export interface TransferEnd {
  readonly kind: 'send' | 'recv';
  /** The stage at the other end. */
  readonly peer: number;
  readonly tensor: string;
  readonly microBatch: number | null;
  /** Where it stands: `forward, instruction 3`. */
  readonly at: string;
}

/**
 * The stages that wait for one another for ever, in words; null where all finish.
 * @param lists per stage, in the order in which it runs them
 */
export function endlessWait(lists: readonly (readonly TransferEnd[])[]): string | null {
  const reached = lists.map(() => 0);
  const now = (stage: number): TransferEnd | undefined => lists[stage]?.[reached[stage] ?? 0];
  const look = [...lists.keys()];
  for (let stage = look.pop(); stage !== undefined; stage = look.pop()) {
    const own = now(stage);
    if (!own || !meets(own, stage, now(own.peer))) continue;
    for (const end of [stage, own.peer]) {
      reached[end] = (reached[end] ?? 0) + 1;
      look.push(end);
    }
  }
  const stuck = lists.findIndex((_, stage) => now(stage) !== undefined);
  return stuck < 0 ? null : cycleFrom(stuck, now);
}

function meets(own: TransferEnd, stage: number, other: TransferEnd | undefined): boolean {
  return (
    other !== undefined &&
    other.peer === stage &&
    other.kind !== own.kind &&
    other.tensor === own.tensor &&
    other.microBatch === own.microBatch
  );
}

/** Follows from a stage that waits to the stage that it waits for, up to one that has ended or was visited before. */
function cycleFrom(first: number, now: (stage: number) => TransferEnd | undefined): string {
  const path: number[] = [];
  let stage = first;
  for (; now(stage) && !path.includes(stage); stage = (now(stage) as TransferEnd).peer) path.push(stage);
  const cycle = now(stage) ? path.slice(path.indexOf(stage)) : path;
  const waits = cycle.map((waiting) => {
    const { kind, peer, tensor, microBatch, at } = now(waiting) as TransferEnd;
    const [verb, way] = kind === 'send' ? ['send', 'to'] : ['receive', 'from'];
    const of = microBatch === null ? '' : ` of micro-batch ${microBatch}`;
    return `stage ${waiting} to ${verb} ${tensor}${of} ${way} stage ${peer} (${at})`;
  });
  const ended = now(stage) ? '' : `, which has ended`;
  return `stages wait for one another: ${waits.join(', ')}${ended}`;
}
