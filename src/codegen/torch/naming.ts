/**
 * @file What the names of tensors are in the lines of a method.
 */

/** Which end of a transfer a rank is. */
export type ChannelEnd = 'send' | 'recv';

/** The names of tensors in the lines of a method. */
export interface MethodNaming {
  /** The expression of a tensor that is there. */
  readonly read: (tensor: string) => string;
  /** That of a constant or coordinate in the host's memory; undefined for other tensors. */
  readonly onHost: (tensor: string) => string | undefined;
  /** The target of an assignment of a tensor, which is like `base` where it has no name yet. */
  readonly make: (tensor: string, base: string) => string;
  /** The variable of an operand, which the tensor that is written over it has from then on; undefined where it has none. */
  readonly over: (tensor: string, operand: string) => string | undefined;
  /** Whether the next value of state is from now on the tensor of an expression, which has been written over with it. */
  readonly staysIn: (tensor: string, text: string) => boolean;
  /** A variable of the method that does not stand for a tensor of the graph. */
  readonly local: (base: string) => string;
  /** The expression of the group of ranks on some axes. */
  readonly group: (axes: readonly string[]) => string;
  /** Names to delete once a tensor has been read for the last time. */
  readonly holders: (tensor: string) => readonly string[];
  /** Whether a collective is waited for in the same method. */
  readonly waitsHere: (tensor: string) => boolean;
  /** The statement that ends a collective that another method started. */
  readonly wait: (tensor: string) => string;
  /** The namespace and the name in it of a sum over micro-batches. */
  readonly sum: (tensor: string) => readonly [namespace: string, name: string];
  /** The expression of the device that this rank computes on. */
  readonly device: () => string;
  /** The expression of whether this rank is the first on some axes. */
  readonly lead: (axes: readonly string[]) => string;
  /** The expression of this rank's channel to or from another stage. */
  readonly channel: (end: ChannelEnd, stage: number) => string;
}
