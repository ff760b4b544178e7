/**
 * @file The gradient of ONNX's Attention: its operands and results brought into the form that score-gradient.ts has.
 */
import type { DType } from '../dtype.js';
import { numberOf, operand } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { type Axes, type Axis, sizesOf } from './rearrange.js';
import { type AttentionAxes, addAttentionSlopes, addMask, type ScoreStep } from './score-gradient.js';

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

export function attentionGradient(write: OperatorGradient, sizes: AttentionSizes): void {
  const { view } = write;
  const axes = axesOf(sizes);
  const { b, h, g, s, t, e, f } = axes;
  const own: Axis = { size: sizes.keys };
  const type = write.sumType;
  const fine = (name: string, index: number) => write.inType(name, operand(view, index).dtype, type);
  const perHead = (heads: readonly Axis[], rows: Axis, features: Axis): Axes =>
    sizes.flat ? [[b], [rows], [...heads, features]] : [[b], heads, [rows], [features]];
  const asQueries = (name: string, features: Axis) => {
    const from = perHead([h, g], s, features);
    return write.rearrange(fine(name, 0), from, [[b], [h], [g], [s], [features]]);
  };
  /** Keys or values, those of the past before those of this call. */
  const asKeys = (index: number, past: number, features: Axis) => {
    const from = perHead([h], own, features);
    const now: Axes = [[b], [h], [own], [features]];
    const joined: Axes = [[b], [h], [t], [features]];
    let name = write.rearrange(fine(`in${index}`, index), from, now);
    if (view.inputs[past]) {
      const before = fine(`in${past}`, past);
      name = write.add('Concat', [before, name], { axis: 2 });
    }
    return write.rearrange(name, joined, [[b], [h], [], [t], [features]]);
  };
  const scores: Axes = [[b], [h], [g], [s], [t]];
  const asScores = (name: string) => {
    const from: Axes = [[b], [h, g], [s], [t]];
    return write.rearrange(fine(name, 0), from, scores);
  };
  const mode = numberOf(view, 'qk_matmul_output_mode', 0);
  const slopes = addAttentionSlopes(write, {
    axes,
    scale: numberOf(view, 'scale', 0) || 1 / Math.sqrt(sizes.width),
    query: asQueries('in0', e),
    key: asKeys(1, 4, e),
    value: asKeys(2, 5, f),
    output: write.has(0) ? asQueries('grad0', f) : null,
    steps: stepsOf(write, sizes, axes, mode, asScores),
    probabilities: write.has(3) && mode === 3 ? asScores('grad3') : null,
  });
  if (write.wants(0)) {
    const back = write.rearrange(slopes.query(), [[b], [h], [g], [s], [e]], perHead([h, g], s, e));
    write.become(0, back, type);
  }
  const giveKeys = (index: number, past: number, result: number, features: Axis, slope: (() => string) | null) => {
    if (!write.wants(index) && !write.wants(past)) return;
    const joined: Axes = [[b], [h], [t], [features]];
    const present = write.has(result) ? fine(`grad${result}`, 0) : null;
    const made = slope?.() ?? null;
    const both = made !== null && present !== null ? write.add('Add', [made, present]) : (made ?? present);
    if (both === null) {
      write.noneOf(index, past);
      return;
    }
    give(
      write,
      index,
      cut(write, both, joined, own, sizes.past),
      [[b], [h], [own], [features]],
      perHead([h], own, features),
      type,
    );
    if (!write.wants(past)) return;
    const before: Axis = { size: sizes.past };
    const places: Axes = [[b], [h], [before], [features]];
    give(write, past, cut(write, both, joined, before, 0), places, places, type);
  };
  giveKeys(1, 4, 1, e, slopes.key);
  giveKeys(2, 5, 2, f, slopes.value);
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

/** What comes between products and probabilities, and which result shows it. */
function stepsOf(
  write: OperatorGradient,
  { query, past }: AttentionSizes,
  axes: AttentionAxes,
  mode: number,
  asScores: (name: string) => string,
): readonly ScoreStep[] {
  const { view } = write;
  const steps: ScoreStep[] = [];
  const shown = (stage: number) => {
    if (write.has(3) && mode === stage) steps.push({ kind: 'given', name: asScores('grad3') });
  };
  shown(0);
  // ONNX Runtime masks what is capped, so that no cap lets masked scores through.
  const cap = numberOf(view, 'softcap', 0);
  if (cap !== 0) steps.push({ kind: 'cap', by: cap });
  shown(1);
  const mask = view.inputs[3];
  if (mask?.dtype === 'bool') steps.push({ kind: 'keep', name: addMask(write, 3, axes, 0).name });
  else if (mask) {
    const added = addMask(write, 3, axes, Number.NEGATIVE_INFINITY);
    const name = write.inType(added.name, mask.dtype, write.sumType);
    steps.push({ kind: 'add', name, axes: added.axes, operand: 3 });
  }
  const { t } = axes;
  const positions = (axis: number) => write.positions([query, t.size], axis);
  if (numberOf(view, 'is_causal', 0) !== 0) {
    const rows = positions(0);
    const behind = past === 0 ? rows : write.add('Add', [rows, write.scalar('int64', past)]);
    steps.push({ kind: 'keep', name: write.add('GreaterOrEqual', [behind, positions(1)]) });
  }
  if (view.inputs[6]) {
    const ends = write.add('Unsqueeze', ['in6'], { axes: [1, 2, 3, 4] });
    steps.push({ kind: 'keep', name: write.add('Less', [positions(1), ends]) });
  }
  shown(2);
  return steps;
}

/** The part of keys that begins at `start`. */
export function cut(write: OperatorGradient, name: string, joined: Axes, part: Axis, start: number): string {
  if (sizesOf(joined)[2] === part.size) return name;
  const bounds = { starts: [start], ends: [start + part.size], axes: [2], steps: [1] };
  return write.add('Slice', [name], bounds);
}

export function give(write: OperatorGradient, index: number, name: string, from: Axes, to: Axes, type: DType): void {
  if (write.wants(index)) write.become(index, write.rearrange(name, from, to), type);
}
