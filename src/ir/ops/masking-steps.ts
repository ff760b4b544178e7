/**
 * @file The steps of ONNX Runtime's fused attention between scores and softmax: a bias, one of several forms of a mask, the
 * causal order of positions, and the end of the keys in a buffer.
 */
import { constant } from './constants.js';
import { numberOf, operand } from './operands.js';
import type { OperatorWriter } from './operator-writer.js';
import type { DimensionAxes } from './rearrange.js';
import { type AttentionAxes, addMask, type ScoreStep } from './scores.js';

interface Positions {
  readonly query: number;
  readonly keys: number;
  /** Number of keys attended to, past ones included. */
  readonly total: number;
  /** int64 [batch]: number of past keys, if they are in a longer buffer. */
  readonly before: string | null;
}

/** `places`: indices of the operands with mask and bias. */
export function maskingSteps(
  write: OperatorWriter,
  { query, keys, total, before }: Positions,
  axes: AttentionAxes,
  places: { readonly mask: number; readonly scores: number },
): readonly ScoreStep[] {
  const { operator } = write;
  const { b, s, t } = axes;
  const type = write.sumType;
  const steps: ScoreStep[] = [];
  if (operator.outputs[3]) {
    const all: DimensionAxes = [[b], [axes.h], [], [s], [t]];
    const shown: DimensionAxes = [[b], [axes.h], [s], [t]];
    steps.push({ kind: 'shown', to: (name) => write.makes(3, write.rearrange(name, all, shown), type) });
  }
  const scores = operator.inputs[places.scores];
  if (scores)
    steps.push({ kind: 'add', name: write.inType(addMask(write, places.scores, axes, 0), scores.dtype, type) });
  const positions = (axis: number) => write.positions([query, t.size], axis);
  const columns = () => positions(1);
  if (operator.inputs[places.mask]) {
    const name = chosenPairs(write, axes, places.mask, columns);
    steps.push(lowered(write, name));
  }
  const first = before === null ? null : spread(write, before);
  if (first !== null) {
    const end = write.add('Add', [first, write.scalar('int64', keys)]);
    steps.push({ kind: 'keep', name: write.add('Less', [columns(), end]) });
  }
  if (numberOf(operator, 'unidirectional', 0) === 0) return steps;
  const past = first ?? write.scalar('int64', total - keys);
  const standing = write.add('Add', [positions(0), past]);
  const behind = write.add('GreaterOrEqual', [standing, columns()]);
  return [...steps, { kind: 'keep', name: behind }];
}

/** A [batch] tensor in the dimensions of scores. */
function spread(write: OperatorWriter, name: string): string {
  return write.add('Unsqueeze', [name], { axes: [1, 2, 3, 4] });
}

/** The visible keys, in the dimensions of scores: from a mask of ends, of ends and starts, per key, or per query and key. */
function chosenPairs(write: OperatorWriter, axes: AttentionAxes, index: number, positions: () => string) {
  const { b, t } = axes;
  const { dtype, shape } = operand(write.operator, index);
  if (shape.length > 1) {
    const short = t.size - (shape.at(-1) ?? 1);
    const pads = [...shape.map(() => 0), ...shape.map((_, axis) => (axis === shape.length - 1 ? short : 0))];
    const padded =
      short > 0 ? write.add('Pad', [`in${index}`], { pads, constant_value: constant(dtype, [0]) }) : `in${index}`;
    return write.add('Unsqueeze', [write.cast(padded, 'bool')], { axes: shape.length === 3 ? [1, 2] : [1, 2, 3] });
  }
  /** The ends of all samples, and after them their starts, or what kernels for packed samples read. */
  const part = (number: number) => {
    if (shape[0] === b.size) return `in${index}`;
    const bounds = { starts: [number * b.size], ends: [(number + 1) * b.size], axes: [0], steps: [1] };
    if (shape[0] !== 2 * b.size) return write.add('Slice', [`in${index}`], bounds);
    const apart = write.add('Reshape', [`in${index}`], { shape: [2, b.size] });
    const single = write.tensor(constant('int64', [number], []));
    return write.add('Gather', [apart, single], { axis: 0 });
  };
  const long = (name: string) => write.cast(spread(write, name), 'int64');
  const columns = positions();
  const before = write.add('Less', [columns, long(part(0))]);
  if (shape[0] !== 2 * b.size) return before;
  const behind = write.add('GreaterOrEqual', [columns, long(part(1))]);
  return write.add('And', [before, behind]);
}

/** Masked pairs are lowered by a finite amount, so that a query whose keys are all masked sees them as if none were. */
function lowered(write: OperatorWriter, kept: string): ScoreStep {
  const at = write.on(write.sumType);
  return { kind: 'add', name: at.where(kept, 0, numberOf(write.operator, 'mask_filter_value', -10000)) };
}
