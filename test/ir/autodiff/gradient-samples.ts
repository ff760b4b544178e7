/**
 * @file All sample operators whose gradients are checked; and per operator what that amounts to, which
 * docs/reference/operators.md prints and a test holds against the registry.
 */
import type { OperatorEntry } from '../../../src/ir/operator.js';
import type { Case } from '../ops/sample.js';
import type { GradientOptions } from './sample-gradient.js';
import { attentionSamples } from './samples/attention.js';
import { contractionSamples } from './samples/contraction.js';
import { convolutionSamples } from './samples/convolution.js';
import { elementwiseSamples } from './samples/elementwise.js';
import { expertSamples } from './samples/experts.js';
import { indexingSamples } from './samples/indexing.js';
import { lossSamples } from './samples/loss.js';
import { microsoftSamples } from './samples/microsoft.js';
import { movementSamples } from './samples/movement.js';
import { normalisationSamples } from './samples/normalisation.js';
import { poolingSamples } from './samples/pooling.js';
import { recurrentSamples } from './samples/recurrent.js';
import { reductionSamples } from './samples/reduction.js';

export const GRADIENT_SAMPLES: readonly (readonly [Case, GradientOptions])[] = [
  ...attentionSamples,
  ...contractionSamples,
  ...convolutionSamples,
  ...elementwiseSamples,
  ...expertSamples,
  ...indexingSamples,
  ...lossSamples,
  ...microsoftSamples,
  ...movementSamples,
  ...normalisationSamples,
  ...poolingSamples,
  ...recurrentSamples,
  ...reductionSamples,
];

/** Operators whose gradient the reference in PyTorch cannot check (torch-gradient.slow.ts asserts that it is these). */
export const NOT_IN_TORCH: ReadonlySet<string> = new Set([
  'com.microsoft.MRotaryEmbedding',
  'com.microsoft.MatMulBnb4',
  'com.microsoft.MatMulNBits',
]);

/** How the gradient of an operator is verified. */
export interface Verification {
  /** Samples that are compared with differences in ONNX Runtime. */
  readonly samples: number;
  /** How many different operand shapes and dtypes, and how many different attributes, are among them. */
  readonly shapes: number;
  readonly attributes: number;
  /** Whether PyTorch has an equivalent that the samples are compared with. */
  readonly torch: boolean;
}

export function verificationOf(
  { op, domain }: Pick<OperatorEntry, 'op' | 'domain'>,
  samples: typeof GRADIENT_SAMPLES = GRADIENT_SAMPLES,
): Verification {
  const own = samples.filter(([sample]) => sample.op === op && sample.domain === domain);
  const distinct = (text: (sample: Case) => string) => new Set(own.map(([sample]) => text(sample))).size;
  return {
    samples: own.length,
    shapes: distinct(({ inputs }) => JSON.stringify(inputs.map((input) => input && [input.dtype, input.shape]))),
    attributes: distinct(({ attributes }) => JSON.stringify(attributes)),
    torch: own.length > 0 && !NOT_IN_TORCH.has(domain === '' ? op : `${domain}.${op}`),
  };
}
