/**
 * @file Generated families: parameters as published, and what is wrong with a text.
 */
import test from 'ava';
import { families, generatedModel } from '../../models/families.js';
import { languageModel } from '../../models/language-model.js';
import { GPT_STYLE, LLAMA_STYLE } from '../../models/language-sizes.js';
import { runGraph } from '../../src/api/verification/reference.js';
import { elementCount } from '../../src/ir/graph.js';
import { constant, numbersOf } from '../../src/ir/ops/constants.js';
import { gptSizes } from '../cost-model/step/sizes.js';

/** Parameters as the models' papers and cards have them, in millions. */
const PUBLISHED: readonly (readonly [text: string, millions: number])[] = [
  ['gpt:layers=12,hidden=768,heads=12,vocab=50257', 124.4],
  ['gpt:layers=48,hidden=1600,heads=25,vocab=50257', 1557.6],
  ['llama:layers=32,hidden=4096,heads=32,ffn=11008,vocab=32000', 6738.4],
  ['llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,vocab=128256,seq=8192', 70553.7],
  ['moe:layers=32,hidden=4096,heads=32,kv_heads=8,experts=8,topk=2,ffn=14336,vocab=32000', 46702.8],
  ['hybrid', 8100],
  ['hybrid:pattern=MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME,hidden=2688,kv_heads=2,state_heads=64', 31600],
  [
    'hybrid:pattern=MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME' +
      ',kv_heads=2,experts=512,topk=22,expert_ffn=2688,shared=5376,latent=1024',
    120600,
  ],
  ['resnet:layers=50', 25.5],
  ['alexnet', 61.1],
  ['vgg:layers=11', 132.86],
  ['vgg', 138.36],
  ['vgg:layers=19', 143.67],
  ['vit:layers=12,hidden=768,heads=12', 86.6],
];

test('families have the parameters that are published of them', (t) => {
  for (const [text, millions] of PUBLISHED) {
    const { weights } = generatedModel(text).build(1);
    const parameters = [...weights.values()].filter(({ role }) => role === 'parameter');
    const count = parameters.reduce((sum, { shape }) => sum + elementCount(shape), 0);
    t.true(Math.abs(count / 1e6 / millions - 1) < 0.003, `${text}: ${count / 1e6}`);
  }
});

test('image models have the parameters of their published weights', (t) => {
  for (const [text, published] of [
    ['densenet', 7_978_856],
    ['densenet:layers=161,growth=48', 28_681_000],
    ['densenet:layers=201', 20_013_928],
    ['swin', 28_288_354],
    ['swin:layers=24', 49_606_258],
    ['swin:layers=24,width=128,heads=4', 87_768_224],
  ] as const) {
    const { weights } = generatedModel(text).build(1);
    const parameters = [...weights.values()].filter(({ role }) => role === 'parameter');
    t.is(
      parameters.reduce((sum, { shape }) => sum + elementCount(shape), 0),
      published,
      text,
    );
  }
});

test('every family builds at another batch', (t) => {
  for (const { name } of families()) {
    const { inputs, tensors } = generatedModel(name).build(3);
    for (const input of inputs) t.is(tensors.get(input)?.shape[0], 3, name);
  }
});

test('a model with dropout, which evaluation leaves out, computes what the one without does', async (t) => {
  const ids = constant('int64', [3, 1, 4, 1, 5, 9, 2, 6], [2, 4]);
  for (const style of [GPT_STYLE, LLAMA_STYLE, { ...GPT_STYLE, causal: false }]) {
    const sizes = { ...gptSizes({ hidden: 16, heads: 2 }), ...style, batch: 2, sequence: 4, vocabulary: 12 };
    const [plain, dropping] = await Promise.all(
      [0, 0.5].map(async (dropout) => {
        const { logits } = await runGraph(languageModel('model', { ...sizes, dropout }, 1), { ids }, ['logits']);
        return logits ? numbersOf(logits) : [];
      }),
    );
    t.is(plain?.length, 2 * 4 * 12);
    for (const [at, value] of (plain ?? []).entries()) t.true(Math.abs((dropping?.[at] ?? NaN) - value) < 1e-4);
  }
});

test('an unknown family, key or value is answered with the nearest', (t) => {
  const refusal = (text: string) =>
    t.throws(() => generatedModel(text)) as Error & { readonly code: string; readonly hint: string };
  t.like(refusal('lama'), { code: 'unknown-family', hint: 'did you mean llama?' });
  t.like(refusal('gpt:hiden=8'), { code: 'unknown-model-key', hint: 'did you mean hidden?' });
  t.like(refusal('gpt:layers=0'), { code: 'bad-model-value' });
  t.like(refusal('gpt:layers'), { code: 'bad-model-value' });
  t.like(refusal('gpt:dropout=1'), { code: 'bad-model-value' });
  t.regex(refusal('gpt:hidden=100,heads=7').message, /100 does not divide into 7 heads/);
  t.regex(refusal('llama:hidden=64,heads=8,kv_heads=3').message, /8 heads do not share 3 key heads/);
  t.regex(refusal('moe:experts=4,topk=8').message, /topk 8 is more than 4 experts/);
  t.regex(refusal('moe:sinks=2').message, /sinks=2 is not a whole number from 0 to 1/);
  t.regex(refusal('moe:window=128,dense=1').message, /windows are in every second layer, and none is dense/);
  t.regex(refusal('moe:sinks=1,dropout=0.1').message, /attention with windows or sinks drops nothing/);
  t.regex(refusal('moe:sinks=1,head_width=20').message, /heads of a multiple of 8 features, not to 20/);
  t.regex(refusal('hybrid:pattern=MXM').message, /pattern=MXM is not a row of layers/);
  t.regex(refusal('hybrid:pattern=').hint, /M state space, \* attention/);
  t.regex(refusal('hybrid:groups=3').message, /128 state heads do not share 3 groups/);
  t.regex(refusal('hybrid:seq=1000').message, /a sequence of 1000 is not cut into chunks of 128/);
  t.regex(refusal('hybrid:experts=4').message, /topk 6 is more than 4 experts/);
  t.like(refusal('vgg:layers=17'), { code: 'bad-model-value', hint: 'for example layers=16' });
  t.regex(refusal('vgg:layers=17').message, /VGG has 11, 13, 16, 19 layers, not 17/);
  t.regex(refusal('vgg:image=31').message, /an image of 31 is too small/);
  t.like(refusal('alexnet:image=62'), { hint: 'give image=63 or more' });
  t.regex(refusal('llama:hidden=24,heads=8').message, /cannot be rotated/);
});
