/**
 * @file Properties of every program that offloads from its devices, against the same program that keeps all on them.
 */
import type { ExecutionContext } from 'ava';
import { type Pipeline, type Task, type Trained, train } from './compiled-training.js';

const wholes = new Map<string, Promise<Trained>>();

/** The program that keeps all on its devices: run once for all that is held against it. */
function onDevices(task: Task, pipeline: Pipeline, steps: number): Promise<Trained> {
  const key = JSON.stringify([task, pipeline, steps]);
  const known = wholes.get(key) ?? train(task, steps, pipeline);
  wholes.set(key, known);
  return known;
}

/** Trains with and without offload, and compares. Returns both. */
export async function compareOffload(
  t: ExecutionContext,
  task: Task,
  pipeline: Pipeline,
  offload: string,
  steps: number,
): Promise<{ readonly whole: Trained; readonly kept: Trained }> {
  const whole = await onDevices(task, pipeline, steps);
  const kept = await train(task, steps, pipeline, { offload });
  const name = `${task.model} ${JSON.stringify(pipeline)} ${offload}`;
  t.is(kept.losses.length, steps, name);
  t.deepEqual(kept.losses, whole.losses, name);
  t.deepEqual(kept.state, renamed(whole, kept), name);
  t.deepEqual(kept.peaks.counted, kept.peaks.predicted, name);
  const perStage = kept.outside.counted.length / pipeline.stages;
  t.deepEqual(
    kept.outside.counted,
    kept.outside.predicted.flatMap((own) => Array.from({ length: perStage }, () => own)),
    name,
  );
  for (const [stage, before] of whole.peaks.counted.entries())
    t.true((kept.peaks.counted[stage] ?? 0) <= before, `${name}: stage ${stage} holds more than without`);
  return { whole, kept };
}

/** State has one set of names, whatever is kept where. */
function renamed({ state }: Trained, { state: other }: Trained): Trained['state'] {
  return Object.fromEntries(Object.keys(other).flatMap((name) => (state[name] ? [[name, state[name]]] : [])));
}
