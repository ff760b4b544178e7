/**
 * @file The names that operators written in place of another (operator.ts) have for its operands, its results and gradients of
 * both. Those who put such operators somewhere find the tensors around them by these lists.
 */
type Listed = readonly unknown[];

/** `in0`, …: one for each operand. */
export function operandNames(inputs: Listed): readonly string[] {
  return inputs.map((_, index) => `in${index}`);
}

/** `out0`, …: one for each result. */
export function resultNames(outputs: Listed): readonly string[] {
  return outputs.map((_, index) => `out${index}`);
}

/** `grad0`, …: the gradient of each result, which the operators of a gradient read. */
export function givenNames(outputs: Listed): readonly string[] {
  return outputs.map((_, index) => `grad${index}`);
}

/** `d0`, …: the gradient of each operand, which they make. */
export function gradientNames(inputs: Listed): readonly string[] {
  return inputs.map((_, index) => `d${index}`);
}

/** The tensors around an operator by those names, as far as they are there. */
export function tensorsByName<Tensor>(
  inputs: readonly (Tensor | null)[],
  outputs: readonly (Tensor | null)[],
  given: readonly (Tensor | null)[] = [],
): Map<string, Tensor> {
  const names = [...operandNames(inputs), ...resultNames(outputs), ...givenNames(given)];
  return new Map(
    [...inputs, ...outputs, ...given].flatMap((tensor, index) =>
      tensor === null ? [] : [[names[index] as string, tensor] as const],
    ),
  );
}
