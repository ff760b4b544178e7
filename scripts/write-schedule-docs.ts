/**
 * @file `npm run docs:schedules`: writes docs/reference/schedules.md from the schedules themselves, drawn, checked and simulated.
 */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { drawSchedule } from '../src/schedule/draw.js';
import { inFlight } from '../src/schedule/in-flight.js';
import { makeSchedule } from '../src/schedule/make-schedule.js';
import { type Schedule, type ScheduleKind, UNIT_SECONDS } from '../src/schedule/schedule.js';
import { type Durations, simulate } from '../src/schedule/simulate.js';
import { placeSchedule, rendezvousSeconds } from './linear-order.js';

/** Path of the page, from the repository root. */
export const SCHEDULE_DOCS = 'docs/reference/schedules.md';

const UNITS: Durations = { compute: (_stage, _chunk, phase) => UNIT_SECONDS[phase] };

const STAGES = 4;
const MICRO_BATCHES = 8;

const INTRODUCTION = `# Schedules

Written by \`npm run docs:schedules\` from \`src/schedule/\`; a test checks that it is current.

A pipeline cuts a model into stages by layers and a batch into micro-batches. Its *schedule* is the order in which each stage
runs its *actions*: one phase (forward, backward) of one micro-batch through one chunk. \
Below, ${STAGES} stages run ${MICRO_BATCHES} micro-batches. A
column is one unit of time; a forward takes one, a backward two, as its gradients of input and of weights take one each. \`F1\`
is the forward of the first micro-batch, \`B1\` its backward, \`-\` goes on, and \`.\` is idle: the *bubble*.

With p stages, m micro-batches, v chunks per stage, F, b and w the seconds of a stage's forward \
and gradients of input and weights,
and B = b + w, stages alike:

| schedule | seconds of a step | stage i holds at most | needs |
|---|---|---|---|
| naive | m·p·(F + B) | 1 | |
| f-then-b | (m + p − 1)(F + B) | m | |
| 1f1b | (m + p − 1)(F + B) | min(p − i, m) | |
| interleaved-1f1b | m(F + B) + (p − 1)(F + B)/v | min(p·v + p − 1 − 2i, m·v)/v | v ≥ 2, m a multiple of p |
| zero-bubble | m(F + B) + (p − 1)(F + b − min(F, b, w)) where m ≥ p | min(p, m) | |
| interleaved-zero-bubble | simulated; a v-th of zero-bubble's bubble where F = b = w | min(p·v + p − 1, m·v)/v | \
v ≥ 2, m a multiple of p |
| zbv | simulated | min(p, m) | v = 2 |

A stage holds a micro-batch from its forward to the last phase that reads what the forward saved; \
with several chunks each counts 1/v.
Gradients of a chunk's weights are added up in ascending order of micro-batches under every schedule, so that schedules which cut
the model alike give the same bits.
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
  {
    kind: 'interleaved-zero-bubble',
    chunks: 2,
    says: `Interleaved 1F1B with the backward split. Forwards and gradients of inputs keep their order; a gradient of weights runs
where the stage would wait, and where it holds as much as interleaved 1F1B's first stage, so that it holds no more:`,
  },
  {
    kind: 'zbv',
    chunks: 2,
    says: `Two chunks a stage in the shape of a V (ZB-V, Qi et al. 2023): \
part k of the model on stage k, then back, so that stage s has parts
s and 2p − 1 − s. Stage 0 has the first and the last part: embedding and head, which may share their table, and the loss. \
Made in units of
time: at each a stage runs the first that it can of gradients of inputs, forwards of its second chunk, forwards of its first
and gradients of weights. It holds p micro-batches at most, as 1F1B's first stage does:`,
  },
];

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
    return `| ${kind} | ${units} | ${percent(timeline.bubble)} | ${held.join(', ')} |`;
  });
  return [INTRODUCTION, ...sections, comparison(rows), TRANSFERS, DRAWN, ASYNCHRONOUS, CHECKS].join('\n');
}

function comparison(rows: readonly string[]): string {
  return `## Compared

*Held* is the most micro-batches whose activations each stage holds at once.

| schedule | time | bubble | held |
|---|---|---|---|
${rows.join('\n')}
`;
}

const INTERLEAVED_EXTRA = extraOf(
  makeSchedule({ kind: 'interleaved-1f1b', stages: 8, microBatches: 16, virtualStages: 2 }),
);

const TRANSFERS = `## Transfers

A program holds one order of all that a stage does in a step: what it computes, and each send and receive as an action of its
own. That order is made once, when the program is written, and no runtime has another.

All stages' orders are parts of one linear order of the step: what is computed stands at its simulated start, and a transfer
between the action that makes what it carries and the first that reads it, at the first time when both its stages are between
two actions (else directly behind the first). Transfers of once a step (parts of the gradients of a weight that several stages
read, the sums of gradient clipping) keep the order in which the whole model's graph makes them. So the
stages finish even if every transfer is a rendezvous, where a send waits for its receiver and nothing is held in between: the
events can happen one at a time in the linear order, and none of them waits for a later one. That is what can be relied upon. \
Operations
of one NCCL communicator run one after another, and a send may block until its receiver is there; MPI promises no buffer
either. The bundled runtime's sends do not wait. Interleaved 1F1B with 8 stages, \
16 micro-batches and 2 chunks takes ${INTERLEAVED_EXTRA} more
time without buffers than with them.

Every program is checked for it when it is written and when it is read: its stages' lists run under rendezvous, and where
they would wait for one another for ever the program is refused with \`bad-program\`, \
and with the stages and the instructions that wait.

A value goes from the stage that makes it to each stage that reads it, however many stages lie between, and is held there from
its place in the order until its last reader.
`;

