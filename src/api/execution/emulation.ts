/**
 * @file Input of emulated ranks: the seconds of every segment, and the link between ranks. The seconds are those that the program
 * states, or else those that the device of the plan's cluster needs for the work.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { operatorSeconds } from '../../cost-model/kernel-price.js';
import { moveRates } from '../../cost-model/move-price.js';
import { quantityExample, quantityOf } from '../../cost-model/quantities.js';
import { byteLength } from '../../ir/dtype.js';
import { badOption } from '../../ir/error.js';
import { elementCount } from '../../ir/graph.js';
import type { Instruction, Program, ProgramStage } from '../../program/program.js';
import type { EmulatedLink, Emulation } from '../../runtime/messages.js';
import type { Plan } from '../../strategy/plan.js';
import { clusterOf } from '../planning/lower-plan.js';

/** @param link `10GB/s,20us`; by default the link of the cluster's outermost level */
export function emulationOf(program: Program, plan: Plan, link: string | undefined): Emulation {
  const cluster = clusterOf(plan);
  return {
    seconds: program.stages.map((stage) => secondsOf(stage, cluster)),
    ...(hasPlaces(program) ? { moves: moveRates(cluster) } : {}),
    link: link === undefined ? outermostLink(cluster) : linkOf(link),
  };
}

function hasPlaces({ stages }: Program): boolean {
  return stages.some(({ tensors }) => Object.values(tensors).some(({ place }) => place));
}

/** @throws AutoparError `bad-option` (usage) */
function linkOf(text: string): EmulatedLink {
  const [rate = '', time = '', ...others] = text.split(',');
  const bytesPerSecond = quantityOf(rate, 'bytesPerSecond');
  const latency = Number(time) === 0 && time !== '' ? 0 : quantityOf(time, 'seconds');
  if (bytesPerSecond !== null && latency !== null && others.length === 0) return { bytesPerSecond, latency };
  throw badOption(
    `--link ${text}: expected a bandwidth and a latency, 10GB/s,20us`,
    `${quantityExample('bytesPerSecond')}; ${quantityExample('seconds')}`,
  );
}

function outermostLink({ levels }: Cluster): EmulatedLink {
  const level = levels.at(-1);
  if (!level) throw new Error('a cluster has no level');
  return { bytesPerSecond: level.bandwidth, latency: level.latencySeconds };
}

/** Seconds by segment; for a segment that states none, the time of one kernel with its work. */
function secondsOf(stage: ProgramStage, { device }: Cluster): Readonly<Record<string, number>> {
  const calls = new Map<string, Extract<Instruction, { kind: 'compute' }>>();
  for (const instruction of Object.values(stage.phases).flat())
    if (instruction.kind === 'compute' && !calls.has(instruction.segment)) calls.set(instruction.segment, instruction);
  return Object.fromEntries(
    [...calls].map(([id, { inputs, weights, outputs }]) => {
      const { flops = 0, seconds } = stage.segments[id] ?? {};
      const types = [...inputs, ...weights, ...outputs].flatMap(
        (name) => stage.tensors[name] ?? stage.weights[name] ?? [],
      );
      const bytes = types.reduce((sum, { dtype, localShape }) => sum + byteLength(dtype, elementCount(localShape)), 0);
      const result = stage.tensors[outputs[0] ?? ''];
      const work = { flops, bytes, dtype: result?.dtype ?? 'float32', result: result?.localShape ?? [] };
      return [id, seconds ?? operatorSeconds(work, device)];
    }),
  );
}
