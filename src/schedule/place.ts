/**
 * @file One linear order of a step: actions of stages by their simulated start, and every transfer between the action that makes
 * its tensor and the first that reads it, when both its stages are between two actions. Each stage runs its share of that
 * order, both ends of a transfer at their place in it. So the stages finish even if every transfer is a rendezvous without a
 * buffer: the events can happen one at a time in this order, and none waits for a later one.
 */

/** A result of one action for another stage. */
export interface Passing<Work> {
  readonly from: Work;
  /** The stage that it goes to. */
  readonly stage: number;
  /** The first action there that reads it; left out where no placed action does. */
  readonly reader?: Work;
}

/** Something that happens: an action on its stage, or a transfer on two of them. */
export type PlacedEvent<Work, Transfer> =
  | { readonly kind: 'action'; readonly stage: number; readonly action: Work }
  | { readonly kind: 'transfer'; readonly from: number; readonly to: number; readonly transfer: Transfer };

/**
 * Places transfers among the actions of each stage, which keep their order.
 * @param seconds of an action, more than 0: for the order alone
 * @throws Error where actions wait for one another in a cycle
 */
export function placeTransfers<Work, Transfer extends Passing<Work>>(
  actions: readonly (readonly Work[])[],
  transfers: readonly Transfer[],
  seconds: (action: Work) => number,
): readonly PlacedEvent<Work, Transfer>[] {
  const makers = new Map<Work, Work[]>();
  for (const { from, reader } of transfers) {
    if (reader === undefined) continue;
    const list = makers.get(reader);
    if (list) list.push(from);
    else makers.set(reader, [from]);
  }
  const stageOf = new Map<Work, number>();
  const ends = new Map<Work, number>();
  const spans: ActionSpan[][] = actions.map(() => []);
  const starts = new Map<Work, number>();
  const events: { readonly at: number; readonly placed: PlacedEvent<Work, Transfer> }[] = [];
  const next = actions.map(() => 0);
  const free = actions.map(() => 0);
  const waiting = new Map<Work, number[]>();
  const ready = [...actions.keys()];
  const advance = (stage: number): void => {
    const list = actions[stage] ?? [];
    for (let index = next[stage] as number; index < list.length; index++) {
      const action = list[index] as Work;
      const needed = makers.get(action) ?? [];
      const absent = needed.find((maker) => !ends.has(maker));
      if (absent !== undefined) {
        waiting.set(absent, [...(waiting.get(absent) ?? []), stage]);
        return;
      }
      const at = needed.reduce((most, maker) => Math.max(most, ends.get(maker) as number), free[stage] as number);
      events.push({ at, placed: { kind: 'action', stage, action } });
      free[stage] = at + seconds(action);
      ends.set(action, free[stage] as number);
      spans[stage]?.push({ start: at, end: free[stage] as number });
      starts.set(action, at);
      stageOf.set(action, stage);
      next[stage] = index + 1;
      ready.push(...(waiting.get(action) ?? []));
      waiting.delete(action);
    }
  };
  for (let stage = ready.pop(); stage !== undefined; stage = ready.pop()) advance(stage);
  if (waiting.size > 0) throw new Error('the stages of this schedule wait for one another in a cycle');
  const passed = transfers.map((transfer) => {
    const { from: maker, stage: to, reader } = transfer;
    const from = stageOf.get(maker) as number;
    const made = ends.get(maker) as number;
    const needed = reader === undefined ? made : (starts.get(reader) as number);
    const at = meeting(spans[from] ?? [], spans[to] ?? [], made, needed);
    return { at, placed: { kind: 'transfer', from, to, transfer } as const };
  });
  // A stable order: transfers come first among events at one time.
  return [...passed, ...events].sort((a, b) => a.at - b.at).map(({ placed }) => placed);
}

/** An action's time on its stage. */
interface ActionSpan {
  readonly start: number;
  readonly end: number;
}

/** The first time at which two stages are between actions; where there is none up to `last`, the first of all. */
function meeting(one: readonly ActionSpan[], other: readonly ActionSpan[], first: number, last: number): number {
  for (let at = first; at <= last; ) {
    const next = Math.max(freeFrom(one, at), freeFrom(other, at));
    if (next === at) return at;
    at = next;
  }
  return first;
}

/** The first time from `at` on that is inside of no span; spans ascend. */
function freeFrom(spans: readonly ActionSpan[], at: number): number {
  let [low, high] = [0, spans.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((spans[middle] as ActionSpan).start < at) low = middle + 1;
    else high = middle;
  }
  return Math.max(at, spans[low - 1]?.end ?? at);
}

/** The share of a linear order that each stage runs. */
export function byStage<Work, Transfer>(
  order: readonly PlacedEvent<Work, Transfer>[],
  stages: number,
): readonly (readonly PlacedEvent<Work, Transfer>[])[] {
  const lists: PlacedEvent<Work, Transfer>[][] = Array.from({ length: stages }, () => []);
  for (const placed of order) {
    const ends = placed.kind === 'action' ? [placed.stage] : [placed.from, placed.to];
    for (const stage of ends) lists[stage]?.push(placed);
  }
  return lists;
}
