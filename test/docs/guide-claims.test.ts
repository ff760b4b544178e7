/**
 * @file Claims of the guides about the commands that they show hold for the outputs that they show: which is faster, takes less
 * memory, fits or is chosen. guides.test.ts and guides.slow.ts check that the outputs are the printed ones.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { ROOT } from '../cli/autopar.js';
import { commandEnding, type Figure, figureOf, type Shown, shownIn } from './shown.js';

/** Commands are named by the words that they end in. */
type Claim =
  /** Least first; `times` has the limits of the last over the first. */
  | { readonly rising: Figure; readonly of: readonly string[]; readonly times?: readonly [number, number] }
  | { readonly same: Figure; readonly of: readonly string[] }
  | { readonly below: number; readonly figure: Figure; readonly of: readonly string[] }
  | { readonly fits: boolean; readonly of: readonly string[] }
  | { readonly shows: string; readonly of: readonly string[] };

const INSIDE = '--tp 2 --mesh-order dp,pp,sp,tp';
const INSIDE_LARGE = '--mesh --mesh-order dp,pp,sp,tp';

/** By page and section. */
const CLAIMS: Readonly<Record<string, Readonly<Record<string, readonly Claim[]>>>> = {
  'docs/choosing-a-strategy.md': {
    'Data parallelism while it fits': [
      { rising: 'step', of: ['--dp 8', '--tp 2', '--pp 8', '--tp 8'] },
      { fits: true, of: ['--dp 8'] },
    ],
    'The least change that makes a step fit': [
      { fits: false, of: ['64 --zero 1'] },
      { fits: true, of: ['--zero 2', '--tp 2 --zero 1', '--tp 4'] },
      { rising: 'step', of: ['--zero 2', '--tp 2 --zero 1'], times: [1, 1.05] },
      { rising: 'step', of: ['--zero 2', '--tp 4'], times: [1.13, 1.2] },
    ],
    'Tensor parallelism stays inside the node': [
      { rising: 'step', of: ['--tp 4 --pp 4', '--tp 8 --pp 2', '--mesh-order dp,sp,tp,pp', '--tp 16'] },
      { rising: 'step', of: ['--tp 8 --pp 2', '--tp 16'], times: [1.4, 1.6] },
      { rising: 'time over tp', of: ['--tp 4 --pp 4', '--tp 8 --pp 2', '--mesh-order dp,sp,tp,pp', '--tp 16'] },
    ],
    'Pipelines cross the nodes': [
      { rising: 'step', of: ['--recompute full --mesh', INSIDE_LARGE] },
      { rising: 'step', of: [`512 --pp 4 --dp 2 ${INSIDE}`, '512 --pp 4 --dp 2 --tp 2'] },
    ],
    "Megatron's sequence parallelism comes with tensor parallelism": [
      { rising: 'step', of: ['--micro-batch 4', '--tp-sequence off'] },
      { rising: 'memory', of: ['--micro-batch 4', '--tp-sequence off'] },
      { rising: 'pointwise ops', of: ['--micro-batch 4', '--tp-sequence off'] },
    ],
    'ZeRO-1 under a pipeline, not 2 or 3': [
      { rising: 'step', of: ['--zero 1', '--zero 0', '--zero 2', '--zero 3'] },
      { rising: 'memory', of: ['--zero 3', '--zero 2', '--zero 1', '--zero 0'] },
      { fits: true, of: ['--zero 0', '--zero 1'] },
    ],
    'FSDP against tensor parallelism': [
      { rising: 'step', of: ['1024 --zero 3 --tp 4 --micro-batch 8', '1024 --tp 4 --pp 4 --zero 1'] },
      { rising: 'step', of: ['128 --tp 4 --pp 4 --zero 1', '128 --zero 3 --tp 4'], times: [1.4, 1.6] },
    ],
    'Recompute no more than memory asks for': [
      { rising: 'step', of: ['--micro-batch 4', '4 --recompute full'], times: [1.25, 1.4] },
      { rising: 'memory', of: ['4 --recompute full', '--micro-batch 4'] },
      { rising: 'memory', of: ['parts --recompute selective', '--attention parts'] },
    ],
    'Micro-batch size: between arithmetic and the bubble': [
      { same: 'step', of: ['--micro-batch 1', '--micro-batch 2'] },
      { rising: 'step', of: ['--micro-batch 2', '--micro-batch 4'] },
      { rising: 'bubble', of: ['--micro-batch 1', '--micro-batch 2', '--micro-batch 4'] },
    ],
    'The batch hides the bubble': [
      { same: 'bubble', of: ['8 --pp 8 --tp 2', '64 --pp 8 --tp 2'] },
      { rising: 'share of the bubble', of: ['64 --pp 8 --tp 2', '8 --pp 8 --tp 2'] },
      { below: 0.1, figure: 'share of the bubble', of: ['64 --pp 8 --tp 2'] },
    ],
    'Interleaving and zero-bubble, where the batch is small': [
      { rising: 'step', of: ['--virtual-stages 5', 'zero-bubble', '--schedule 1f1b'] },
      { rising: 'bubble', of: ['--virtual-stages 5', '--schedule 1f1b'], times: [4.5, 5] },
      { rising: 'time over pp', of: ['--schedule 1f1b', '--virtual-stages 5'] },
      { rising: 'bubble', of: ['zero-bubble', '--schedule 1f1b'], times: [2, 3] },
      { same: 'step', of: ['f-then-b', '--schedule 1f1b'] },
      { same: 'bubble', of: ['f-then-b', '--schedule 1f1b'] },
      { rising: 'memory', of: ['--schedule 1f1b', 'f-then-b'] },
    ],
    'Long sequences: sp': [
      { fits: false, of: ['full --zero 3'] },
      { fits: true, of: ['--sp 8', '--tp 8'] },
      { rising: 'step', of: ['--sp 8', '--tp 8'] },
    ],
    'Experts: ep': [
      { fits: false, of: ['--dp 8'] },
      { fits: true, of: ['64 --ep 8'] },
      { rising: 'step', of: ['64 --ep 8', '--dp 8'] },
      { rising: 'step', of: ['4 --ep 8', '4 --ep 32'] },
      { rising: 'time over ep', of: ['4 --ep 8', '4 --ep 32'] },
    ],
    'Columns, then rows': [
      { shows: '→ [-, -, (3 | 2048:tp)]', of: ['/layers.1/attention/qkv/MatMul'] },
      {
        shows: '[tp, -] → [-, -, -] + partial(tp)',
        of: ['/layers.1/attention/output/MatMul', '/layers.1/feed_forward/down/MatMul'],
      },
      { shows: '[-, tp] → [-, -, tp]', of: ['explain gpt --op /layers.1/feed_forward/up/MatMul'] },
      { shows: '[-] → [-, tp, -]', of: ['/layers.1/attention_norm/LayerNormalization'] },
    ],
    'Embeddings and heads over the vocabulary': [
      { shows: '  [tp, -] · ', of: ['/embed/Gather'] },
      { shows: '[-, tp] → [-, -, tp]', of: ['/head/MatMul'] },
      { shows: '  [-, tp] · [-] → []', of: ['loss/numerator'] },
    ],
    'Convolutions by samples, fully connected layers by features': [
      { shows: '  [dp, -, -, -] · [-, -, -, -]', of: ['/features.0/Conv', '/features.4/Conv'] },
      { shows: '[-, dp] → [-, dp]', of: ['/classifier.0/MatMul'] },
      { shows: '[dp, -] → [-, -] + partial(dp)', of: ['/classifier.1/MatMul', '/classifier.2/MatMul'] },
      { rising: 'step', of: ['-o alexnet', '-o alexnet-data'] },
      { rising: 'memory', of: ['-o alexnet', '-o alexnet-data'] },
    ],
    'A head of many classes': [
      { shows: 'strategy  m: dp', of: ['explain few --op /head/MatMul --alternatives 4'] },
      { shows: 'strategy  n: dp', of: ['explain many --op /head/MatMul --alternatives 4'] },
    ],
    'Sizes that a degree does not divide': [
      { shows: '[-, tp] → [-, tp]', of: ['/layers.1/linear/MatMul'] },
      { shows: '12.5 % of the work per rank', of: ['-o wide'] },
      { shows: '12.6 % of the work per rank', of: ['-o heads'] },
      { shows: '→ [-, -, (12:tp 4 of 8 | 64:tp 2 of 8)]', of: ['/layers.0/attention/Attention'] },
    ],
    'Pins in semi-automatic mode': [{ shows: 'strategy  n: tp', of: ['--alternatives 5'] }],
  },
};

