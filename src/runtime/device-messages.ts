/**
 * @file Messages between a rank and the process of its device.
 */
import type { DType } from '../program/values.js';
import type { BackendName, SegmentSource } from './backend.js';
import type { PlainError } from './messages.js';

/** A tensor in host memory. */
export interface HostTensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

/** Commands to the process; an answer has the number of its command. */
export type DeviceCommand = { readonly call: number } & (
  | { readonly kind: 'open'; readonly backend: BackendName; readonly device: number; readonly explain: boolean }
  | { readonly kind: 'load'; readonly segment: number; readonly source: SegmentSource; readonly threads: number }
  | { readonly kind: 'run'; readonly segment: number; readonly inputs: readonly HostTensor[] }
  | { readonly kind: 'release'; readonly segment: number }
);

export type DeviceAnswer = { readonly call: number } & (
  | { readonly error: PlainError }
  | {
      readonly error: null;
      /** Results of `run`. */
      readonly outputs: readonly HostTensor[];
      /** Milliseconds that the device was at work. */
      readonly milliseconds: number;
    }
);
