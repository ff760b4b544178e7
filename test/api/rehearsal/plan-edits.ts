/**
 * @file Ways in which plan.json can be wrong, each an edit of one thing: edits of every operator, layout, resharding and step, of
 * stages, layers, schedule, mesh and training.
 */
import type { Plan } from '../../../src/strategy/plan.js';

/** One edit. */
export interface PlanEdit {
  readonly kind: string;
  readonly where: string;
  /** Changes the record in place. */
  readonly edit: (plan: Editable<Plan>) => void;
}

/** A record that edits may change. */
export type Editable<T> = T extends object ? { -readonly [Key in keyof T]: Editable<T[Key]> } : T;

type Operator = Editable<Plan['operators'][string]>;
type View = Editable<Plan['redistributions'][string][number]>;

/** Every edit of a plan. */
export function* editsOf(plan: Plan): Generator<PlanEdit> {
  const axes = [...new Set(JSON.stringify(plan.operators).match(/"(dp|sp|tp)(\.\d+)?"/g))].map((text) =>
    text.slice(1, -1),
  );
  for (const name of Object.keys(plan.operators)) yield* ofOperator(plan, name, axes);
  for (const name of Object.keys(plan.tensors)) yield* ofTensor(plan, name);
  for (const name of Object.keys(plan.redistributions)) yield* ofRedistribution(plan, name);
  yield* ofStages(plan);
  yield* ofStep(plan);
}

function* ofOperator(plan: Plan, name: string, axes: readonly string[]): Generator<PlanEdit> {
  const own = plan.operators[name] as Plan['operators'][string];
  const made = (kind: string, where: string, edit: (operator: Operator) => void): PlanEdit => ({
    kind,
    where: `${name} ${where}`,
    edit: ({ operators }) => edit(operators[name] as Operator),
  });
  const free = axes.filter((axis) => !JSON.stringify([own.strategy, own.partial]).includes(`"${axis}"`));
  for (const [factor, on] of Object.entries(own.strategy)) {
    const [first] = on;
    if (first === undefined) continue;
    yield made('a factor dropped', factor, ({ strategy }) => delete strategy[factor]);
    yield made('an axis doubled', factor, ({ strategy }) => strategy[factor]?.push(first));
    if (on.length > 1) yield made('an axis dropped', factor, ({ strategy }) => strategy[factor]?.pop());
    if (on.length > 1) yield made('axes in another order', factor, ({ strategy }) => strategy[factor]?.reverse());
    for (const axis of free) yield made('another axis', factor, ({ strategy }) => strategy[factor]?.splice(0, 1, axis));
  }
  if (own.reduction) {
    yield made('a reduction dropped', '', (operator) => delete operator.reduction);
    const other = own.reduction.kind === 'all-reduce' ? 'scatter' : 'all-reduce';
    yield made('a reduction of another kind', '', (operator) => {
      operator.reduction = other === 'scatter' ? { kind: other, factor: 'm' } : { kind: other };
    });
  } else
    yield made('a reduction added', '', (operator) => {
      operator.reduction = { kind: 'all-reduce' };
    });
  if (own.partial) {
    yield made('partial operands said to be whole', '', (operator) => delete operator.partial);
    yield made('fewer axes of partial operands', '', ({ partial }) => partial?.axes.pop());
    yield made('partial operands of another set', '', (operator) => {
      operator.partial = { axes: [...(operator.partial?.axes ?? [])], set: (operator.partial?.set ?? 0) + 1 };
    });
    for (const axis of free)
      yield made('partial operands over another axis', axis, ({ partial }) => partial?.axes.splice(0, 1, axis));
  } else
    for (const axis of free)
      yield made('operands said to be partial', axis, (operator) => {
        operator.partial = { set: 0, axes: [axis] };
      });
  for (const factor of Object.keys(own.pieces ?? {}))
    yield made('pieces in another order', factor, ({ pieces }) => pieces?.[factor]?.reverse());
  if (own.pieces) yield made('pieces dropped', '', (operator) => delete operator.pieces);
  for (let stage = 0; stage < plan.degrees.pp; stage++)
    if (stage !== own.stage)
      yield made('an operator on another stage', `${stage}`, (operator) => {
        operator.stage = stage;
      });
  yield made('an operator in another chunk', '', (operator) => {
    operator.chunk = (own.chunk ?? 0) + 1;
  });
  yield made('recompute turned over', '', (operator) => {
    operator.recompute = !own.recompute;
  });
  yield made('an operator on the host', '', (operator) => {
    operator.place = 'host';
  });
  yield { kind: 'an operator dropped', where: name, edit: ({ operators }) => delete operators[name] };
}

function* ofTensor(plan: Plan, name: string): Generator<PlanEdit> {
  const text = plan.tensors[name] as string;
  const made = (kind: string, other: string): PlanEdit => ({
    kind,
    where: `${name} ${other}`,
    edit: ({ tensors }) => {
      tensors[name] = other;
    },
  });
  yield { kind: 'a layout dropped', where: name, edit: ({ tensors }) => delete tensors[name] };
  if (text.includes('partial')) {
    yield made('a partial sum said to be whole', text.replace(/ \+ partial.*/, ''));
    yield made('a partial sum said to be a maximum', text.replace(/partial\(([^)]*)\)/, 'partial($1: max)'));
  } else yield made('a whole value said to be partial', `${text} + partial(tp)`);
  for (const [axis, other] of otherAxes(text)) yield made('a layout over another axis', text.replace(axis, other));
}