/** The part of a claim that does not hold, in words; null if all of it holds. */
function wrong(claim: Claim, shown: readonly Shown[]): string | null {
  const named = claim.of.map((words) => commandEnding(words, shown));
  const all = (says: (output: string) => boolean) => named.every(({ output }) => says(output));
  const figures = (figure: Figure) => named.map((one) => figureOf(figure, one));
  const failed = (text: string) => `${text}: ${claim.of.join(' · ')}`;
  if ('shows' in claim) return all((output) => output.includes(claim.shows)) ? null : failed(`shows ${claim.shows}`);
  if ('fits' in claim)
    return all((output) => /^fits/m.test(output) === claim.fits) ? null : failed(`fits ${claim.fits}`);
  if ('below' in claim)
    return figures(claim.figure).every((value) => value < claim.below) ? null : failed(`below ${claim.below}`);
  if ('same' in claim) {
    // Each batch has layouts over tp of its own.
    const isNear = Math.max(...figures(claim.same)) < 1.01 * Math.min(...figures(claim.same));
    return isNear ? null : failed(`the same ${claim.same}`);
  }
  const values = figures(claim.rising);
  if (values.some((value, index) => index > 0 && value <= (values[index - 1] as number)))
    return failed(`rising ${claim.rising}`);
  const times = (values.at(-1) as number) / (values[0] as number);
  const [least, most] = claim.times ?? [1, Number.POSITIVE_INFINITY];
  return least <= times && times <= most ? null : failed(`${claim.rising} ${least} to ${most} times, not ${times}`);
}

