/**
 * @file A cut as the search finds it.
 */

/** A stage of a cut. */
export interface CutStage {
  readonly first: number;
  /** The layer after its last. */
  readonly end: number;
  readonly subMesh: number;
  readonly inFlight: number;
  /** The number of its way among its options; −1: the fastest combination. */
  readonly option: number;
}

export interface Cut {
  /** Σ fill, sends included. */
  readonly fill: number;
  /** Largest pace. */
  readonly pace: number;
  readonly stages: readonly CutStage[];
}
