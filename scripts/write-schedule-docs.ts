/**
 * @file `npm run docs:schedules`: writes docs/schedules.md from the schedules themselves, drawn, checked and simulated.
 */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inFlight } from '../src/schedule/check.js';
import { drawSchedule } from '../src/schedule/draw.js';
import { makeSchedule } from '../src/schedule/make-schedule.js';
import { placeSchedule, rendezvousSeconds } from '../src/schedule/place.js';
import { type Schedule, type ScheduleKind, UNIT_SECONDS } from '../src/schedule/schedule.js';
import { type Durations, simulate } from '../src/schedule/simulate.js';

/** Where the page lies, from the repository root. */
export const SCHEDULE_DOCS = 'docs/schedules.md';

const STAGES = 4;
const MICRO_BATCHES = 8;

const INTRODUCTION = `# Schedules

Written by \`npm run docs:schedules\` from \`src/schedule/\`; a test checks that it is current.

A pipeline cuts a model into stages by layers and a batch into micro-batches. Its *schedule* is the order in which each stage
runs its *actions*: one phase (forward, backward) of one micro-batch through one chunk. Below, ${STAGES} stages run ${MICRO_BATCHES} micro-batches. A
column is one unit of time; a forward takes one, a backward two, as its gradients of input and of weights take one each. \`F1\`
is the forward of the first micro-batch, \`B1\` its backward, \`-\` goes on, and \`.\` is idle: the *bubble*.
`;

const KINDS: readonly {
  readonly kind: ScheduleKind;
  readonly chunks: number;
  readonly says: string;
  readonly drawn?: number;
}[] = [
  {
    kind: 'naive',
    chunks: 1,
    says: `One micro-batch at a time through the whole pipeline: one stage computes, the others wait. m·p·(F + B); the first two
of the ${MICRO_BATCHES} micro-batches:`,
    drawn: 2,
  },
  {
    kind: 'f-then-b',
    chunks: 1,
    says: `All forwards, then all backwards (GPipe, Huang et al. 2019): (m + p − 1)(F + B), and the activations of all m
micro-batches are held at once.`,
  },
  {
    kind: '1f1b',
    chunks: 1,
    says: `A backward as soon as it can run (PipeDream-Flush, Narayanan et al. 2021). As fast as F-then-B, but stage i holds
min(p − i, m) micro-batches, however many there are.`,
  },
  {
    kind: 'interleaved-1f1b',
    chunks: 2,
    says: `Each stage holds v chunks of the model (Megatron-LM, Narayanan et al. 2021), chunk c of stage s being part c·p + s;
\`F1b\` is the first micro-batch in the second chunk, and a chunk takes 1/v of the time (here the columns are half units). The
bubble shrinks to (p − 1)(F + B)/v; results travel v times as often, and the first stage holds 1 + (p − 1)/(p·v) times what 1F1B
holds. Micro-batches must be a multiple of the stages.`,
  },
  {
    kind: 'zero-bubble',
    chunks: 1,
    says: `The backward is split (ZB-H1, Qi et al. 2023): the gradient of the input (\`b\`), which the stage before waits for, and
the gradient of the weights (\`w\`), which nobody waits for and which fills the bubble. With F, b and w alike a third of 1F1B's
bubble is left: (p − 1)(F + b − w). Every stage holds up to p micro-batches, as 1F1B's first one does.`,
  },
];

const UNITS: Durations = { compute: (_stage, _chunk, phase) => UNIT_SECONDS[phase] };

/** The page. */
export function scheduleDocs(): string {
  const made = KINDS.map((entry) => {
    const { kind, chunks } = entry;
    const schedule = makeSchedule({ kind, stages: STAGES, microBatches: MICRO_BATCHES, virtualStages: chunks });
    return { ...entry, schedule, timeline: simulate(schedule, UNITS) };
  });
  const sections = made.map(({ kind, says, schedule, drawn }) => {
    const shown = drawn ? makeSchedule({ ...schedule, microBatches: drawn }) : schedule;
    const drawing = drawSchedule(shown, simulate(shown, UNITS)).map((line) => `    ${line}`);
    return [`## ${kind}`, '', says, '', ...drawing, ''].join('\n');
  });
  const rows = made.map(({ kind, chunks, schedule, timeline }) => {
    const units = timeline.makespan / chunks;
    const held = inFlight(schedule).map((count) => count / chunks);
    const blocking = extraOf(schedule, timeline.makespan);
    return `| ${kind} | ${units} | ${percent(timeline.bubble)} | ${held.join(', ')} | ${blocking} |`;
  });
  return [INTRODUCTION, ...sections, comparison(rows), TRANSFERS, CHECKS].join('\n');
}

function comparison(rows: readonly string[]): string {
  return `## Compared

*Held* is the most micro-batches whose activations each stage holds at once. *Blocking* is how much longer the schedule takes
where every transfer blocks both of its stages until they meet.

| schedule | time | bubble | held | blocking |
|---|---|---|---|---|
${rows.join('\n')}
`;
}

const TRANSFERS = `## Transfers

A program holds one order of all that a stage does in a step: what it computes, and each send and receive as an action of its
own. That order is made once, when the program is written, and no runtime has another.

All stages' orders are parts of one linear order of the step: what is computed stands at its simulated start, and a transfer directly
behind the action that makes what it carries, on both its stages. What is exchanged once a step (parts of the gradients of a weight
that several stages read, the sums of gradient clipping) keeps the order in which the whole model's graph makes it. So the
stages finish even if every transfer is a rendezvous, where a send waits for its receiver and nothing is held in between: the
events can happen one at a time in the linear order, and none of them waits for a later one. That is what can be relied upon. Operations
of one NCCL communicator run one after another, and a send may block until its receiver is there; MPI promises no buffer
either. The bundled runtime's sends do not wait.

Every program is checked for it when it is written and when it is read: its stages' lists run under rendezvous, and where
they would wait for one another for ever the program is refused with \`bad-program\`, and with the stages and the instructions that wait.

A value goes from the stage that makes it to each stage that reads it, however many stages lie between, and is held there from
its place in the order until its last reader.
`;

const CHECKS = `## Checks and simulation

\`src/schedule/check.ts\` finds, for any schedule, actions that are absent, doubled or out of order, stages that wait for one
another in a circle, and how much each stage holds. \`src/schedule/simulate.ts\` says when each action
starts and ends, given how long each stage, chunk and phase takes and how long results travel: stages may differ, and it takes
less than a tenth of a second for 64 stages, 512 micro-batches and 4 chunks. The formulas above (\`src/schedule/closed-form.ts\`) agree
with it wherever stages are alike and results travel in no time.

Refused with \`bad-schedule\`: interleaving micro-batches that are no multiple of the stages, virtual stages in a schedule that has
none, one virtual stage in interleaved 1F1B.

`;

/** Share of time that a schedule takes more where transfers block. */
function extraOf(schedule: Schedule, makespan: number): string {
  const blocking = rendezvousSeconds(placeSchedule(schedule), ({ phase }) => UNIT_SECONDS[phase]);
  return `+${percent(blocking / makespan - 1)}`;
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
  writeFileSync(join(root, SCHEDULE_DOCS), scheduleDocs());
  console.log(`${SCHEDULE_DOCS}: ${KINDS.length} schedules`);
}
