/** @file Whole schedules in linear order, and the time that such an order takes with transfers that wait for each other. */
import { actionNumbers, consumerOf } from '../src/schedule/dependencies.js';
import { type Passing, type PlacedEvent, placeTransfers } from '../src/schedule/place.js';
import { type Action, type Schedule, UNIT_SECONDS } from '../src/schedule/schedule.js';

/** A schedule in linear order, each result going to the action that needs it; by unit times. */
export function placeSchedule(schedule: Schedule): readonly PlacedEvent<Action, Passing<Action>>[] {
  const numbers = actionNumbers(schedule);
  const all = schedule.actions.flat();
  const actions = new Map(all.map((action) => [numbers.of(action), action]));
  const transfers = all.flatMap((from): readonly Passing<Action>[] => {
    const consumer = consumerOf(from, schedule);
    if (!consumer || consumer.stage === from.stage) return [];
    return [{ from, stage: consumer.stage, reader: actions.get(numbers.of(consumer)) as Action }];
  });
  return placeTransfers(schedule.actions, transfers, ({ phase }) => UNIT_SECONDS[phase]);
}

/**
 * Seconds that a linear order takes where every transfer is a rendezvous: both its stages compute nothing from the time that
 * the first of them is there until it has ended.
 */
export function rendezvousSeconds<Work, Transfer>(
  order: readonly PlacedEvent<Work, Transfer>[],
  seconds: (action: Work) => number,
  transferSeconds: (transfer: Transfer) => number = () => 0,
): number {
  const clocks: number[] = [];
  const at = (stage: number) => clocks[stage] ?? 0;
  for (const placed of order) {
    if (placed.kind === 'action') clocks[placed.stage] = at(placed.stage) + seconds(placed.action);
    else {
      const end = Math.max(at(placed.from), at(placed.to)) + transferSeconds(placed.transfer);
      clocks[placed.from] = end;
      clocks[placed.to] = end;
    }
  }
  return clocks.reduce((most, clock) => Math.max(most, clock ?? 0), 0);
}
