/**
 * @file The types of tensors, errors and constants that a runtime needs, re-exported from `ir`: a runtime imports
 * nothing but `program`, so that another engine can be written against this folder alone.
 */
export { byteLength, type DType, dtypeOfOnnx } from '../ir/dtype.js';
export { AutoparError, type ErrorPlace } from '../ir/error.js';
export { type ConstantTensor, elementCount, type Lifetime, type OuterMemory } from '../ir/graph.js';
export { BFLOAT16, FLOAT16 } from '../ir/half.js';