for (const [page, sections] of Object.entries(CLAIMS)) {
  const shown = shownIn(readFileSync(join(ROOT, page), 'utf8'));

  test(`every section of ${page} has its claims here`, (t) => {
    t.deepEqual([...shown.keys()], Object.keys(sections));
  });

  for (const [section, claims] of Object.entries(sections))
    test(`${page}, ${section}: what it says is what it shows`, (t) => {
      t.deepEqual(
        claims.flatMap((claim) => wrong(claim, shown.get(section) ?? []) ?? []),
        [],
      );
    });
}

test('claims that are not so are told', (t) => {
  const shown = [
    { command: 'autopar simulate --tp 2', output: '  step       1.2 s in bf16\nfits: 4 GB of 80 GB on stage 0' },
    { command: 'autopar simulate --dp 2', output: '  step       900 ms in bf16\ndoes not fit: stage 0 needs 81 GB' },
  ];
  const of = ['--tp 2', '--dp 2'];
  t.is(wrong({ rising: 'step', of: [...of].reverse(), times: [1.3, 1.4] }, shown), null);
  t.is(wrong({ rising: 'step', of }, shown), 'rising step: --tp 2 · --dp 2');
  t.regex(wrong({ rising: 'step', of: [...of].reverse(), times: [1.4, 1.5] }, shown) ?? '', /not 1\.33/);
  t.is(wrong({ rising: 'memory', of }, shown), null);
  t.truthy(wrong({ fits: true, of }, shown));
  t.truthy(wrong({ same: 'memory', of }, shown));
  t.truthy(wrong({ below: 1, figure: 'step', of }, shown));
  t.truthy(wrong({ shows: '4 GB', of }, shown));
  t.throws(() => wrong({ fits: true, of: ['2'] }, shown), { message: /several commands/ });
  t.throws(() => wrong({ fits: true, of: ['--pp 2'] }, shown), { message: /no command/ });
  t.throws(() => wrong({ rising: 'bubble', of }, shown), { message: /shows no bubble/ });
});
