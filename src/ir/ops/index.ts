/**
 * @file The operator registry: the entries of all families in one table, and the entry of an operator that has none.
 */
import { AutoparError } from '../error.js';
import type { FactorRule } from '../factor-rule.js';
import { fusedRegionEntries } from '../fused-regions/region-entry.js';
import type { Operator, OperatorEntry, OperatorRole } from '../operator.js';
import { accumulateEntry } from './accumulate.js';
import { attentionEntries } from './attention.js';
import { blockQuantisedEntries } from './block-quantised.js';
import { channelNormalisationEntries } from './channel-normalisation.js';
import { classicalEntries } from './classical.js';
import { contractionEntries } from './contraction.js';
import { convolutionEntries } from './convolution.js';
import { einsumEntries } from './einsum.js';
import { elementwiseEntries } from './elementwise.js';
import { entry, unsharded } from './entry.js';
import { expertEntries } from './experts.js';
import { fusedAttentionEntries } from './fused-attention.js';
import { fusedContractionEntries } from './fused-contraction.js';
import { fusedElementwiseEntries } from './fused-elementwise.js';
import { fusedNormalisationEntries } from './fused-normalisation.js';
import { fusedRotaryEntries } from './fused-rotary.js';
import { generatorEntries } from './generator.js';
import { groupedAttentionEntries } from './grouped-attention.js';
import { imageEntries } from './image.js';
import { indexingEntries } from './indexing.js';
import { kernelGradientEntry } from './kernel-gradient.js';
import { linearAttentionEntries } from './linear-attention.js';
import { lossEntries } from './loss.js';
import { microsoftCoreEntries } from './microsoft-core.js';
import { movementEntries } from './movement.js';
import { normalisationEntries } from './normalisation.js';
import { refused } from './operator-gradient.js';
import { poolingEntries } from './pooling.js';
import { quantisationEntries } from './quantisation.js';
import { quantisedContractionEntries } from './quantised-contraction.js';
import { quantisedElementwiseEntries } from './quantised-elementwise.js';
import { recurrentEntries } from './recurrent.js';
import { reductionEntries } from './reduction.js';
import { regionEntries } from './regions.js';
import { reshapeEntries } from './reshape.js';
import { signalEntries } from './signal.js';
import { softmaxEntries } from './softmax.js';
import { sortingEntries } from './sorting.js';

/** All operators that have an entry. */
export const operatorEntries: readonly OperatorEntry[] = [
  ...elementwiseEntries,
  ...contractionEntries,
  ...einsumEntries,
  ...reshapeEntries,
  ...movementEntries,
  ...sortingEntries,
  ...recurrentEntries,
  ...quantisationEntries,
  ...poolingEntries,
  ...lossEntries,
  ...imageEntries,
  ...generatorEntries,
  ...convolutionEntries,
  ...softmaxEntries,
  ...reductionEntries,
  ...normalisationEntries,
  ...channelNormalisationEntries,
  ...indexingEntries,
  ...attentionEntries,
  ...blockQuantisedEntries,
  ...classicalEntries,
  ...expertEntries,
  ...fusedAttentionEntries,
  ...fusedContractionEntries,
  ...fusedElementwiseEntries,
  ...fusedNormalisationEntries,
  ...fusedRotaryEntries,
  ...groupedAttentionEntries,
  ...linearAttentionEntries,
  ...microsoftCoreEntries,
  ...quantisedContractionEntries,
  ...quantisedElementwiseEntries,
  ...regionEntries,
  ...signalEntries,
];

const BY_NAME: ReadonlyMap<string, OperatorEntry> = new Map(
  [
    ...operatorEntries,
    accumulateEntry,
    kernelGradientEntry,
    ...fusedRegionEntries((op, domain) => operatorEntry({ op, domain })),
  ].map((item) => [keyOf(item.op, item.domain), item]),
);

/** The entry of an operator; undefined where the registry has none. */
export function entryOf(op: string, domain: string): OperatorEntry | undefined {
  return BY_NAME.get(keyOf(op, domain));
}

/** The entry of an operator: its own, or one that keeps every dimension whole if the registry does not know the operator. */
export function operatorEntry({ op, domain }: Pick<Operator, 'op' | 'domain'>): OperatorEntry {
  return entryOf(op, domain) ?? unknownEntry(op, domain);
}

/** The operator's factor rule; everything whole for an operator that the registry lacks. */
export function ruleOf(operator: Operator): FactorRule {
  return operatorEntry(operator).rule(operator);
}

/** The family of an operator; undefined where the registry does not know it. */
export function operatorFamily({ op, domain }: Pick<Operator, 'op' | 'domain'>): OperatorEntry['family'] | undefined {
  return entryOf(op, domain)?.family;
}

/** The role of an operator; undefined where it has none. */
export function operatorRole({ op, domain }: Pick<Operator, 'op' | 'domain'>): OperatorRole | undefined {
  return entryOf(op, domain)?.role;
}

/** Whether an operator's result is its operand in another shape, or as it is: the elements stay in their order. */
export function isReshaped({ op, domain }: Pick<Operator, 'op' | 'domain'>): boolean {
  return entryOf(op, domain)?.isView === true;
}

/** Whether an operator converts types; training in 16 bit adds most of these. */
export function isConversion(operator: Pick<Operator, 'op' | 'domain'>): boolean {
  const role = operatorRole(operator);
  return role === 'cast' || role === 'rounding';
}

/**
 * Whether the sizes of an operator's results depend on its operands' values. Such operators have no entry, since a rule needs
 * sizes: where their operands are constants they are folded, and else they are rewritten or refused.
 */
export function isSizedByData({ op, domain }: Pick<Operator, 'op' | 'domain'>): boolean {
  return ['', 'com.microsoft'].includes(domain) && SIZED_BY_DATA.has(op);
}

const SIZED_BY_DATA: ReadonlySet<string> = new Set([
  'Compress',
  'NonMaxSuppression',
  'NonZero',
  'StringSplit',
  'Unique',
]);

/** The entry of an operator that the registry does not know: every dimension whole, types from elsewhere. */
function unknownEntry(op: string, domain: string): OperatorEntry {
  return entry({
    op,
    domain,
    family: 'other',
    infer: (operator) => {
      throw new AutoparError(
        'unknown-operator',
        'input',
        `${operator.name}: the types of ${op}${domain ? ` of ${domain}` : ''} are not known`,
        { node: operator.name },
        'Give its results types in the file (value_info), for instance by running shape inference before export.',
      );
    },
    rule: unsharded,
    gradient: refused('autopar does not know the operator'),
    note: 'Unknown operator: replicated on every rank.',
  });
}

function keyOf(op: string, domain: string): string {
  return `${domain === 'ai.onnx' ? '' : domain}:${op}`;
}
