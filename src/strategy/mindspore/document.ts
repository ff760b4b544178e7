/**
 * @file A MindSpore strategy checkpoint as a record, whichever of its two forms it was read from (schema.ts, json.ts).
 *
 * It names operators by key, `<Primitive>_<first parameter>`, with the number of shards of each dimension per operand;
 * and parameters by name, with a device matrix and, per dimension, its axes that shard the dimension.
 */

/** Axes of a device matrix are counted from the right: on (4, 2), 1 is the axis of 4 and 0 the axis of 2; −1 is none. */
export type TensorMap = readonly (readonly number[])[];

export interface DeviceLayout {
  readonly deviceMatrix: readonly number[];
  /** Per dimension the axes that shard it, major to minor; [-1] for a whole one. */
  readonly tensorMap: TensorMap;
}

export interface KeyedStrategy {
  readonly stage: number;
  /** Per operand the number of shards of each dimension. */
  readonly splits: readonly (readonly number[])[];
}

export interface ParameterLayout extends DeviceLayout {
  /** Whole shape; the JSON form only. */
  readonly shape?: readonly number[];
  readonly splitShape: readonly number[];
  readonly indicesOffset: readonly number[];
  readonly field: number;
  readonly optimizerShardStep: number;
  readonly optimizerShardSize: number;
}

/** The layout of an operand or a result, axes by name; the JSON form only. */
export interface NamedLayout extends DeviceLayout {
  readonly interleaved: boolean;
  readonly aliases: readonly string[];
}

export interface MindSporeStrategy {
  /** A counter of MindSpore's, not a pipeline stage. */
  readonly currentStage: number;
  readonly operators: ReadonlyMap<string, KeyedStrategy>;
  readonly parameters: ReadonlyMap<string, ParameterLayout>;
  /** Numbers of shards of results, by key; the JSON form only. */
  readonly outputs: ReadonlyMap<string, KeyedStrategy>;
  readonly operandLayouts: ReadonlyMap<string, readonly NamedLayout[]>;
  readonly resultLayouts: ReadonlyMap<string, readonly NamedLayout[]>;
}

/**
 * Number of devices of one pipeline stage: the product of each device matrix. Null where the file has no parameters.
 * @returns the first that differs as well, where they do not agree
 */
export function stageDevices(document: MindSporeStrategy): {
  readonly devices: number | null;
  readonly differs?: string;
} {
  let devices: number | null = null;
  for (const [name, { deviceMatrix }] of document.parameters) {
    const product = deviceMatrix.reduce((all, size) => all * size, 1);
    if (devices !== null && devices !== product) {
      return { devices, differs: `parameter ${name} is on ${product} devices, those before it on ${devices}` };
    }
    devices = product;
  }
  return { devices };
}

/** A parameter's name without the `<stage>-` that merging puts in front, and that stage (null if none). */
export function parameterOf(name: string): { readonly stage: number | null; readonly parameter: string } {
  const [, stage, parameter] = /^(\d+)-(.*)$/s.exec(name) ?? [];
  return parameter === undefined ? { stage: null, parameter: name } : { stage: Number(stage), parameter };
}
