/**
 * @file Multi-token prediction in training (Gloeckle et al. 2024; sequential, as in DeepSeek-AI 2024): each token beyond the next
 * adds a projection of state and embedding, one more layer of attention and one of experts, and the head once more.
 */
import type { LanguageModelSizes } from '../../models/language-sizes.js';
import { layerKinds } from '../../models/layer-kinds.js';
import type { MatmulWork, ModelWork, PartWork } from '../../src/cost-model/step/work.js';

/**
 * A model's work with so many additional predictions. In published runs their layers share parameters; here each counts its own,
 * which is one layer of some fifty too many.
 */
export function withPredictions(
  work: ModelWork,
  sizes: LanguageModelSizes,
  tp: number,
  predictions: number,
): ModelWork {
  if (predictions === 0) return work;
  const kinds = layerKinds(sizes);
  const order = work.order ?? work.layers.flatMap(({ count }, index) => new Array<number>(count).fill(index));
  return {
    ...work,
    layers: work.layers.map(({ part, count }, index) => ({
      part,
      count: count + (ADDED.has(kinds[order.indexOf(index)]?.join(' ') ?? '') ? predictions : 0),
    })),
    last: repeated(work.last, joined(sizes, tp), predictions),
  };
}

/** Kinds of layers that a prediction adds. */
const ADDED: ReadonlySet<string> = new Set(['attention', 'experts', 'attention experts']);

/** The head once more for each prediction, each time with the projection before its layers. */
function repeated(last: PartWork, projection: Pick<PartWork, 'forward' | 'backward'>, predictions: number): PartWork {
  const times = (phase: 'forward' | 'backward') => [
    ...last[phase],
    ...Array.from({ length: predictions }, () => [...last[phase], ...projection[phase]]).flat(),
  ];
  return {
    ...last,
    forward: times('forward'),
    backward: times('backward'),
    saved: last.saved * (1 + predictions),
    savedRepeated: last.savedRepeated * (1 + predictions),
  };
}

/** The projection of state and embedding, together twice the width, to the width. */
function joined({ batch, sequence, hidden }: LanguageModelSizes, tp: number): Pick<PartWork, 'forward' | 'backward'> {
  const [rows, columns] = [batch * sequence, hidden / tp];
  const product = { kind: 'matmul', batch: 1, experts: false } as const;
  const forward: MatmulWork = { ...product, rows, depth: 2 * hidden, columns, tokens: 'rows' };
  return {
    forward: [forward],
    backward: [
      { ...product, rows, depth: columns, columns: 2 * hidden, tokens: 'rows' },
      { ...product, rows: 2 * hidden, depth: rows, columns, tokens: 'depth' },
    ],
  };
}
