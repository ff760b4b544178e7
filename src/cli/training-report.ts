/**
 * @file The output of `autopar inspect --train`: trained parameters, their groups and state, and the memory of all of them.
 */
import type { Inspection } from '../api/index.js';
import { bytesText, countText, integerText } from './quantity.js';
import { numberColumns, printable, tableLines, textColumns } from './table.js';

type InspectedTraining = NonNullable<Inspection['training']>;

/** Rows of the table that are shown by default. */
const SHOWN = 10;

/** Lines of the section. */
export function trainingLines(training: InspectedTraining, all: boolean): readonly string[] {
  const rows = [...training.parameters].sort((a, b) => (all ? 0 : b.elements - a.elements));
  const shown = all ? rows : rows.slice(0, SHOWN);
  const more = rows.length - shown.length;
  return [
    ...factLines(training),
    '',
    ...tableLines(
      [...textColumns('trained', 'shape', 'decay'), ...numberColumns('weight', 'copies', 'gradient', 'state')],
      [
        ...shown.map((row) => [row.name, `[${row.shape.join(', ')}]`, row.decays ? 'yes' : 'no', ...bytesOf(row)]),
        ['all', '', '', ...bytesOf(training.total)],
      ],
      36,
    ),
    ...(more > 0 ? [`  and ${integerText(more)} more (--parameters lists them)`] : []),
  ];
}

function factLines(training: InspectedTraining): readonly string[] {
  const { loss, labels, optimizer, precision, weightDecay, groups, scalars, statistics, total, operators } = training;
  const whole = Object.values(total).reduce((sum, bytes) => sum + bytes, 0);
  const groupText = groups
    .filter(({ count }) => count > 0)
    .map(({ decays, count, elements }) => {
      const rate = decays && weightDecay > 0 ? `decays by ${weightDecay}` : 'no decay';
      return `${integerText(elements)} in ${countText(count, 'parameter')} (${rate})`;
    });
  const facts = [
    ['loss', labels === null ? `${loss}, the model's own` : `${loss}, of an input ${labels}`],
    ['optimizer', `${optimizer}, ${precision}`],
    ['groups', groupText.join('; ')],
    ['takes', `${bytesText(whole)} on a device that holds all of it; scalars: ${scalars.join(', ')}`],
    ...(statistics.length > 0
      ? [['statistics', `${integerText(statistics.length)} that run along with the steps`]]
      : []),
    ['graph', `${countText(operators.forward, 'operator')} forward, ${integerText(operators.step)} in a step`],
  ];
  return facts.map(([name = '', text = '']) => `  ${name.padEnd(10)}  ${printable(text)}`);
}

function bytesOf(row: InspectedTraining['total']): readonly string[] {
  return [row.weightBytes, row.copyBytes, row.gradientBytes, row.stateBytes].map((bytes) =>
    bytes === 0 ? '–' : bytesText(bytes),
  );
}
