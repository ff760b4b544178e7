/**
 * @file Elementwise operators: a table row each. All dimensions pass, operands broadcast; rows differ in the
 * result's dtype, the operand sets in which the operator is linear, and the work per element.
 */
import type { DType } from '../dtype.js';
import { dtypeBits, isFloating } from '../dtype.js';
import type { Operator, OperatorEntry, OperatorRole, RegionKind } from '../operator.js';
import { elementwiseGradients } from './elementwise-gradient.js';
import { entry, isFree, perElement, presentOperands } from './entry.js';
import { broadcast, dtypeAttribute, mismatch, numberOf, operand, repeated } from './operands.js';
import { type PlainBody, withGradients, withPlainForm } from './operator-gradient.js';
import type { OperatorWriter } from './operator-writer.js';

interface ElementwiseRow {
  readonly op: string;
  readonly operands: 'one' | 'two' | 'any';
  /** Result's dtype: that of the first operand by default. */
  readonly dtype?: 'bool';
  /** Floating-point operations per element; a transcendental function counts for several. */
  readonly flops?: number;
  readonly linear?: OperatorEntry['linear'];
  readonly isView?: boolean;
  readonly role?: OperatorRole;
  readonly region?: RegionKind;
  readonly parameterInputs?: OperatorEntry['parameterInputs'];
  /** The plain form, for devices that lack the operator. */
  readonly plain?: PlainBody;
}

const ALL: OperatorEntry['linear'] = (operator) => [presentOperands(operator)];
const FIRST: OperatorEntry['linear'] = () => [[0]];
const EACH_OF_TWO: OperatorEntry['linear'] = () => [[0], [1]];
/** Integer division rounds, and rounding is not linear. */
const DIVIDEND: OperatorEntry['linear'] = (operator) => (isFloating(operand(operator, 0).dtype) ? [[0]] : []);

const one = (op: string, flops = 1): ElementwiseRow => ({ op, operands: 'one', flops });
const two = (op: string, flops = 1): ElementwiseRow => ({ op, operands: 'two', flops });
const test = (op: string, operands: ElementwiseRow['operands']): ElementwiseRow => ({ op, operands, dtype: 'bool' });

/** Computed in float32 by PyTorch's autocast too: exponentials, powers and reciprocals leave the range of 16 bit. */
const FULL: ReadonlySet<string> = new Set([
  'Exp',
  'Log',
  'Pow',
  'Reciprocal',
  'Softplus',
  'Tan',
  'Acos',
  'Asin',
  'Cosh',
  'Sinh',
]);

const ROWS: readonly ElementwiseRow[] = [
  { ...one('Identity', 0), linear: FIRST, isView: true, role: 'copy' },
  { ...one('Neg'), linear: FIRST },
  ...['Abs', 'Ceil', 'Floor', 'Round', 'Sign', 'Relu', 'Not', 'BitwiseNot'].map((op) => one(op)),
  ...['LeakyRelu', 'ThresholdedRelu', 'Shrink', 'HardSigmoid', 'HardSwish', 'Softsign'].map((op) => one(op, 3)),
  ...['Sqrt', 'Reciprocal'].map((op) => one(op, 4)),
  ...['Exp', 'Log', 'Sigmoid', 'Tanh', 'Erf', 'Elu', 'Selu', 'Celu', 'Softplus'].map((op) => one(op, 8)),
  { ...one('Swish', 8), plain: plainSwish },
  { ...one('Gelu', 12), region: 'Gelu' },
  one('Mish', 12),
  ...['Sin', 'Cos', 'Tan', 'Asin', 'Acos', 'Atan', 'Sinh', 'Cosh', 'Asinh', 'Acosh', 'Atanh'].map((op) => one(op, 8)),
  ...['IsNaN', 'IsInf'].map((op) => test(op, 'one')),
  { ...two('Add'), linear: ALL, role: 'sum' },
  { ...two('Sub'), linear: ALL },
  { ...two('Mul'), linear: EACH_OF_TWO },
  { ...two('Div'), linear: DIVIDEND },
  two('Pow', 8),
  ...['Mod', 'BitShift', 'And', 'Or', 'Xor', 'BitwiseAnd', 'BitwiseOr', 'BitwiseXor'].map((op) => two(op)),
  { ...two('PRelu'), parameterInputs: [1] },
  ...['Equal', 'Less', 'LessOrEqual', 'Greater', 'GreaterOrEqual'].map((op) => test(op, 'two')),
  { op: 'Sum', operands: 'any', linear: ALL, role: 'sum' },
  { op: 'Mean', operands: 'any', linear: ALL },
  { op: 'Max', operands: 'any' },
  { op: 'Min', operands: 'any' },
];

/** Operators whose operands may be of different types. */
const MIXED_DTYPES: ReadonlySet<string> = new Set(['Pow']);

