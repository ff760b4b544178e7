/**
 * @file Whether the files of a program's folder match program.json: segments by their content, weights by the
 * keys, dtypes and shapes of their headers. Read before anything runs; the values of weights are not compared with anything.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { ownFile } from './inside-folder.js';
import { shardCount, shardText, stageAxes } from './mesh.js';
import type { Program, ProgramSegment, ProgramWeight } from './program.js';
import { openSafetensors, type SafetensorsFile } from './safetensors.js';
import { AutoparError } from './values.js';

/**
 * Checks every file that the program in `folder` (the one of program.json) reads.
 * @throws AutoparError (exit input) `missing-segment`, `bad-segment`, `missing-weights`, `bad-weights`, `file-outside`,
 * `file-unreadable`
 */
export async function checkFiles(folder: string, program: Program): Promise<void> {
  const axes = stageAxes(program.mesh, program.stages.length);
  const segments = new Map<string, SegmentFile>();
  const weights = new Map<string, Map<string, ProgramWeight>>();
  for (const stage of program.stages) {
    for (const segment of Object.values(stage.segments).flatMap(filesOf))
      segments.set(`${segment.file} ${segment.sha256}`, segment);
    for (const weight of Object.values(stage.weights)) {
      const { file: pattern } = weight;
      if (pattern === null) continue;
      for (let shard = 0; shard < shardCount(axes, weight.axes); shard++) {
        const file = shardText(pattern, shard);
        const keys = weights.get(file) ?? new Map<string, ProgramWeight>();
        weights.set(file, keys.set(shardText(weight.key, shard), weight));
      }
    }
  }
  for (const segment of segments.values()) await checkSegment(folder, segment);
  for (const [name, keys] of weights) {
    const file = await ownFile(folder, name);
    const opened = await openSafetensors(file);
    try {
      for (const [key, weight] of keys) checkShard(file, opened, key, weight);
    } finally {
      await opened.close();
    }
  }
}

type SegmentFile = Pick<ProgramSegment, 'file' | 'sha256'>;

/** The models of a segment. */
export function filesOf({ file, sha256, plain }: ProgramSegment): readonly SegmentFile[] {
  return [{ file, sha256 }, ...(plain ? [plain] : [])];
}

async function checkSegment(folder: string, segment: SegmentFile): Promise<void> {
  const file = await ownFile(folder, segment.file);
  const model = await readFile(file).catch((error: NodeJS.ErrnoException) => {
    const reason = error.code === 'ENOENT' ? 'does not exist' : `cannot be read (${error.code ?? error.message})`;
    throw new AutoparError('missing-segment', 'input', `the segment ${file} ${reason}`, { file }, COMPILE_AGAIN);
  });
  const found = createHash('sha256').update(model).digest('hex');
  if (found === segment.sha256) return;
  const [own, stated] = [found, segment.sha256].map((digest) => `${digest.slice(0, 16)}…`);
  const message = `the segment ${file} has SHA-256 ${own}, not ${stated} as in program.json`;
  throw new AutoparError('bad-segment', 'input', message, { file }, COMPILE_AGAIN);
}

function checkShard(file: string, { entries }: SafetensorsFile, key: string, weight: ProgramWeight): void {
  const entry = entries.get(key);
  const found = entry ? `${entry.dtype} [${entry.shape.join(', ')}]` : 'nothing';
  const wanted = `${weight.dtype} [${weight.localShape.join(', ')}]`;
  if (found === wanted) return;
  const message = `the weights file ${file} holds ${key} as ${found}, but the program expects ${wanted}`;
  throw new AutoparError('bad-weights', 'input', message, { file, tensor: key }, COMPILE_AGAIN);
}

const COMPILE_AGAIN = 'compile the model again';
