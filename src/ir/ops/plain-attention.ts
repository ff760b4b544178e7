/**
 * @file ONNX's Attention in plain operators: its operands and results rearranged into the form of scores.ts.
 */
import { numberOf, operand } from './operands.js';
import type { OperatorWriter } from './operator-writer.js';
import type { DimensionAxes, RearrangedAxis } from './rearrange.js';
import { type AttentionAxes, addMask, type ScoreStep, writeAttention } from './scores.js';

export interface AttentionSizes {
  readonly batch: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly query: number;
  readonly past: number;
  readonly keys: number;
  readonly width: number;
  readonly valueWidth: number;
  /** Heads and features share one dimension. */
  readonly flat: boolean;
}

export function plainAttention(write: OperatorWriter, sizes: AttentionSizes): void {
  const { operator } = write;
  const axes = axesOf(sizes);
  const { b, h, g, s, t, e, f } = axes;
  const own: RearrangedAxis = { size: sizes.keys };
  const type = write.sumType;
  const raised = (index: number) => write.inType(`in${index}`, operand(operator, index).dtype, type);
  const perHead = (heads: readonly RearrangedAxis[], rows: RearrangedAxis, features: RearrangedAxis): DimensionAxes =>
    sizes.flat ? [[b], [rows], [...heads, features]] : [[b], heads, [rows], [features]];
  /** Keys or values, past ones before those of this call; also writes the result that returns them. */
  const asKeys = (index: 1 | 2, past: number, features: RearrangedAxis) => {
    const now: DimensionAxes = [[b], [h], [own], [features]];
    const joined: DimensionAxes = [[b], [h], [t], [features]];
    let name = write.rearrange(raised(index), perHead([h], own, features), now);
    if (operator.inputs[past]) name = write.add('Concat', [raised(past), name], { axis: 2 });
    write.makes(index, name, type);
    return write.rearrange(name, joined, [[b], [h], [], [t], [features]]);
  };
  const scores: DimensionAxes = [[b], [h], [g], [s], [t]];
  const show = (name: string) => write.makes(3, write.rearrange(name, scores, [[b], [h, g], [s], [t]]), type);
  const mode = numberOf(operator, 'qk_matmul_output_mode', 0);
  const queries = (features: RearrangedAxis): DimensionAxes => [[b], [h], [g], [s], [features]];
  const result = writeAttention(write, {
    scale: numberOf(operator, 'scale', 0) || 1 / Math.sqrt(sizes.width),
    query: write.rearrange(raised(0), perHead([h, g], s, e), queries(e)),
    key: asKeys(1, 4, e),
    value: asKeys(2, 5, f),
    steps: stepsOf(write, sizes, axes, (stage) => (stage === mode ? [{ kind: 'shown', to: show }] : [])),
    ...(mode === 3 ? { probabilities: show } : {}),
  });
  write.makes(0, write.rearrange(result, queries(f), perHead([h, g], s, f)), type);
}

function axesOf(sizes: AttentionSizes): AttentionAxes {
  const { batch, heads, keyHeads, query, past, keys, width, valueWidth } = sizes;
  return {
    b: { size: batch },
    h: { size: keyHeads },
    g: { size: heads / keyHeads },
    s: { size: query },
    t: { size: past + keys },
    e: { size: width },
    f: { size: valueWidth },
  };
}

/** The steps between the matmul of queries and keys and the probabilities; `shown` writes the result of a stage. */
function stepsOf(
  write: OperatorWriter,
  { query, past }: AttentionSizes,
  axes: AttentionAxes,
  shown: (stage: number) => readonly ScoreStep[],
): readonly ScoreStep[] {
  const { operator } = write;
  const steps: ScoreStep[] = [...shown(0)];
  // ONNX Runtime masks capped scores, so that no cap lets masked scores through.
  const cap = numberOf(operator, 'softcap', 0);
  if (cap !== 0) steps.push({ kind: 'cap', by: cap });
  steps.push(...shown(1));
  const mask = operator.inputs[3];
  if (mask?.dtype === 'bool') steps.push({ kind: 'keep', name: addMask(write, 3, axes, 0) });
  else if (mask) {
    const added = addMask(write, 3, axes, Number.NEGATIVE_INFINITY);
    steps.push({ kind: 'add', name: write.inType(added, mask.dtype, write.sumType) });
  }
  const { t } = axes;
  const positions = (axis: number) => write.positions([query, t.size], axis);
  if (numberOf(operator, 'is_causal', 0) !== 0) {
    const rows = positions(0);
    const behind = past === 0 ? rows : write.add('Add', [rows, write.scalar('int64', past)]);
    steps.push({ kind: 'keep', name: write.add('GreaterOrEqual', [behind, positions(1)]) });
  }
  if (operator.inputs[6]) {
    const ends = write.add('Unsqueeze', ['in6'], { axes: [1, 2, 3, 4] });
    steps.push({ kind: 'keep', name: write.add('Less', [positions(1), ends]) });
  }
  return [...steps, ...shown(2)];
}
