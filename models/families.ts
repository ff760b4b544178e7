/**
 * @file `--model FAMILY:key=value,…`: the families that can be generated, their keys with defaults, and the errors for a text
 * that names none of them.
 */
import { usageError } from '../src/ir/error.js';
import type { Graph } from '../src/ir/graph.js';
import { offer } from '../src/ir/nearest.js';
import { alexnet, VGG_BLOCKS, vgg } from './classic-networks.js';
import { densenet } from './densenet.js';
import type { FamilyName } from './family-names.js';
import { type ImageModelSizes, resnet, unet, vit } from './image-models.js';
import { languageModel } from './language-model.js';
import { GPT_STYLE, type LanguageModelSizes, type LayerKind, LLAMA_STYLE } from './language-sizes.js';
import { layersOfLetters } from './layer-kinds.js';
import { perceptron } from './perceptron.js';
import { swin } from './swin.js';

/** Values by key, numbers but for a pattern; a key that is left out has the family's default, which may follow from others. */
type Values = Readonly<Record<string, number | string>>;

interface Family {
  readonly says: string;
  /** Default of each key; a text says what it follows from. */
  readonly keys: Readonly<Record<string, number | string>>;
  readonly language?: (values: Values) => Omit<LanguageModelSizes, 'batch'>;
  /** The problem with values that are each valid alone. */
  readonly problem?: (values: Values) => Problem | null;
  readonly build: (values: Values, batch: number) => Graph;
}

interface Problem {
  readonly message: string;
  readonly hint: string;
}

/** A requested model, before it has a batch. */
export interface GeneratedModel {
  readonly family: string;
  /** `gpt:layers=24,hidden=2048`, as it was given. */
  readonly text: string;
  /** Sizes of a language model; absent for other families. */
  readonly language?: Omit<LanguageModelSizes, 'batch'>;
  /** The graph at a batch, its weights without values. */
  readonly build: (batch: number) => Graph;
  /** The batch of `batch=`, 1 where it is left out. */
  readonly batch: number;
  /** Defaults by key; a text says what one follows from. */
  readonly defaults: Readonly<Record<string, number | string>>;
}

const TRANSFORMER_KEYS = {
  layers: 12,
  hidden: 768,
  heads: 12,
  ffn: '4 · hidden',
  vocab: 50304,
  seq: 1024,
  dropout: 0,
} as const;

const NEMOTRON_H_8B = 'M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-';

