/**
 * @file A checkpoint: the state that training keeps from step to step, as whole tensors split into boxes, and its progress.
 *
 *     step-20/manifest.json            contents of the folder; written last, and with a digest of itself
 *     step-20/rank-0.safetensors       boxes of tensors, each with its SHA-256 in the manifest
 *
 * A box states its position in the whole tensor, and nothing about the ranks that wrote it: every plan of the model reads it.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { byteLength, type DType } from '../ir/dtype.js';
import { AutoparError } from '../ir/error.js';
import { elementCount, type TensorType } from '../ir/graph.js';
import { schemaCheck } from '../ir/schema-check.js';
import { stableJson, writeFileAtomic } from './atomic.js';
import { type Box, sharedBox } from './boxes.js';
import { ownFile } from './inside-folder.js';

export const CHECKPOINT_VERSION = 1;

export interface Checkpoint {
  readonly format: 'autopar-checkpoint';
  readonly version: typeof CHECKPOINT_VERSION;
  /** Steps that are done. */
  readonly step: number;
  /** The run that wrote it, which another run is compared with. */
  readonly run: CheckpointRun;
  /** The position in the data, and the like, as the training loop states it. */
  readonly state: Readonly<Record<string, unknown>>;
  readonly tensors: Readonly<Record<string, StoredTensor>>;
}

export interface CheckpointRun {
  readonly model: string;
  /** Fingerprint of the step's graph, which includes the batch and its micro-batches. */
  readonly fingerprint: string;
  /** Inputs and outputs of a step, as `NAME DTYPE [SHAPE]`: the batch is in them. */
  readonly interface: readonly string[];
  readonly microBatches: number;
  /** Loss and optimizer, as the plan states them. */
  readonly training: Readonly<Record<string, unknown>>;
  /** The passes that made the model's graph, as the plan states them. Left out by earlier versions. */
  readonly passes?: readonly unknown[];
}

export interface StoredTensor extends TensorType {
  /** They make up the whole, and no two overlap. */
  readonly boxes: readonly StoredBox[];
}

export interface StoredBox extends Box {
  /** The safetensors file beside the manifest, in which `boxKey` names it. */
  readonly file: string;
  /** SHA-256 of its bytes, in hex. */
  readonly sha256: string;
}

/** The name of a box in its file: that of a tensor that is one box, else with its place. */
export function boxKey(tensor: string, shape: readonly number[], { offset, size }: Box): string {
  return elementCount(size) === elementCount(shape) ? tensor : `${tensor}@${offset.join(',')}`;
}

const MANIFEST = 'manifest.json';

/** Writes the manifest, when all else is there. Throws AutoparError (exit cannotWrite). */
export async function writeManifest(folder: string, checkpoint: Checkpoint): Promise<void> {
  await writeFileAtomic(path.join(folder, MANIFEST), stableJson({ ...checkpoint, sha256: digestOf(checkpoint) }));
}

/**
 * The manifest in a folder, checked: its digest, and that the boxes of each tensor make up the whole.
 * @throws AutoparError (input) `no-checkpoint`, `bad-checkpoint`, `newer-checkpoint`
 */
export async function readManifest(folder: string): Promise<Checkpoint> {
  const file = await ownFile(folder, MANIFEST);
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    const reason = error.code === 'ENOENT' ? 'does not exist' : `cannot be read (${error.code ?? error.message})`;
    throw new AutoparError('no-checkpoint', 'input', `${file} ${reason}`, { file }, 'name a folder checkpoints/step-N');
  });
  const value = parsed(text, file);
  const { version } = value;
  if (typeof version === 'number' && version > CHECKPOINT_VERSION)
    throw new AutoparError(
      'newer-checkpoint',
      'input',
      `${file} has version ${version}; this autopar reads up to ${CHECKPOINT_VERSION}`,
      { file },
      'update autopar',
    );
  const { sha256, ...rest } = value;
  const validate = checkpointCheck();
  if (!validate(rest)) {
    const [first] = validate.errors ?? [];
    throw badCheckpoint(file, `${file}: ${first?.instancePath || 'the whole'} ${first?.message ?? 'is malformed'}`);
  }
  if (digestOf(rest) !== sha256) throw badCheckpoint(file, `${file} was edited or damaged: its digest differs`);
  for (const [name, tensor] of Object.entries(rest.tensors)) {
    const flaw = flawOf(tensor);
    if (flaw !== null) throw badCheckpoint(file, `the boxes of tensor ${name} ${flaw}`, name);
  }
  return rest;
}

/** A file of a checkpoint that is not as it was written. */
export function badCheckpoint(file: string, message: string, tensor?: string): AutoparError {
  return new AutoparError(
    'bad-checkpoint',
    'input',
    message,
    { file, ...(tensor === undefined ? {} : { tensor }) },
    'resume from another checkpoint: --resume DIR/checkpoints/step-N',
  );
}

function digestOf(checkpoint: object): string {
  return createHash('sha256').update(stableJson(checkpoint)).digest('hex');
}

function parsed(text: string, file: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null) return value as Readonly<Record<string, unknown>>;
  } catch {
    // Falls through to the one message for a truncated file.
  }
  throw badCheckpoint(file, `${file} is not a JSON object, or is truncated`);
}

/** Bounds the pairs that are looked at. */
const MOST_BOXES = 4096;

/** Why the boxes do not make up the tensor; null where they do. */
function flawOf({ dtype, shape, boxes }: StoredTensor): string | null {
  if (boxes.length > MOST_BOXES) return `are ${boxes.length}, more than ${MOST_BOXES}`;
  let elements = 0;
  for (const [index, box] of boxes.entries()) {
    const { offset, size } = box;
    const isInside = shape.every((whole, axis) => (offset[axis] ?? 0) + (size[axis] ?? 0) <= whole);
    if (offset.length !== shape.length || size.length !== shape.length || !isInside)
      return `do not fit its shape [${shape.join(', ')}]`;
    elements += elementCount(size);
    if (boxes.slice(0, index).some((other) => sharedBox(other, box))) return 'overlap';
  }
  const whole = elementCount(shape);
  if (elements !== whole || !Number.isSafeInteger(byteLength(dtype, whole)))
    return `have ${elements} of its ${whole} elements`;
  return null;
}

const text = { type: 'string' };
const count = { type: 'integer', minimum: 0 };
const counts = { type: 'array', items: count };

const checkpointCheck = schemaCheck<Checkpoint>(
  record({
    format: { const: 'autopar-checkpoint' },
    version: { const: CHECKPOINT_VERSION },
    step: count,
    run: record(
      {
        model: text,
        fingerprint: text,
        interface: { type: 'array', items: text },
        microBatches: count,
        training: { type: 'object' },
      },
      { passes: { type: 'array' } },
    ),
    state: { type: 'object' },
    tensors: {
      type: 'object',
      additionalProperties: record({
        dtype: { enum: ['float16', 'bfloat16', 'float32', 'float64', 'int32', 'int64', 'bool'] satisfies DType[] },
        shape: counts,
        boxes: { type: 'array', items: record({ file: text, offset: counts, size: counts, sha256: text }) },
      }),
    },
  }),
);

function record(required: Readonly<Record<string, object>>, optional: Readonly<Record<string, object>> = {}): object {
  const properties = { ...required, ...optional };
  return { type: 'object', properties, required: Object.keys(required), additionalProperties: false };
}
