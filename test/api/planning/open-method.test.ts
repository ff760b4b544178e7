/**
 * @file sp with its method left open: the plan is no slower than that of any method, as lowered, and keeps within the memory.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../../src/api/compile.js';
import { generatedFile } from '../../../src/api/models/generated.js';
import { openReplanning, planAgain } from '../../../src/api/planning/replan.js';
import { AutoparError } from '../../../src/ir/error.js';
import { type AttentionMethods, SP_METHODS, type SpMethod } from '../../../src/sharding-propagation/roles.js';
import type { Plan, PlanSequence } from '../../../src/strategy/plan.js';
import { slowTests, thinned } from '../../selection.js';

interface Case {
  readonly model: string;
  readonly cluster: string;
  readonly degrees: Readonly<Record<string, number>>;
  readonly trains: boolean;
  readonly memory?: number;
  /** Methods of the attentions in the plan that leaves the method open. */
  readonly attentions: AttentionMethods;
  readonly order: PlanSequence['order'];
}

const llama = (sizes: string) => `llama:layers=1,hidden=1024,vocab=64,ffn=1024,batch=1,${sizes}`;
const SP8 = { dp: 1, tp: 1, sp: 8 };
const [SHORT, LONG, FEW] = ['heads=8,kv_heads=1,seq=1024', 'heads=8,seq=65536', 'heads=4,seq=65536'].map(llama) as [
  string,
  string,
  string,
];
const MEDIUM = llama('heads=8,seq=16384');
const plain = { order: 'contiguous' } as const;

const CASES: readonly Case[] = [
  { model: SHORT, cluster: '8x1', degrees: SP8, trains: true, attentions: { gather: 1 }, ...plain },
  { model: MEDIUM, cluster: '1x8', degrees: SP8, trains: true, attentions: { ulysses: 1 }, ...plain },
  // sp does not divide the heads: in training a ring, whose masks are made for zig-zag order.
  { model: FEW, cluster: '1x8', degrees: SP8, trains: true, attentions: { ring: 1 }, order: 'zigzag' },
  { model: FEW, cluster: '1x8', degrees: SP8, trains: false, attentions: { ulysses: 1 }, ...plain },
  // The mask is replicated, and rotary embedding is sharded over the sequence before the all-to-all of heads.
  { model: LONG, cluster: '8x1', degrees: SP8, trains: false, attentions: { ulysses: 1 }, ...plain },
  {
    ...{ model: 'gpt:layers=2,hidden=512,heads=8,seq=2048,vocab=512,batch=4', cluster: '1x8', trains: true },
    ...{ degrees: { dp: 2, sp: 4, tp: 1 }, attentions: { ulysses: 2 }, ...plain },
  },
  // In one operator neither positions nor heads of the attention are on sp, but features of its values.
  {
    ...{ model: 'llama:layers=4,hidden=2048,heads=16,kv_heads=4,ffn=5632,vocab=4096,seq=4096,batch=8', cluster: '1x8' },
    ...{ degrees: { dp: 1, sp: 4, tp: 2 }, trains: false, attentions: {}, ...plain },
  },
  // The fastest plan is too large: the fastest of the others that fit is taken.
  {
    model: MEDIUM,
    cluster: '1x8',
    degrees: SP8,
    trains: true,
    memory: 300e6,
    attentions: { ring: 1 },
    order: 'zigzag',
  },
  { model: LONG, cluster: '8x1', degrees: SP8, trains: false, memory: 1.2e9, attentions: { ulysses: 1 }, ...plain },
];

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

async function planned(one: Case, spMethod: SpMethod, output: string): Promise<Plan | AutoparError> {
  const { model, cluster, degrees, trains, memory } = one;
  const training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } } as const;
  return compile({
    ...{ model: await generatedFile(model), output, force: true, planOnly: true },
    ...{ cluster: `${cluster}:a100-sxm-80`, degrees, precision: 'bf16', spMethod },
    ...(trains ? { training } : {}),
    ...(memory === undefined ? {} : { memory }),
  }).then(
    ({ plan }) => plan,
    (error: unknown) => {
      if (error instanceof AutoparError) return error;
      throw error;
    },
  );
}

for (const [index, one] of thinned([...CASES.entries()], 2)) {
  // A search takes seconds, four of them half a minute.
  const run = slowTests(test, index % 4 !== 0 || (one.trains && one.memory !== undefined));
  run(`no method is faster than the one found: ${JSON.stringify(one)}`, async (t) => {
    const output = join(folder, String(index));
    const found = await planned(one, 'auto', output);
    if (found instanceof AutoparError) return t.fail(found.message);
    const { sequence, predicted } = found;
    t.deepEqual([sequence?.attentions, sequence?.order], [one.attentions, one.order]);
    t.is(sequence?.method, (Object.keys(one.attentions)[0] ?? 'auto') as SpMethod);
    t.true(one.memory === undefined || Math.max(...predicted.peakBytes) <= one.memory);
    // `explain` plans again in this way: the same search gives the same plan.
    const again = await planAgain(await openReplanning(output));
    t.is(again.costNanoseconds, Math.round(found.search.costSeconds * 1e9));
    for (const method of SP_METHODS.filter((each) => each !== 'auto')) {
      const other = await planned(one, method, output);
      if (other instanceof AutoparError) continue;
      t.log(method, other.predicted.stepSeconds, predicted.stepSeconds);
      t.true(predicted.stepSeconds <= other.predicted.stepSeconds * 1.001, method);
    }
  });
}