const FAMILIES: Readonly<Record<FamilyName, Family>> = {
  gpt: language('GPT-2 and 3: learned positions, layer norms, GELU, a tied head', TRANSFORMER_KEYS, (values) =>
    transformer(values, {}),
  ),
  llama: language(
    'Llama: rotary positions, RMS norms, grouped key heads, SwiGLU',
    {
      ...TRANSFORMER_KEYS,
      layers: 32,
      hidden: 4096,
      heads: 32,
      kv_heads: 'heads',
      ffn: '8 / 3 · hidden, a multiple of 256',
      vocab: 32000,
      seq: 4096,
    },
    (values) => transformer(values, LLAMA_STYLE),
  ),
  bert: language(
    'BERT: attention in both directions, norms after sums',
    { ...TRANSFORMER_KEYS, vocab: 30592, seq: 512 },
    (values) => transformer(values, { causal: false, normFirst: false }),
  ),
  moe: language(
    'mixture of experts: Llama whose feed-forward blocks are chosen per token',
    {
      ...TRANSFORMER_KEYS,
      layers: 32,
      hidden: 4096,
      heads: 32,
      kv_heads: 8,
      ffn: 14336,
      vocab: 32000,
      seq: 4096,
      head_width: 'hidden / heads',
      experts: 8,
      topk: 2,
      shared: 0,
      dense: 0,
      window: 0,
      sinks: 0,
      bias: 0,
      clamp: 0,
    },
    mixture,
    mixtureProblem,
  ),
  hybrid: language(
    'Nemotron-H and its like: layers of state space (Mamba-2), attention, feed-forward and experts in the order of a pattern',
    {
      pattern: NEMOTRON_H_8B,
      hidden: 4096,
      heads: 32,
      kv_heads: 8,
      head_width: 128,
      ffn: 21504,
      state_heads: '2 · hidden / state_width',
      state_width: 64,
      state: 128,
      groups: 8,
      kernel: 4,
      chunk: 128,
      experts: 128,
      topk: 6,
      expert_ffn: 1856,
      shared: 3712,
      latent: 0,
      vocab: 131072,
      seq: 8192,
    },
    hybrid,
    hybridProblem,
  ),
  vit: image(
    'vision transformer on patches',
    { layers: 12, hidden: 768, heads: 12, ffn: '4 · hidden', image: 224, patch: 16, channels: 3, classes: 1000 },
    vit,
  ),
  resnet: image(
    'residual network of bottleneck blocks',
    { layers: 50, width: 64, image: 224, channels: 3, classes: 1000 },
    resnet,
  ),
  alexnet: image(
    'AlexNet in one column: five convolutions, three fully connected layers',
    { width: 64, ffn: 4096, image: 224, channels: 3, classes: 1000 },
    alexnet,
    smallestImage(63),
  ),
  vgg: image(
    'VGG: blocks of 3 × 3 convolutions, three fully connected layers',
    { layers: 16, width: 64, ffn: 4096, image: 224, channels: 3, classes: 1000 },
    vgg,
    (values) => {
      const depths = Object.keys(VGG_BLOCKS);
      const layers = of(values, 'layers', 16);
      if (depths.includes(`${layers}`)) return smallestImage(32)(values);
      return { message: `VGG has ${depths.join(', ')} layers, not ${layers}`, hint: 'for example layers=16' };
    },
  ),
  unet: image(
    'U-Net: convolutions down and up, joined across',
    { levels: 4, width: 64, image: 256, channels: 3, classes: 2 },
    unet,
  ),
  densenet: {
    says: 'densely connected convolutions: each layer reads all before it',
    keys: { layers: 121, growth: 32, image: 224, channels: 3, classes: 1000 },
    build: (values, batch) =>
      densenet({
        batch,
        layers: of(values, 'layers', 121),
        growth: of(values, 'growth', 32),
        image: of(values, 'image', 224),
        channels: of(values, 'channels', 3),
        classes: of(values, 'classes', 1000),
      }),
  },
  swin: {
    says: 'Swin transformer: attention in windows that shift, half the patches from stage to stage',
    keys: { layers: 12, width: 96, heads: 3, window: 7, image: 224, patch: 4, channels: 3, classes: 1000 },
    problem: (values) => {
      const side = of(values, 'image', 224) / of(values, 'patch', 4);
      const masked = (side * Math.min(side, of(values, 'window', 7))) ** 2;
      if (masked <= MOST_CONSTANTS) return null;
      return {
        message: `windows of this image have masks of ${masked.toExponential(1)} numbers, more than ${MOST_CONSTANTS}`,
        hint: 'give a smaller image or window, or larger patches',
      };
    },
    build: (values, batch) =>
      swin({
        batch,
        layers: of(values, 'layers', 12),
        width: of(values, 'width', 96),
        heads: of(values, 'heads', 3),
        window: of(values, 'window', 7),
        image: of(values, 'image', 224),
        patch: of(values, 'patch', 4),
        channels: of(values, 'channels', 3),
        classes: of(values, 'classes', 1000),
      }),
  },
  mlp: {
    says: 'fully connected layers with ReLU between them',
    keys: { layers: 4, inputs: 'hidden', hidden: 1024, outputs: 'hidden' },
    build: (values, batch) => {
      const hidden = of(values, 'hidden', 1024);
      const inner = Array.from({ length: of(values, 'layers', 4) - 1 }, () => hidden);
      return perceptron({ batch, widths: [of(values, 'inputs', hidden), ...inner, of(values, 'outputs', hidden)] });
    },
  },
};

