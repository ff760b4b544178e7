/**
 * @file docs/pictures/pipeline.svg: a step of Llama-3-8B in a pipeline of four stages as `simulate` predicts it, drawn by the
 * chart of `--report`.
 */
import { simulate } from '../src/api/index.js';
import { svgOf } from '../src/pictures/picture.js';

export const PIPELINE_PICTURE = 'docs/pictures/pipeline.svg';

export async function pipelinePicture(): Promise<string> {
  const { stages, spans } = await simulate({
    generate: 'llama:layers=32,kv_heads=8,ffn=14336,vocab=128256,seq=8192',
    cluster: '1x8:h100-sxm-80',
    loss: { kind: 'cross_entropy' },
    ...{ pp: 4, tp: 2, globalBatch: 8, microBatch: 1, tpSequence: 'on', zero: 1, schedule: '1f1b' },
  });
  const lines = stages.map(({ stage }) => `stage ${stage}`);
  // Sends, on lines of their own, are too short to be seen.
  const shown = spans().filter(({ line }) => line < lines.length);
  return `${await svgOf({ kind: 'timeline', lines, spans: shown }, { width: 860, height: 230 })}\n`;
}
