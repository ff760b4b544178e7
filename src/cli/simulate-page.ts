/** @file `--report` of `simulate`: the pipeline, its time and memory. */

import type { Page, Simulation } from '../api/index.js';
import {
  type ChoiceRow,
  choicesSection,
  memoryPicture,
  overTimeSection,
  partsSection,
  timelineSection,
} from './plan-page.js';
import { bytesText } from './quantity.js';
import { numberColumns } from './table.js';

/** The kinds of a stage's memory. */
const KINDS = ['parameters', 'gradients', 'optimizer', 'activations', 'temporaries', 'overhead'] as const;

/** @param facts names with their values, as the command prints them */
export function simulationPage(
  simulation: Simulation,
  facts: Page['facts'],
  choices: readonly ChoiceRow[],
  json: unknown,
): Page {
  const { name, parts, stages, memoryBytes, spans, memoryOverTime } = simulation;
  const curves = memoryOverTime();
  const kindsOf = (own: (typeof stages)[number]) => Object.fromEntries(KINDS.map((kind) => [kind, own[kind]]));
  return {
    title: `${name}: ${simulation.configuration.inference ? 'inference' : 'a training step'}`,
    facts,
    sections: [
      timelineSection(
        'The pipeline of a step, predicted',
        stages.map(({ stage }) => `stage ${stage}`),
        spans(),
      ),
      partsSection({ ...parts }),
      overTimeSection(
        stages.map((own, stage) => ({
          name: `stage ${own.stage}`,
          points: curves[stage] ?? [],
          kinds: kindsOf(own),
          operator: null,
        })),
      ),
      {
        heading: 'Memory of a device',
        ...memoryPicture(
          stages.map((own) => ({
            stage: own.stage,
            kinds: kindsOf(own),
          })),
        ),
        table: {
          columns: numberColumns('stage', ...KINDS, 'total'),
          rows: stages.map((own) => [
            String(own.stage),
            ...KINDS.map((kind) => bytesText(own[kind])),
            bytesText(own.total),
          ]),
        },
      },
      ...choicesSection(choices, memoryBytes),
    ],
    json,
  };
}