/** Families with what they are and their keys, for help and docs. */
export function families(): readonly { readonly name: string; readonly says: string; readonly keys: string }[] {
  return Object.entries(FAMILIES).map(([name, { says, keys }]) => ({
    name,
    says,
    keys: Object.entries({ ...keys, batch: 1 })
      .map(([key, value]) => `${key}=${value}`)
      .join(', '),
  }));
}

/**
 * Reads `FAMILY:key=value,…`.
 * @throws AutoparError (usage) `unknown-family`, `unknown-model-key`, `bad-model-value`
 */
export function generatedModel(text: string): GeneratedModel {
  const [, name = '', rest = ''] = /^([^:]*):?(.*)$/s.exec(text) ?? [];
  const family = Object.hasOwn(FAMILIES, name) ? FAMILIES[name as FamilyName] : undefined;
  if (!family)
    throw usageError(
      'unknown-family',
      `--model ${text}: there is no family '${name}'`,
      offer(name, Object.keys(FAMILIES)),
    );
  const values = readValues(text, rest, [...Object.keys(family.keys), 'batch']);
  checkHeads(text, values, family);
  const problem = family.problem?.(values);
  if (problem) throw usageError('bad-model-value', `--model ${text}: ${problem.message}`, problem.hint);
  const language = family.language?.(values);
  return {
    family: name,
    text,
    ...(language ? { language } : {}),
    build: (batch) => family.build(values, batch),
    batch: of(values, 'batch', 1),
    defaults: family.keys,
  };
}

function readValues(text: string, rest: string, keys: readonly string[]): Values {
  const values: Record<string, number | string> = {};
  for (const part of rest.split(',').filter((piece) => piece.trim() !== '')) {
    const [key = '', written = ''] = part.split('=').map((piece) => piece.trim());
    if (!keys.includes(key))
      throw usageError('unknown-model-key', `--model ${text}: '${key}' is not a key of this family`, offer(key, keys));
    if (key === 'pattern') {
      if (layersOfLetters(written) === null)
        throw usageError(
          'bad-model-value',
          `--model ${text}: pattern=${written} is not a row of layers`,
          'give a letter for each layer: M state space, * attention, - feed-forward, E experts, as in pattern=ME*E',
        );
      values[key] = written;
      continue;
    }
    const value = Number(written);
    const share = key === 'dropout';
    const least = MAY_BE_NONE.has(key) || SWITCHES.has(key) ? 0 : 1;
    const most = SWITCHES.has(key) ? 1 : DEPTHS.has(key) ? DEEPEST : LARGEST;
    const good = share ? value >= 0 && value < 1 : Number.isSafeInteger(value) && value >= least && value <= most;
    if (written === '' || !good)
      throw usageError(
        'bad-model-value',
        `--model ${text}: ${key}=${written} is ${share ? 'not a share below 1' : `not a whole number from ${least} to ${most}`}`,
        `for example ${key}=${share ? 0.1 : Math.min(most, 8)}`,
      );
    values[key] = value;
  }
  return values;
}

const LARGEST = 2 ** 31;

/** Most numbers of a graph's own constants, apart from weights: they are made in memory. */
const MOST_CONSTANTS = 2 ** 24;

/** Keys that set the number of operators, and not only the sizes of their tensors. */
const DEPTHS: ReadonlySet<string> = new Set(['layers', 'levels']);

/** Four times the deepest transformers that were trained: a graph that a machine's memory holds. */
export const DEEPEST = 4096;

/** Keys whose 0 leaves something out. */
const MAY_BE_NONE: ReadonlySet<string> = new Set(['shared', 'dense', 'latent', 'window', 'clamp']);

/** Keys that are 0 or 1. */
const SWITCHES: ReadonlySet<string> = new Set(['sinks', 'bias']);

