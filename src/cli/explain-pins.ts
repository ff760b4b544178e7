/**
 * @file `autopar explain --pins`: the cost of overriding each operator's sharding, and of existing pins.
 */
import type { AddedSeconds, DroppedPin, ExitKind, OperatorPinPrice, PinsExplanation } from '../api/index.js';
import { listedDegrees, withoutUndefined } from '../api/words.js';
import type { CommandContext } from './command.js';
import { bytesText, countText, secondsText } from './quantity.js';
import { numberColumns, tableLines, textColumns } from './table.js';

interface ExplainPinsFlags {
  readonly model?: string;
  readonly top: number;
}

export async function runExplainPins(
  { output, signal }: CommandContext,
  directory: string,
  { model, top }: ExplainPinsFlags,
): Promise<ExitKind> {
  const { explainPins } = await import('../api/index.js');
  const explained = await explainPins(directory, {
    top,
    signal,
    ...withoutUndefined({ model }),
    onProgress: (text) => output.progress(text),
  });
  for (const line of [...operatorLines(explained, top), ...pinLines(explained)]) output.print(line);
  const { pins, ...rest } = explained;
  // Programs get the exact names of axes.
  const operators = explained.operators.slice(0, top).map(({ shown: _, ...operator }) => operator);
  output.data({ schema: 'autopar-explain-v1', ...rest, operators, pins });
  return 'done';
}

function operatorLines(explained: PinsExplanation, top: number): string[] {
  const { stepSeconds, precision, memoryBytes, operators, without } = explained;
  const shown = operators.slice(0, top);
  const rest = operators.slice(top);
  const free = operators.filter((operator) => (priceOf(operator).seconds ?? Infinity) <= 0).length;
  const limit = memoryBytes === null ? '' : `, within ${bytesText(memoryBytes)} on each device`;
  return [
    `${secondsText(stepSeconds)} per step${precision === null ? '' : ` in ${precision}`}${limit}`,
    '',
    'operators whose override would cost most',
    ...tableLines(
      [
        ...textColumns('operator'),
        ...numberColumns('alike'),
        ...textColumns('now', 'cheapest override'),
        ...numberColumns('costs', 'on all alike'),
      ],
      shown.map(({ operator, alike, shown: { now, pin }, alone, together }) => [
        operator,
        alike.length > 1 ? String(alike.length) : '',
        now,
        pin,
        addedText(alone),
        together ? addedText(together) : '',
      ]),
    ),
    ...(rest.length > 0 ? [`  and ${countText(rest.length, 'other')} that cost no more to override (--top)`] : []),
    ...(free > 0 ? [`  ${free} have an override at no cost`] : []),
    ...(without > 0 ? [`  ${countText(without, 'other operator')} with only one placement`] : []),
  ];
}

function pinLines({ pins }: PinsExplanation): string[] {
  if (pins.length === 0) return [];
  return [
    '',
    'cost of existing pins',
    ...tableLines(
      [...textColumns('without'), ...numberColumns('saves'), ...textColumns('degrees')],
      pins.map(({ pin, file, line, savedSeconds, atMostSeconds, degrees }) => [
        pin === null ? 'any of them' : `${pin}${placeText({ file, line })}`,
        rangeText(savedSeconds, atMostSeconds),
        listedDegrees(degrees),
      ]),
      72,
    ),
  ];
}

function placeText({ file, line }: Pick<DroppedPin, 'file' | 'line'>): string {
  const place = [file, line].filter((part) => part !== null).join(':');
  return place === '' ? '' : ` (${place})`;
}

/** The reported price of an operator: of all equal operators together where that is known. */
function priceOf({ alone, together }: OperatorPinPrice): AddedSeconds {
  return together ?? alone;
}

/** `12 µs`, or what is proven: `12 to 15 µs`, `at least 12 µs`. */
function addedText({ seconds, atLeastSeconds }: AddedSeconds): string {
  return seconds === null ? `at least ${signedText(atLeastSeconds)}` : rangeText(atLeastSeconds, seconds);
}

function rangeText(least: number, most: number): string {
  // Costs are whole nanoseconds.
  return most - least < 5e-10 ? signedText(most) : `${signedText(least)} to ${signedText(most)}`;
}

function signedText(seconds: number): string {
  return `${seconds < 0 ? '−' : ''}${secondsText(Math.abs(seconds))}`;
}