function* ofRedistribution(plan: Plan, name: string): Generator<PlanEdit> {
  yield {
    kind: 'a redistribution dropped',
    where: name,
    edit: ({ redistributions }) => delete redistributions[name],
  };
  for (const [index, own] of (plan.redistributions[name] ?? []).entries()) {
    const made = (kind: string, where: string, edit: (view: View) => void): PlanEdit => ({
      kind,
      where: `${name} ${where}`,
      edit: ({ redistributions }) => edit(redistributions[name]?.[index] as View),
    });
    yield made('readers dropped', '', (view) => view.readers.pop());
    yield made('a reader doubled', '', (view) => view.readers.push(own.readers[0] ?? ''));
    for (const [axis, other] of otherAxes(own.layout))
      yield made('a redistribution to another layout', `${axis} ${other}`, (view) => {
        view.layout = own.layout.replace(axis, other);
      });
    yield made('a redistribution to a partial layout, or from one left so', '', (view) => {
      view.layout = own.layout.includes('partial')
        ? own.layout.replace(/ \+ partial.*/, '')
        : `${own.layout} + partial(tp)`;
    });
    for (const [at, step] of own.steps.entries()) {
      const [, kind = '', over = ''] = /^([a-z-]+)\((.*)\)$/.exec(step) ?? [];
      const becomes = (text: string) => (view: View) => view.steps.splice(at, 1, text);
      yield made('a step dropped', step, (view) => view.steps.splice(at, 1));
      yield made('a step doubled', step, (view) => view.steps.splice(at, 0, step));
      yield made('a step over no axes', step, becomes(`${kind}()`));
      for (const axis of AXES)
        if (!over.includes(axis)) yield made('a step over another axis', step, becomes(`${kind}(${axis})`));
      for (const other of STEPS)
        if (other !== kind) yield made('a step of another kind', step, becomes(`${other}(${over})`));
    }
    yield made('a step added', '', (view) => view.steps.push('all-reduce(tp)'));
  }
}

const AXES = ['dp', 'sp', 'tp'];
const STEPS = ['all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all', 'slice'];

/** Replacements of each axis in a layout: the axis, and another one or `-`. */
function* otherAxes(text: string): Generator<readonly [string, string]> {
  for (const axis of AXES)
    if (text.includes(axis)) for (const other of [...AXES, '-']) if (other !== axis) yield [axis, other];
}

function* ofStages(plan: Plan): Generator<PlanEdit> {
  const { pp } = plan.degrees;
  for (const [index, { instances }] of plan.layerClasses.entries())
    for (const layer of instances.keys()) {
      const where = `${index} ${layer}`;
      const made = (kind: string, edit: (own: Editable<Plan['layerClasses'][number]>) => void): PlanEdit => ({
        kind,
        where,
        edit: ({ layerClasses }) => edit(layerClasses[index] as Editable<Plan['layerClasses'][number]>),
      });
      yield made('a layer dropped', (own) => own.instances.splice(layer, 1));
      yield made('a layer on another stage', ({ stages }) => stages?.splice(layer, 1, ((stages[layer] ?? 0) + 1) % pp));
      yield made('one layer that recomputes', (own) => {
        own.recompute = instances.map((_, at) => at === layer);
      });
    }
  for (const stage of plan.stages.keys()) {
    const where = `${stage}`;
    const made = (kind: string, edit: (own: Editable<Plan['stages'][number]>) => void): PlanEdit => ({
      kind,
      where,
      edit: ({ stages }) => edit(stages[stage] as Editable<Plan['stages'][number]>),
    });
    yield made('a stage of more operators', (own) => own.operators++);
    yield made('a stage of more devices', (own) => {
      own.devices *= 2;
    });
    yield { kind: 'a stage dropped', where, edit: ({ stages }) => stages.splice(stage, 1) };
  }
}

function* ofStep(plan: Plan): Generator<PlanEdit> {
  const made = (kind: string, edit: PlanEdit['edit']): PlanEdit => ({ kind, where: '', edit });
  yield made('another schedule', ({ schedule }) => {
    schedule.kind = plan.schedule.kind === '1f1b' ? 'f-then-b' : '1f1b';
  });
  yield made('more micro-batches', ({ schedule }) => {
    schedule.microBatches *= 2;
  });
  yield made('a larger micro-batch', ({ schedule }) => {
    schedule.microBatch = (schedule.microBatch ?? 1) + 1;
  });
  yield made('a larger batch', ({ schedule }) => {
    schedule.batch = (schedule.batch ?? 1) + 1;
  });
  yield made('more chunks', ({ schedule }) => {
    schedule.virtualStages = 2;
  });
  yield made('halves of micro-batches', ({ schedule }) => {
    schedule.interleave = 2;
  });
  for (const axis of ['dp', 'tp', 'pp', 'sp', 'ep'] as const)
    yield made('another degree', ({ degrees }) => {
      degrees[axis] *= 2;
    });
  for (const index of plan.mesh.keys()) {
    yield made('another size of the mesh', ({ mesh }) => {
      const own = mesh[index];
      if (own) own.size *= 2;
    });
    yield made('an axis of the mesh dropped', ({ mesh }) => mesh.splice(index, 1));
  }
  yield made('axes of the mesh in another order', ({ mesh }) => mesh.reverse());
  yield made('a server', (own) => {
    own.server = ['dp'];
  });
  yield made('optimizer state on the host', (own) => {
    own.places = { optimizer: 'host' };
  });
  yield made('another format of the arithmetic', ({ predicted }) => {
    predicted.precision = 'bf16';
  });
}