/** Sizes that must divide each other. */
function checkHeads(text: string, values: Values, { language }: Family): void {
  const sizes = language?.(values);
  if (!sizes) return;
  const refuse = (message: string, hint: string) => usageError('bad-model-value', `--model ${text}: ${message}`, hint);
  if (!Number.isInteger(sizes.headWidth))
    throw refuse(`hidden ${sizes.hidden} does not divide into ${sizes.heads} heads`, 'give heads that divide hidden');
  if (sizes.heads % sizes.keyHeads !== 0)
    throw refuse(`${sizes.heads} heads do not share ${sizes.keyHeads} key heads`, 'give kv_heads that divide heads');
  if (sizes.positions === 'rotary' && sizes.headWidth % 2 !== 0)
    throw refuse(
      `a head of ${sizes.headWidth} features cannot be rotated`,
      'give heads so that hidden / heads is even',
    );
  const { experts } = sizes;
  if (experts && experts.chosen > experts.count)
    throw refuse(`topk ${experts.chosen} is more than ${experts.count} experts`, 'give topk up to experts');
}

function transformer(values: Values, style: Partial<LanguageModelSizes>): Omit<LanguageModelSizes, 'batch'> {
  const { keyHeads, ...settings } = style;
  const llama = style.gated === true;
  const hidden = of(values, 'hidden', llama ? 4096 : 768);
  const heads = of(values, 'heads', llama ? 32 : 12);
  return {
    layers: of(values, 'layers', llama ? 32 : 12),
    hidden,
    heads,
    keyHeads: of(values, 'kv_heads', keyHeads ?? heads),
    headWidth: hidden / heads,
    feedForward: of(values, 'ffn', llama ? Math.ceil((8 * hidden) / 3 / 256) * 256 : 4 * hidden),
    vocabulary: of(values, 'vocab', style.causal === false ? 30592 : llama ? 32000 : 50304),
    sequence: of(values, 'seq', style.causal === false ? 512 : llama ? 4096 : 1024),
    ...GPT_STYLE,
    dropout: of(values, 'dropout', 0),
    ...settings,
  };
}

/** Llama with experts, and the additions of GPT-OSS: windows in every second layer, sinks, biases, a clamp. */
function mixture(values: Values): Omit<LanguageModelSizes, 'batch'> {
  const plain = transformer(values, { ...LLAMA_STYLE, keyHeads: 8 });
  const [window, clamp] = [of(values, 'window', 0), of(values, 'clamp', 0)];
  const bias = of(values, 'bias', 0) === 1;
  return {
    ...plain,
    headWidth: of(values, 'head_width', plain.headWidth),
    ...(bias ? { bias } : {}),
    ...(window > 0 ? { window, pattern: IN_TURNS } : {}),
    ...(of(values, 'sinks', 0) === 1 ? { sinks: true } : {}),
    experts: {
      count: of(values, 'experts', 8),
      chosen: of(values, 'topk', 2),
      feedForward: of(values, 'ffn', 14336),
      shared: of(values, 'shared', 0),
      dense: of(values, 'dense', 0),
      ...(bias ? { bias } : {}),
      ...(clamp > 0 ? { clamp } : {}),
    },
  };
}

const IN_TURNS: readonly LayerKind[] = [
  ['windowed-attention', 'experts'],
  ['attention', 'experts'],
];

function mixtureProblem(values: Values): Problem | null {
  const has = (key: string) => of(values, key, 0) > 0;
  if (has('window') && has('dense'))
    return { message: 'windows are in every second layer, and none is dense', hint: 'leave out window or dense' };
  if (has('dropout') && (has('window') || has('sinks')))
    return { message: 'attention with windows or sinks drops nothing', hint: 'leave out dropout' };
  const { headWidth } = mixture(values);
  if ((has('window') || has('sinks')) && Number.isInteger(headWidth) && headWidth % 8 !== 0)
    return {
      message: `ONNX Runtime attends with windows or sinks to heads of a multiple of 8 features, not to ${headWidth}`,
      hint: 'give head_width=64',
    };
  return null;
}