const DRAWN = `## Drawn by PyTorch

The program of a pipeline has \`schedule.csv\` beside program.json: a row per stage in the action grammar of
\`torch.distributed.pipelining\`. \`3F0\` is the forward of micro-batch 0 through part 3 of the model (there called stage 3), \
\`3B0\` its
backward, \`3I0\` and \`3W0\` the halves of one that is split, \`3SEND_F0\` and \`4RECV_F0\` the two ends of a transfer. \
The grammar
knows transfers between neighbouring parts only: those of skip connections and of what several stages read, and what is
exchanged once a step, are in program.json and not in this file. PyTorch's own check
and simulation accept it where each part reads something of the one before; its visualiser draws it:

    import csv
    from torch.distributed.pipelining import _schedule_visualizer as visualizer
    from torch.distributed.pipelining.schedules import _Action

    rows = [[_Action.from_str(cell) for cell in row] for row in csv.reader(open('gpt.autopar/program/schedule.csv'))]
    computed = [[action for action in row if action.is_compute_op] for row in rows]
    visualizer.visualize_schedule(visualizer.add_schedule_op_spacing(computed), 'schedule.png')
`;

const ASYNCHRONOUS = `## Without a flush

All schedules here end every step: the last gradient has been added up before any weight changes, \
so that a pipeline trains exactly
as one device does. Asynchronous PipeDream (Narayanan et al. 2019) has no such end. \
Each micro-batch's gradients change the weights
at once and the next micro-batches go on, so that there is no bubble after the first ones. It would change:

- *results*: stage i computes with weights that are p − 1 − i updates old. Losses are no longer those of the unsharded model, and
  nothing is left to verify a program against; learning rates are to be tuned again.
- *memory*: a backward needs the weights that its forward read, so that stage i keeps p − i versions of them (2 in PipeDream-2BW,
  at a delay of one update on all stages).
- *the program*: an update in every micro-batch in place of one list per step, weights that belong to a version. \
Clipping by the norm
  of all gradients and a loss scale that skips a step would hold up every stage: both need all stages' gradients of one update.

It is not executed: what a program computes is what the model computes, and zero-bubble schedules leave little bubble to win.
`;

const CHECKS = `## Checks and simulation

\`test/schedule/schedule-problems.ts\` finds, for any schedule, actions that are absent, doubled or out of order, and stages that
wait for one another in a cycle; \`src/schedule/in-flight.ts\` says how much each stage holds, and
\`src/schedule/simulate.ts\` when each action
starts and ends, given how long each stage, chunk and phase takes and how long results travel: stages may differ, and it takes
less than a tenth of a second for 64 stages, 512 micro-batches and 4 chunks. \
The formulas above (\`src/schedule/closed-form.ts\`) agree
with it wherever stages are alike and results travel in no time. A search gives the two schedules without one the share of the
waiting that zero-bubble has, and simulates the best.

\`npm run bench:emulated\` compiles a layer per part and runs it on emulated ranks, \
which wait for the predicted time of each phase. Seconds
are those of the ranks' own clocks: each step begins at zero, and messages carry the moment at which they leave, so a busy machine
changes no figure. Share of a step in which a rank has nothing to do, on emulated ranks (the formula):

| schedule | stages p, micro-batches m, chunks v: bubble |
|---|---|
| 1F1B, m = p | p 2: 33.34 % (33.33), 3: 40.01 (40.00), 4: 42.86 (42.86), 5: 44.45 (44.44), 6: 45.46 (45.45), 7: 46.16 (46.15), \
8: 46.67 (46.67) |
| 1F1B, m = 2p | p 2: 20.01 % (20.00), 3: 25.01 (25.00), 4: 27.28 (27.27), 5: 28.58 (28.57), 6: 29.42 (29.41), \
7: 30.01 (30.00), 8: 30.45 (30.43) |
| p 2 | naive, m 4: 50.00 % (50.00); F-then-B, m 8: 11.11 (11.11); interleaved 1F1B, m 8, v 2: 5.91 (5.88); \
zero-bubble, m 8: 4.01 (4.00) |
| p 4 | naive, m 4: 75.00 % (75.00); F-then-B, m 8: 27.28 (27.27); interleaved 1F1B, m 8, v 2: 15.83 (15.79); \
zero-bubble, m 8: 11.13 (11.11) |
| p 8 | naive, m 4: 87.50 % (87.50); F-then-B, m 8: 46.67 (46.67); interleaved 1F1B, m 8, v 2: 30.49 (30.43); \
zero-bubble, m 8: 22.60 (22.58) |

Refused with \`bad-schedule\`: interleaving micro-batches that are not a multiple of the stages, \
virtual stages in a schedule that has
none, one virtual stage in one that interleaves, any number but 2 in ZB-V.

The planner chooses among 1F1B, interleaved 1F1B and zero-bubble; with \`--schedule\` it searches degrees, chunks and cuts for
any of the seven. GPT-175B on 1,024 A100 takes 17.4 s as planned and 18.1 s with interleaved zero-bubble:

    autopar plan --model gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=51200,batch=1536 --cluster 128x8:a100-sxm-80 \\
        --train --precision bf16 --prefer fastest --headroom 0 --schedule interleaved-zero-bubble
`;

/** Share of additional time that a schedule takes if transfers block. */
function extraOf(schedule: Schedule): string {
  const { makespan } = simulate(schedule, UNITS);
  const blocking = rendezvousSeconds(placeSchedule(schedule), ({ phase }) => UNIT_SECONDS[phase]);
  return percent(blocking / makespan - 1);
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
  writeFileSync(join(root, SCHEDULE_DOCS), scheduleDocs());
  console.log(`${SCHEDULE_DOCS}: ${KINDS.length} schedules`);
}
