/** @file Strategies of operators and the reasons for them, in words: for `explain --op` and for the operators of a report. */
import type { Alternative, AxisChain, ExplainedStrategy, OperatorReason, TensorExplanation } from '../api/index.js';
import { secondsText } from './quantity.js';

/** A text that names axes, for people (`axesInWords`). */
export type InWords = (text: string) => string;

export function strategyText({ axes, pieces, partial, reduction }: ExplainedStrategy, inWords: InWords): string {
  const placed = Object.entries(axes).map(([factor, list]) => `${factor}: ${inWords(list.join(','))}`);
  const parts = [
    placed.length === 0 ? 'replicated' : placed.join(', '),
    ...Object.entries(pieces).map(([factor, sizes]) => `${factor} as ${sizes.join(' · ')}`),
    ...(partial.length > 0 ? [`partial operands over ${inWords(partial.join(','))}`] : []),
    ...(reduction === 'none' ? [] : [reduction]),
  ];
  return parts.join('; ');
}

/** `+12 µs`: how much longer than the plan's own strategy. */
export function differenceText({ differenceSeconds }: Alternative): string {
  return `${differenceSeconds < 0 ? '−' : '+'}${secondsText(Math.abs(differenceSeconds))}`;
}

/** `pins[0]: layout [-, tp] on w (pins.yaml:3): why`. */
export function pinText({ text, file, line, why }: TensorExplanation['pins'][number]): string {
  const place = [file, line].filter((part) => part !== null).join(':');
  return `${text}${place ? ` (${place})` : ''}${why ? `: ${why}` : ''}`;
}

/**
 * @param count of the operators that the reason is about some of
 * @param command that explains one of them
 */
export function reasonText(reason: OperatorReason, count: number, command: string, inWords: InWords): string {
  switch (reason.by) {
    case 'recompute':
      return `recomputes ${reason.operator}`;
    case 'pins': {
      const which = reason.operators < count ? `pinned in ${reason.operators} of ${count}` : 'pinned';
      return `${which} by ${reason.pins.map(pinText).join(' and ')}`;
    }
    case 'propagation':
      return reason.chains.length === 0
        ? 'no axis propagates to it'
        : reason.chains.map((chain) => chainText(chain, inWords)).join('; ');
    case 'price':
      return priceText(reason, command, inWords);
  }
}

function priceText({ next }: Extract<OperatorReason, { by: 'price' }>, command: string, inWords: InWords): string {
  if (next === undefined) return `lowest cost; for the other strategies: ${command}`;
  if (next === null) return 'the only strategy considered';
  const at = next.differenceSeconds === 0 ? 'the same cost' : differenceText(next);
  return `lowest cost; next is ${strategyText(next.strategy, inWords)} at ${at}`;
}

/** The neighbour that an axis came from, and where it began: `factor k on tp: tensor x, dimension 1, from pins[0] …`. */
function chainText({ axes, place, steps }: AxisChain, inWords: InWords): string {
  const [, neighbour, ...further] = steps;
  const source = further.at(-1);
  const from = [neighbour, source].flatMap((step) => (step ? [step.says] : []));
  return `${place} on ${inWords(axes.join(','))}: ${from.join(', from ')}`;
}
