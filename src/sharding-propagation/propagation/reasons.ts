/**
 * @file Why an axis shards a dimension or a factor: each step of propagation notes its cause, so that the chain leads back
 * to what a person wrote.
 *
 *     y dimension 1 is on tp     since  fc2 factor n
 *     fc2 factor n is on tp      since  w dimension 1
 *     w dimension 1 is on tp     by     pins[0]: layout [-, tp] on w
 */
import type { SubAxis } from '../mesh.js';
import type { PinSource } from '../pin.js';

/** The cause of an axis on a dimension of a tensor, or on a factor of an operator. */
export type Cause =
  | { readonly kind: 'pin'; readonly source: PinSource }
  /** The batch is sharded over dp where no pin decides otherwise. */
  | { readonly kind: 'batch' }
  | { readonly kind: 'operator'; readonly node: string; readonly factor: string }
  | { readonly kind: 'tensor'; readonly tensor: string; readonly dimension: number };

export interface TensorReason {
  readonly axis: SubAxis;
  readonly dimension: number;
  readonly cause: Cause;
}

export interface FactorReason {
  readonly axis: SubAxis;
  readonly factor: string;
  readonly cause: Cause;
}

/**
 * By tensor and by operator, in the order in which they came about. The reasons of an operator include those that it passed on
 * at some time, even where its final strategy is another.
 */
export interface Reasons {
  readonly tensors: ReadonlyMap<string, readonly TensorReason[]>;
  readonly operators: ReadonlyMap<string, readonly FactorReason[]>;
}

/** One step of a chain: a place of the axis. Its cause is the next step, or the end. */
export type ReasonStep =
  | { readonly at: 'tensor'; readonly tensor: string; readonly dimension: number }
  | { readonly at: 'operator'; readonly node: string; readonly factor: string }
  | { readonly at: 'pin'; readonly source: PinSource }
  | { readonly at: 'batch' };

/** From a tensor back to the pin (or the batch) that an axis on it came from; empty where the axis does not shard it. */
export function tensorChain(reasons: Reasons, tensor: string, axis: SubAxis): readonly ReasonStep[] {
  const reason = reasons.tensors.get(tensor)?.find((own) => own.axis === axis);
  if (!reason) return [];
  return chainFrom(reasons, { kind: 'tensor', tensor, dimension: reason.dimension }, axis);
}

/** From an operator back to the pin (or the batch) that an axis on one of its factors came from. */
export function operatorChain(reasons: Reasons, node: string, factor: string, axis: SubAxis): readonly ReasonStep[] {
  const reason = reasons.operators.get(node)?.find((own) => own.axis === axis && own.factor === factor);
  return reason ? chainFrom(reasons, { kind: 'operator', node, factor }, axis) : [];
}

function chainFrom(reasons: Reasons, start: Cause, axis: SubAxis): readonly ReasonStep[] {
  const steps: ReasonStep[] = [];
  const seen = new Set<string>();
  let cause: Cause | undefined = start;
  while (cause) {
    const key = JSON.stringify(cause);
    if (seen.has(key)) return steps;
    seen.add(key);
    steps.push(stepOf(cause));
    cause = causeOf(reasons, cause, axis);
  }
  return steps;
}

function stepOf(cause: Cause): ReasonStep {
  switch (cause.kind) {
    case 'pin':
      return { at: 'pin', source: cause.source };
    case 'batch':
      return { at: 'batch' };
    case 'operator':
      return { at: 'operator', node: cause.node, factor: cause.factor };
    case 'tensor':
      return { at: 'tensor', tensor: cause.tensor, dimension: cause.dimension };
  }
}

function causeOf(reasons: Reasons, cause: Cause, axis: SubAxis): Cause | undefined {
  if (cause.kind === 'tensor') return reasons.tensors.get(cause.tensor)?.find((own) => own.axis === axis)?.cause;
  if (cause.kind === 'operator') {
    const { node, factor } = cause;
    return reasons.operators.get(node)?.find((own) => own.axis === axis && own.factor === factor)?.cause;
  }
  return undefined;
}