const ENTRIES: readonly OperatorEntry[] = [
  ...ROWS.map(tableEntry),
  entry({
    op: 'Where',
    family: 'elementwise',
    role: 'choice',
    infer: (operator) => {
      if (operand(operator, 0).dtype !== 'bool') throw mismatch(operator, 'the condition must be bool');
      if (operand(operator, 1).dtype !== operand(operator, 2).dtype)
        throw mismatch(operator, 'both values must have one type');
      return [{ dtype: operand(operator, 1).dtype, shape: broadcast(operator, shapesOf(operator)) }];
    },
    rule: '*a, *a, *a -> *a',
    linear: () => [[1, 2]],
  }),
  entry({
    op: 'Clip',
    family: 'elementwise',
    infer: (operator) => repeated(operator, operand(operator, 0)),
    rule: '*a, *a, *a -> *a',
    work: perElement(2),
  }),
  entry({
    op: 'Cast',
    family: 'elementwise',
    role: 'cast',
    infer: (operator) => {
      if (operator.attributes['to'] === undefined) throw mismatch(operator, "attribute 'to' is missing");
      return [{ ...operand(operator, 0), dtype: dtypeAttribute(operator, 'to', operand(operator, 0).dtype) }];
    },
    rule: '*a -> *a',
    linear: (operator) =>
      castIsLinear(operand(operator, 0).dtype, dtypeAttribute(operator, 'to', operand(operator, 0).dtype)),
  }),
  entry({
    op: 'BitCast',
    family: 'elementwise',
    since: 26,
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      const to = dtypeAttribute(operator, 'to', dtype);
      if (dtypeBits(to) !== dtypeBits(dtype)) throw mismatch(operator, `${to} does not have as many bits as ${dtype}`);
      return [{ dtype: to, shape }];
    },
    rule: '*a -> *a',
    work: isFree,
  }),
  entry({
    op: 'CastLike',
    family: 'elementwise',
    infer: (operator) => [{ ...operand(operator, 0), dtype: operand(operator, 1).dtype }],
    // Only the type of the second operand counts: its dimensions are independent.
    rule: (operator) =>
      `*a, ${operand(operator, 1)
        .shape.map((_, index) => `z${index}!`)
        .join(' ')} -> *a`,
    linear: (operator) => castIsLinear(operand(operator, 0).dtype, operand(operator, 1).dtype),
    note: 'The type-giving operand is not sharded.',
  }),
  entry({
    op: 'Dropout',
    family: 'elementwise',
    role: 'random',
    attributes: { seed: 'int' },
    infer: (operator) =>
      [operand(operator, 0), { dtype: 'bool' as const, shape: operand(operator, 0).shape }].slice(
        0,
        operator.outputCount,
      ),
    // The ratio and the mode are scalars; with the mode given values are random, and a shard would draw others.
    rule: (operator) => (operator.inputs[2] ? '*a!, , -> *a!, *a!' : '*a, , -> *a, *a'),
    training: { kind: 'dropout', ratio: 1, mode: 2, mask: 1, defaultRatio: 0.5 },
    note: 'Replicated in training mode: shards would draw different random numbers.',
  }),
];

export const elementwiseEntries: readonly OperatorEntry[] = withGradients(ENTRIES, elementwiseGradients);

function tableEntry(row: ElementwiseRow): OperatorEntry {
  const needed = row.operands === 'two' ? 2 : 1;
  const made = entry({
    op: row.op,
    family: 'elementwise',
    ...(FULL.has(row.op) ? { precision: 'full' as const } : {}),
    infer: (operator) => {
      const types = Array.from({ length: Math.max(needed, operator.inputs.length) }, (_, index) =>
        operand(operator, index),
      );
      const [first] = types;
      if (row.operands !== 'any' && operator.inputs.length > needed)
        throw mismatch(operator, `it takes ${needed} operands`);
      if (!first) throw mismatch(operator, 'it has no operand');
      if (!MIXED_DTYPES.has(row.op) && types.some(({ dtype }) => dtype !== first.dtype))
        throw mismatch(operator, 'its operands must have one type');
      return [{ dtype: row.dtype ?? first.dtype, shape: broadcast(operator, shapesOf(operator)) }];
    },
    rule: (operator) => `${operator.inputs.map(() => '*a').join(', ')} -> *a`,
    linear: row.linear ?? (() => []),
    work: row.isView
      ? isFree
      : row.operands === 'any'
        ? (operator) => perElement(Math.max(1, operator.inputs.length - 1))(operator)
        : perElement(row.flops ?? 1),
    ...(row.isView ? { isView: true } : {}),
    ...(row.role ? { role: row.role } : {}),
    ...(row.region ? { region: row.region } : {}),
    ...(row.parameterInputs ? { parameterInputs: row.parameterInputs } : {}),
  });
  return row.plain ? withPlainForm(made, row.plain) : made;
}

/** x · sigmoid(alpha · x). */
function plainSwish(write: OperatorWriter): void {
  const { operator } = write;
  const { dtype } = operand(operator, 0);
  const alpha = numberOf(operator, 'alpha', 1);
  const scaled = alpha === 1 ? 'in0' : write.add('Mul', ['in0', write.scalar(dtype, alpha)]);
  write.makes(0, write.add('Mul', ['in0', write.add('Sigmoid', [scaled])]), dtype);
}

function shapesOf(operator: Operator): readonly (readonly number[])[] {
  return operator.inputs.flatMap((type) => (type ? [type.shape] : []));
}

/** Casts between floating types carry partial sums; a cast to integers rounds. */
function castIsLinear(from: DType, to: DType): readonly (readonly number[])[] {
  return isFloating(from) && isFloating(to) ? [[0]] : [];
}
