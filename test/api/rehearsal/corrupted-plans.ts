/**
 * @file Every corruption of a plan and of its lowered forms, held against what a rehearsal holds a plan to before it runs: the
 * plan's own checks, those of sharded graphs and programs, and the comparison of what both do.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { compiledModel } from '../../../src/api/models/compiled-model.js';
import { readSource } from '../../../src/api/output/folder.js';
import { bigPlan } from '../../../src/api/rehearsal/big-plan.js';
import { checkModel } from '../../../src/api/rehearsal/stated-model.js';
import { rehearse } from '../../../src/api/rehearse.js';
import { AutoparError } from '../../../src/ir/error.js';
import { checkStages } from '../../../src/partition/check.js';
import type { LoweredStage } from '../../../src/partition/lower-stages.js';
import { checkProgram } from '../../../src/program/check-program.js';
import type { Program } from '../../../src/program/program.js';
import { planFromJson } from '../../../src/strategy/plan-json.js';
import { refused, transferCorruptions } from '../../partition/graph-corruptions.js';
import { corruptionsOf } from '../../program/corruptions.js';
import { editsOf, type PlanEdit } from './plan-edits.js';
import { faults } from './planned.js';

/** The number of corruptions that were tried, and those that passed. */
export interface Tried {
  readonly count: number;
  readonly passed: readonly string[];
}

/** The forms of a plan, from a rehearsal that passes. @throws Error where it does not */
export async function formsOf(directory: string): Promise<{
  readonly plan: readonly LoweredStage[];
  readonly lowered: readonly LoweredStage[];
  readonly program: Program;
}> {
  const found: { plan?: readonly LoweredStage[]; lowered?: readonly LoweredStage[]; program?: Program } = {};
  const result = await rehearse(
    { directory },
    {
      plan: (own) => (found.plan = own),
      lowered: (own) => (found.lowered = own),
      program: (own) => (found.program = own),
    },
  );
  const { plan, lowered, program } = found;
  if (!result.passed || !plan || !lowered || !program) throw new Error(faults(result).join('; '));
  return { plan, lowered, program };
}

/** Edits of plan.json, up to `most` of each kind. One that lowers to the same operators and collectives changes nothing. */
export async function triedEdits(directory: string, most: number): Promise<Tried> {
  const text = readFileSync(join(directory, 'plan.json'), 'utf8');
  const plan = planFromJson(text, 'plan.json');
  const { planned } = await compiledModel(directory, await readSource(directory), plan);
  const whole = JSON.stringify(JSON.parse(text));
  const done = workOf(bigPlan(plan, planned.graph).lowered);
  const passed: string[] = [];
  const tried = drawn([...editsOf(plan)], most);
  for (const { kind, where, edit } of tried) {
    const record = JSON.parse(text) as Parameters<PlanEdit['edit']>[0];
    edit(record);
    const edited = JSON.stringify(record);
    if (edited === whole) continue;
    try {
      const own = planFromJson(edited, 'plan.json');
      checkModel(own, planned);
      const { lowered } = bigPlan(own, planned.graph);
      if (SAME_WORK.has(kind) && workOf(lowered) === done) continue;
      passed.push(`${kind}: ${where}`);
    } catch (error) {
      if (!(error instanceof AutoparError && error.exit === 'input')) throw error;
    }
  }
  return { count: tried.length, passed };
}

/** A reader without a shared resharding has its own; shards may be on ranks in another order; a repeated Reshape does nothing. */
const SAME_WORK: ReadonlySet<string> = new Set([
  'a redistribution dropped',
  'axes in another order',
  'recompute turned over',
]);

/** Operators and collectives of stages, without names. */
function workOf(stages: readonly LoweredStage[]): string {
  const of = ({ sharded: { nodes, tensors } }: LoweredStage) =>
    nodes
      .flatMap((node) => {
        if (node.kind === 'move') return [`move ${node.input}`];
        if (node.kind === 'compute') return /^(Slice|Concat|Reshape|Transpose)$/.test(node.op) ? [] : [node.op];
        const { collective, axes, input } = node;
        const { dtype, localShape } = tensors.get(input) ?? {};
        return [[collective.kind, [...axes].sort(), dtype, localShape].join(' ')];
      })
      .sort()
      .join('\n');
  return stages.map(of).join('\n\n');
}

/** Corruptions of a lowered form and of what its stages send one another, up to `most` of each kind and stage. */
export function triedStages(stages: readonly LoweredStage[], most: number): Tried {
  const { tried, passed } = refused(stages, most);
  const transfers = drawn([...transferCorruptions(stages)], most);
  const unseen = transfers.filter((one) => checkStages(one.stages).length === 0);
  return {
    count: [...tried.values()].reduce((sum, own) => sum + own, 0) + transfers.length,
    passed: [...passed, ...unseen.map(({ kind, where }) => `${kind}: ${where}`)],
  };
}

/** Corruptions of the rehearsal's program, up to `most` of each kind. */
export function triedProgram(program: Program, most: number): Tried {
  const tried = drawn([...corruptionsOf(program)], most);
  const unseen = tried.filter((one) => checkProgram(one.program) === null);
  return { count: tried.length, passed: unseen.map(({ kind, where }) => `${kind}: ${where}`) };
}

/** Evenly `most` of each kind. */
function drawn<T extends { readonly kind: string }>(all: readonly T[], most: number): readonly T[] {
  const kinds = new Map<string, T[]>();
  for (const one of all) {
    const list = kinds.get(one.kind);
    if (list) list.push(one);
    else kinds.set(one.kind, [one]);
  }
  return [...kinds.values()].flatMap((list) =>
    list.filter(
      (_, index) => Math.floor((index * most) / list.length) !== Math.floor(((index - 1) * most) / list.length),
    ),
  );
}