/** Every layer is one part; there are no position embeddings: state space and causal attention see the order by themselves. */
function hybrid(values: Values): Omit<LanguageModelSizes, 'batch'> {
  const pattern = layersOfLetters(`${values['pattern'] ?? NEMOTRON_H_8B}`) ?? [];
  const hidden = of(values, 'hidden', 4096);
  const headWidth = of(values, 'state_width', 64);
  const latent = of(values, 'latent', 0);
  return {
    ...LLAMA_STYLE,
    layers: pattern.length,
    pattern,
    hidden,
    heads: of(values, 'heads', 32),
    keyHeads: of(values, 'kv_heads', 8),
    headWidth: of(values, 'head_width', 128),
    feedForward: of(values, 'ffn', 21504),
    vocabulary: of(values, 'vocab', 131072),
    sequence: of(values, 'seq', 8192),
    positions: 'none',
    gated: false,
    activation: 'squared-relu',
    dropout: 0,
    stateSpace: {
      heads: of(values, 'state_heads', Math.max(1, Math.floor((2 * hidden) / headWidth))),
      headWidth,
      state: of(values, 'state', 128),
      groups: of(values, 'groups', 8),
      kernel: of(values, 'kernel', 4),
      chunk: of(values, 'chunk', 128),
    },
    experts: {
      count: of(values, 'experts', 128),
      chosen: of(values, 'topk', 6),
      feedForward: of(values, 'expert_ffn', 1856),
      shared: of(values, 'shared', 3712),
      dense: 0,
      ...(latent > 0 ? { latent } : {}),
    },
  };
}

function hybridProblem(values: Values): Problem | null {
  const { stateSpace, sequence } = hybrid(values);
  if (!stateSpace) return null;
  const { heads, headWidth, groups, chunk } = stateSpace;
  if (heads * headWidth > MOST_CONSTANTS)
    return {
      message: `${heads} state heads of ${headWidth} features are more than ${MOST_CONSTANTS}`,
      hint: 'give smaller state_heads or state_width',
    };
  if (heads % groups !== 0)
    return {
      message: `${heads} state heads do not share ${groups} groups`,
      hint: 'give groups that divide state_heads',
    };
  if (sequence > chunk && sequence % chunk !== 0)
    return {
      message: `a sequence of ${sequence} is not cut into chunks of ${chunk}`,
      hint: 'give a chunk that divides seq',
    };
  return null;
}

function language(
  says: string,
  keys: Family['keys'],
  sizes: (values: Values) => Omit<LanguageModelSizes, 'batch'>,
  problem?: Family['problem'],
): Family {
  const build = (values: Values, batch: number) => languageModel('generated', { ...sizes(values), batch }, 0, 'absent');
  return { says, keys, language: sizes, build, ...(problem ? { problem } : {}) };
}

function image(
  says: string,
  keys: Family['keys'],
  make: (sizes: ImageModelSizes) => Graph,
  problem?: Family['problem'],
): Family {
  const build = (values: Values, batch: number) => {
    const size = (key: string) => of(values, key, typeof keys[key] === 'number' ? keys[key] : 0);
    const hidden = size('hidden');
    return make({
      batch,
      layers: size('layers') || size('levels'),
      width: size('width') || hidden,
      heads: size('heads'),
      feedForward: size('ffn') || 4 * hidden,
      image: size('image'),
      patch: size('patch'),
      channels: size('channels'),
      classes: size('classes'),
    });
  };
  return { says, keys, build, ...(problem ? { problem } : {}) };
}

/** A network that halves its image so often that a smaller one would leave nothing. */
function smallestImage(least: number): (values: Values) => Problem | null {
  return (values) => {
    const size = of(values, 'image', 224);
    if (size >= least) return null;
    return { message: `an image of ${size} is too small to be halved so often`, hint: `give image=${least} or more` };
  };
}

function of(values: Values, key: string, otherwise: number): number {
  const value = values[key];
  return typeof value === 'number' ? value : otherwise;
}
