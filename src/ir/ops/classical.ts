/**
 * @file Operators of classical machine learning that run before or after networks: features in rows. Rows pass; the
 * features of a row belong to constants in attributes, and stay whole.
 */
import type { DType } from '../dtype.js';
import { elementCount, type TensorType } from '../graph.js';
import type { OwnForms } from '../onnx/attribute-types.js';
import type { OperatorEntry } from '../operator.js';
import { entry, moves, perElement, perInputElement } from './entry.js';
import { dimensionNames, integers, mismatch, neededIntegers, numberOf, ofRank, operand, tensor } from './operands.js';
import { differentiable, refused, STEPS } from './operator-gradient.js';

const DOMAIN = 'ai.onnx.ml';
const NOTE = 'Features are not sharded: their constants are attributes.';
const TABLES = refused('it is made for tables before training, with constants as attributes');

/** The dtypes of labels, and the endings of the attributes that list them. */
const LABELS: readonly (readonly [dtype: DType, ending: string])[] = [
  ['int64', 'int64s'],
  ['float32', 'floats'],
  ['string', 'strings'],
];

const LABEL_FORMS: OwnForms = {
  keys_int64s: 'ints',
  keys_floats: 'floats',
  keys_strings: 'strings',
  keys_tensor: 'tensor',
  values_int64s: 'ints',
  values_floats: 'floats',
  values_strings: 'strings',
  values_tensor: 'tensor',
  default_string: 'string',
  default_tensor: 'tensor',
};

export const classicalEntries: readonly OperatorEntry[] = [
  differentiable(
    entry({
      op: 'TfIdfVectorizer',
      family: 'indexing',
      infer: (operator) => {
        const { shape } = ofRank(operator, 0, 1, true);
        const columns = 1 + Math.max(-1, ...neededIntegers(operator, 'ngram_indexes'));
        return [{ dtype: 'float32', shape: [...shape.slice(0, -1), columns] }];
      },
      rule: '*a w! -> *a c!',
      work: perInputElement(4),
      note: 'The words of a row are not sharded: n-grams span them.',
    }),
    'it counts words, which are whole numbers',
  ),
  differentiable(
    entry({
      op: 'Binarizer',
      domain: DOMAIN,
      family: 'elementwise',
      infer: (operator) => [operand(operator, 0)],
      rule: '*a -> *a',
    }),
    STEPS,
  ),
  differentiable(
    entry({
      op: 'LabelEncoder',
      domain: DOMAIN,
      family: 'elementwise',
      attributes: LABEL_FORMS,
      infer: (operator) => {
        const { dtype, shape } = operand(operator, 0);
        const listed = (side: string) => LABELS.find(([, ending]) => `${side}_${ending}` in operator.attributes)?.[0];
        const [keys, values] = ['keys', 'values'].map(
          (side) => tensor(operator, `${side}_tensor`)?.dtype ?? listed(side),
        );
        if (keys !== dtype) throw mismatch(operator, `its labels are ${dtype}, and its keys ${keys ?? 'are absent'}`);
        if (!values) throw mismatch(operator, 'it has no values');
        return [{ dtype: values, shape }];
      },
      rule: '*a -> *a',
    }),
    STEPS,
  ),
  ...['Scaler', 'Imputer', 'Normalizer'].map((op) =>
    entry({
      op,
      domain: DOMAIN,
      family: 'normalisation',
      attributes: { scale: 'floats' },
      infer: (operator) => {
        const { dtype, shape } = ofRank(operator, 0, 1, true);
        return [{ dtype: op === 'Imputer' ? dtype : 'float32', shape }];
      },
      rule: (operator) => {
        const { shape } = operand(operator, 0);
        const side = dimensionNames(shape.length).map((name, axis) =>
          axis > 0 || shape.length === 1 ? `${name}!` : name,
        );
        return `${side.join(' ')} -> ${side.join(' ')}`;
      },
      work: perElement(3),
      gradient: TABLES,
      note: NOTE,
    }),
  ),
  entry({
    op: 'LinearRegressor',
    domain: DOMAIN,
    family: 'contraction',
    precision: 'full',
    infer: (operator) => {
      const [rows = 1, width = 1] = ofRank(operator, 0, 2).shape;
      const targets = numberOf(operator, 'targets', 1);
      const weights = (integers(operator, 'coefficients') ?? []).length;
      if (weights !== width * targets) throw mismatch(operator, `it has ${weights} coefficients for ${width} features`);
      return [{ dtype: 'float32', shape: [rows, targets] }];
    },
    rule: 'n d! -> n t!',
    work: (operator) => ({ flops: 2 * elementCount(operand(operator, 0).shape) * numberOf(operator, 'targets', 1) }),
    gradient: TABLES,
    note: NOTE,
  }),
  entry({
    op: 'LinearClassifier',
    domain: DOMAIN,
    family: 'contraction',
    precision: 'full',
    attributes: { classlabels_ints: 'ints', classlabels_strings: 'strings' },
    infer: (operator) => {
      const [rows = 1, width = 1] = ofRank(operator, 0, 2).shape;
      const labels = integers(operator, 'classlabels_ints');
      if (!labels) throw mismatch(operator, 'its labels are strings, or absent; integers are handled');
      const weights = neededIntegers(operator, 'coefficients').length;
      const scored = weights / width;
      if (!Number.isInteger(scored) || scored === 0)
        throw mismatch(operator, `it has ${weights} coefficients for ${width} features`);
      // One score tells two classes apart, and is given for both.
      const classes = scored === 1 && labels.length === 2 ? 2 : scored;
      return [
        { dtype: 'int64', shape: [rows] },
        { dtype: 'float32', shape: [rows, classes] },
      ];
    },
    rule: 'n d! -> n, n t!',
    work: (operator) => ({
      flops: 2 * (operand(operator, 0).shape[0] ?? 1) * neededIntegers(operator, 'coefficients').length,
    }),
    gradient: TABLES,
    note: NOTE,
  }),
  entry({
    op: 'ArrayFeatureExtractor',
    domain: DOMAIN,
    family: 'indexing',
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 1, true);
      const count = elementCount(operand(operator, 1).shape);
      const rows = shape.length === 1 ? [1] : shape.slice(0, -1);
      const type: TensorType = { dtype, shape: [...rows, count] };
      return [type];
    },
    rule: (operator) => {
      const { shape } = operand(operator, 0);
      const names = dimensionNames(shape.length - 1).join(' ');
      const indices = operand(operator, 1).shape.map((_, axis) => `i${axis}!`);
      return `${names} v!, ${indices.join(' ')} -> ${shape.length === 1 ? '1' : names} j!`;
    },
    linear: () => [[0]],
    work: moves,
    gradient: TABLES,
    note: 'The input features are not sharded.',
  }),
];
