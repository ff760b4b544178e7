/**
 * @file MindSpore's names of operators, as in the keys of its strategy checkpoints.
 */
import type { Operator } from '../../ir/operator.js';

/** One name, or several of which the first that fits is taken. */
type PrimitiveNaming = string | readonly { readonly name: string; readonly when?: (operator: Operator) => boolean }[];

const rankOf = (operator: Operator, operand: number) => operator.inputs[operand]?.shape.length ?? 0;

/** By ONNX operator. Other operators have the same name in both, or none in MindSpore: then the ONNX name is used. */
const PRIMITIVES: Readonly<Record<string, PrimitiveNaming>> = {
  // A matmul of two matrices is MatMul; any with leading dimensions is BatchMatMul.
  MatMul: [
    { name: 'MatMul', when: (operator) => rankOf(operator, 0) === 2 && rankOf(operator, 1) === 2 },
    { name: 'BatchMatMul' },
  ],
  // BiasAdd takes the channel from dimension 1, which is the last one of a matrix only.
  Add: [
    { name: 'BiasAdd', when: (operator) => rankOf(operator, 0) === 2 && rankOf(operator, 1) === 1 },
    { name: 'Add' },
  ],
  ArgMax: 'Argmax',
  ArgMin: 'Argmin',
  Attention: 'FlashAttentionScore',
  AveragePool: 'AvgPool',
  BatchNormalization: 'BatchNorm',
  Celu: 'CeLU',
  Clip: 'ClipByValue',
  ConstantOfShape: 'Fill',
  Conv: [{ name: 'Conv3D', when: (operator) => rankOf(operator, 0) === 5 }, { name: 'Conv2D' }],
  ConvTranspose: 'Conv2DTranspose',
  CrossEntropy: 'SparseSoftmaxCrossEntropyWithLogits',
  Div: 'RealDiv',
  Expand: 'BroadcastTo',
  EyeLike: 'Eye',
  GatherElements: 'GatherD',
  GatherND: 'GatherNd',
  Gelu: 'GeLU',
  GreaterOrEqual: 'GreaterEqual',
  HardSigmoid: 'HSigmoid',
  HardSwish: 'HSwish',
  InstanceNormalization: 'InstanceNorm',
  IsNaN: 'IsNan',
  LayerNormalization: 'LayerNorm',
  LeakyRelu: 'LeakyReLU',
  LessOrEqual: 'LessEqual',
  And: 'LogicalAnd',
  Not: 'LogicalNot',
  Or: 'LogicalOr',
  Xor: 'LogicalXor',
  Max: 'Maximum',
  Min: 'Minimum',
  Mod: 'FloorMod',
  NegativeLogLikelihoodLoss: 'NLLLoss',
  PRelu: 'PReLU',
  RandomNormal: 'StandardNormal',
  RandomUniform: 'UniformReal',
  Relu: 'ReLU',
  Resize: 'ResizeBilinearV2',
  RMSNormalization: 'RmsNorm',
  RotaryEmbedding: 'RotaryPositionEmbedding',
  ScatterElements: 'TensorScatterElements',
  ScatterND: 'TensorScatterUpdate',
  Selu: 'SeLU',
  Slice: 'StridedSlice',
  SoftmaxCrossEntropyLoss: 'SoftmaxCrossEntropyWithLogits',
  Sum: 'AddN',
  Swish: 'SiLU',
  SwiGLU: 'Swiglu',
  Unsqueeze: 'ExpandDims',
  Where: 'Select',
};

/** The operator's name in MindSpore. */
export function primitiveOf(operator: Operator): string {
  const naming = Object.hasOwn(PRIMITIVES, operator.op) ? PRIMITIVES[operator.op] : undefined;
  if (naming === undefined) return operator.op;
  if (typeof naming === 'string') return naming;
  return naming.find(({ when }) => when === undefined || when(operator))?.name ?? operator.op;
}

/** Every ONNX operator whose name differs, with its names in MindSpore: for documentation and tests. */
export function primitiveNames(): ReadonlyMap<string, readonly string[]> {
  const entries = Object.entries(PRIMITIVES).map(([op, naming]): [string, readonly string[]] => [
    op,
    typeof naming === 'string' ? [naming] : naming.map(({ name }) => name),
  ]);
  return new Map(entries.filter(([op, names]) => names.some((name) => name !== op)));
}
