/**
 * @file The shardings that the validator finds and rules do not offer, with the reason. docs/reference/operators.md lists
 * them; the validator's test holds them against what it finds.
 */

export interface MissedSharding {
  readonly op: string;
  readonly domain: string;
  /** As `missedShardings` writes it. */
  readonly shardings: readonly string[];
  readonly reason: string;
}

export const MISSED: readonly MissedSharding[] = [
  {
    op: 'Shape',
    domain: '',
    shardings: ['1 -> sum'],
    reason: 'Holds for a result of one size only; import makes a shape into constants.',
  },
  {
    op: 'Size',
    domain: '',
    shardings: ['0 -> sum', '1 -> sum'],
    reason: 'One integer, which import makes into a constant.',
  },
  {
    op: 'DequantizeLinear',
    domain: '',
    shardings: ['0 0 -> 0', '1 1 -> 1'],
    reason:
      'Holds where whole blocks of scales go along; the rule for scales per block is a lookup’s, which weights need most.',
  },
  {
    op: 'Imputer',
    domain: 'ai.onnx.ml',
    shardings: ['1 -> 1'],
    reason: 'Its values are an attribute, one per column, that ranks cannot have different ones of.',
  },
  {
    op: 'QGemm',
    domain: 'com.microsoft',
    shardings: ['1 _ _ 1 _ _ -> sum'],
    reason: 'Holds without a scale of the result only; with one, sums are rounded to the quantised type at once.',
  },
];
