/**
 * @file The table of operators in torch functions (docs/reference/torch-operators.md). A program with another operator is refused
 * before anything is written.
 */

import { PAIR_OPERATORS } from '../pairs.js';
import { attentionOperators } from './attention.js';
import { elementwiseOperators } from './elementwise.js';
import { regionOperators } from './fused-regions.js';
import { imageOperators } from './images.js';
import { indexingOperators } from './indexing.js';
import { layerOperators } from './layers.js';
import type { TorchOperator } from './operator.js';
import { quantisedOperators } from './quantised.js';
import { recurrentOperators } from './recurrent.js';
import { reductionOperators } from './reductions.js';
import { shapingOperators } from './shaping.js';
import { signalOperators } from './signals.js';

const TABLE: ReadonlyMap<string, TorchOperator> = new Map(
  [
    ...attentionOperators,
    ...elementwiseOperators,
    ...shapingOperators,
    ...indexingOperators,
    ...reductionOperators,
    ...layerOperators,
    ...recurrentOperators,
    ...imageOperators,
    ...quantisedOperators,
    ...signalOperators,
    ...regionOperators,
    ...PAIR_OPERATORS,
  ].map((operator) => [`${operator.domain}:${operator.op}`, operator]),
);

/** The entry of an operator; undefined if none. */
export function torchOperatorOf(op: string, domain: string): TorchOperator | undefined {
  return TABLE.get(`${domain}:${op}`);
}
