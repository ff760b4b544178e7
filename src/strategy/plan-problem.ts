/**
 * @file Whether a plan is consistent, without its model: degrees, mesh, devices, stages, micro-batches, layers, and the axes that
 * strategies and layouts name. Every command reads plans through this check (plan-json.ts).
 */
import { AutoparError } from '../ir/error.js';
import { checkRequest } from '../schedule/make-schedule.js';
import type { ScheduleRequest } from '../schedule/schedule.js';
import { AXIS_ORDER, type Mesh, MOST_DEVICES, makeMesh, STAGE_AXIS } from '../sharding-propagation/mesh.js';
import { dataAxes, EXPERTS } from '../sharding-propagation/roles.js';
import { stageMeshesProblem } from '../sharding-propagation/stage-meshes.js';
import { meshesOf } from './assignment-of.js';
import type { Plan, PlanOperator } from './plan.js';

/**
 * The first contradiction of a plan whose form was checked: the place of each of the two values, and the values; null where there
 * is none.
 */
export function planProblem(plan: Plan): string | null {
  const devices = plan.mesh.reduce((product, { size }) => product * size, 1);
  // A mesh is only made of a number of devices that can be.
  if (devices > MOST_DEVICES) return `mesh makes ${devices} devices; autopar plans for at most ${MOST_DEVICES}`;
  const differing = meshesProblem(plan);
  if (differing !== null) return differing;
  const mesh = meshesOf(plan)?.common ?? makeMesh(plan.mesh.map(({ axis, size }) => [axis, size] as const));
  return (
    meshProblem(plan) ??
    devicesProblem(plan, devices) ??
    stagesProblem(plan) ??
    scheduleProblem(plan) ??
    decisionsProblem(plan) ??
    layersProblem(plan) ??
    serverProblem(plan, mesh) ??
    operatorsProblem(plan, mesh) ??
    layoutsProblem(plan, mesh)
  );
}

function meshProblem({ mesh, degrees }: Plan): string | null {
  const stageAxis = mesh.findIndex(({ axis }) => axis === STAGE_AXIS);
  if (stageAxis > 0)
    return `mesh.${stageAxis}.axis is ${STAGE_AXIS}, which is outermost: mesh.0.axis is ${mesh[0]?.axis}`;
  for (const [index, { axis, size }] of mesh.entries()) {
    const before = mesh.findIndex((other) => other.axis === axis);
    if (before < index) return `mesh.${before}.axis and mesh.${index}.axis are both ${axis}`;
    if (size !== degrees[axis as keyof Plan['degrees']])
      return `mesh.${index}.size (${axis}) is ${size}, degrees.${axis} is ${degrees[axis as keyof Plan['degrees']]}`;
  }
  const absent = AXIS_ORDER.find((axis) => degrees[axis] > 1 && mesh.every((other) => other.axis !== axis));
  if (absent) return `degrees.${absent} is ${degrees[absent]}, mesh has no axis ${absent}`;
  const { dp, sp, ep } = degrees;
  return (dp * sp) % ep === 0
    ? null
    : `degrees.ep is ${ep}, which does not divide degrees.dp · degrees.sp (${dp * sp})`;
}

/** Meshes of stages that differ: one per stage, the first equal to `mesh`, with sub-axes that all of them share. */
function meshesProblem({ meshes, mesh, degrees }: Plan): string | null {
  if (!meshes) return null;
  if (meshes.length !== degrees.pp) return `meshes has ${meshes.length} entries, degrees.pp is ${degrees.pp}`;
  const own = mesh.filter(({ axis }) => axis !== STAGE_AXIS);
  const text = (axes: Plan['mesh']) => axes.map(({ axis, size }) => `${axis} ${size}`).join(' · ');
  const ranksIn = (axes: Plan['mesh']) => axes.filter(({ axis }) => axis !== EXPERTS);
  for (const [stage, axes] of meshes.entries()) {
    const ranks = ranksIn(axes);
    if (ranks.map(({ axis }) => axis).join() !== own.map(({ axis }) => axis).join())
      return (
        `meshes.${stage} has axes ${ranks.map(({ axis }) => axis).join(', ')}, mesh has ` +
        `${own.map(({ axis }) => axis).join(', ')} inside a stage`
      );
    const devices = ranks.reduce((product, { size }) => product * size, 1);
    if (devices > MOST_DEVICES)
      return `meshes.${stage} makes ${devices} devices; autopar plans for at most ${MOST_DEVICES}`;
  }
  if (text(ranksIn(meshes[0] ?? [])) !== text(own))
    return `meshes.0 is ${text(ranksIn(meshes[0] ?? []))}, mesh is ${text(own)} inside a stage`;
  if (meshes.every((axes) => text(axes) === text(meshes[0] ?? [])))
    return `meshes are all ${text(own)}: where stages have equal meshes, leave out meshes`;
  for (const [stage, axes] of meshes.entries()) {
    const experts = axes.filter(({ axis }) => axis === EXPERTS);
    const { dp = 1, sp = 1, ep = 1 } = Object.fromEntries(axes.map(({ axis, size }) => [axis, size]));
    if (experts.length > 1) return `meshes.${stage} has ${EXPERTS} twice`;
    if ((dp * sp) % ep !== 0) return `meshes.${stage} has ep ${ep}, which does not divide dp · sp (${dp * sp})`;
    if (stage === 0 && ep !== degrees.ep) return `meshes.0 has ep ${ep}, degrees.ep is ${degrees.ep}`;
  }
  const problem = stageMeshesProblem(meshes.map((axes) => axes.map(({ axis, size }) => [axis, size] as const)));
  return problem === null ? null : `meshes: ${problem}`;
}

function devicesProblem({ cluster, stages, degrees }: Plan, devices: number): string | null {
  const there = cluster.nodes * cluster.perNode;
  if (there !== devices) return `cluster.nodes · cluster.perNode is ${there}, mesh makes ${devices} devices`;
  const each = devices / degrees.pp;
  const other = stages.findIndex((stage) => stage.devices !== each);
  return other < 0 ? null : `stages.${other}.devices is ${stages[other]?.devices}, the mesh gives a stage ${each}`;
}

function stagesProblem({ stages, degrees, predicted, operators, layerClasses, schedule }: Plan): string | null {
  const { pp } = degrees;
  const { virtualStages = 1 } = schedule;
  if (stages.length !== pp) return `stages has ${stages.length} entries, degrees.pp is ${pp}`;
  if (predicted.peakBytes.length !== pp)
    return `predicted.peakBytes has ${predicted.peakBytes.length} entries, degrees.pp is ${pp}`;
  for (const [name, { stage, chunk = 0 }] of Object.entries(operators)) {
    if (stage >= pp) return `operators.${name}.stage is ${stage}, stages has ${pp} (from 0)`;
    if (chunk >= virtualStages)
      return `operators.${name}.chunk is ${chunk}, stages have ${virtualStages} chunks (from 0)`;
  }
  for (const [index, { instances, stages: placed, chunks }] of layerClasses.entries()) {
    const here = `layerClasses.${index}`;
    for (const [key, list, count, asked] of [
      ['stages', placed, pp, pp > 1],
      ['chunks', chunks, virtualStages, virtualStages > 1],
    ] as const) {
      if ((list !== undefined) !== asked)
        return `${here}.${key} is ${asked ? 'missing' : 'present'}, degrees.pp is ${pp}`;
      if (list === undefined) continue;
      if (list.length !== instances.length)
        return `${here}.${key} has ${list.length} entries, ${here}.instances has ${instances.length}`;
      const other = list.findIndex((value) => value >= count);
      if (other >= 0) return `${here}.${key}.${other} is ${list[other]}, there are ${count} (from 0)`;
    }
  }
  return null;
}

function scheduleProblem(plan: Plan): string | null {
  const { schedule, degrees, training, model } = plan;
  const { kind, microBatches, microBatch, batch, interleave, virtualStages = 1 } = schedule;
  if ((kind === 'single') !== (degrees.pp === 1)) return `schedule.kind is ${kind}, degrees.pp is ${degrees.pp}`;
  if (kind === 'single' && virtualStages > 1)
    return `schedule.virtualStages is ${virtualStages}, schedule.kind is ${kind}`;
  if (interleave === 2 && microBatches % 2 === 1)
    return `schedule.interleave is 2, schedule.microBatches is ${microBatches}: halves come in pairs`;
  const unordered = kind === 'single' ? null : orderProblem({ ...schedule, kind }, plan);
  if (unordered !== null) return unordered;
  if (!training && microBatches > 1)
    return `schedule.microBatches is ${microBatches}, training is null: inference has no micro-batches`;
  if (microBatch === undefined || batch === undefined) {
    if (microBatches === 1) return null;
    return `schedule.microBatches is ${microBatches}, schedule.${microBatch === undefined ? 'microBatch' : 'batch'} is missing`;
  }
  if (microBatches === 1) return `schedule.microBatches is 1, schedule.batch is ${batch}`;
  const product = microBatches * microBatch * degrees.dp;
  if (product !== batch)
    return `schedule.microBatches · schedule.microBatch · degrees.dp is ${product}, schedule.batch is ${batch}`;
  return model.globalBatch === null || model.globalBatch === batch
    ? null
    : `schedule.batch is ${batch}, model.globalBatch is ${model.globalBatch}`;
}

/** Whether a schedule of the kind runs so many micro-batches through so many stages and chunks. */
function orderProblem(
  { kind, microBatches, interleave, virtualStages = 1 }: Plan['schedule'] & Pick<ScheduleRequest, 'kind'>,
  { degrees, training }: Plan,
): string | null {
  try {
    const each = microBatches / (interleave ?? 1);
    checkRequest({ kind, stages: degrees.pp, microBatches: each, virtualStages, training: training !== null });
    return null;
  } catch (error) {
    if (!(error instanceof AutoparError)) throw error;
    return (
      `schedule.kind is ${kind}, schedule.microBatches ${microBatches}, schedule.virtualStages ` +
      `${virtualStages}, degrees.pp ${degrees.pp}: ${error.message}`
    );
  }
}

/** Degrees that were decided before the search are the plan's. */
function decisionsProblem({ pins, degrees, schedule }: Plan): string | null {
  for (const [index, pin] of pins.entries()) {
    const [, axis, size] = /^(dp|tp|pp|sp|ep)=(\d+)$/.exec(pin) ?? [];
    const degree = degrees[axis as keyof Plan['degrees']];
    if (axis !== undefined && degree !== Number(size)) return `pins.${index} is ${pin}, degrees.${axis} is ${degree}`;
    const [, name = '', value] = /^(schedule|virtual-stages)=(\S+)$/.exec(pin) ?? [];
    const [key, own] = name === 'schedule' ? ['kind', schedule.kind] : ['virtualStages', schedule.virtualStages ?? 1];
    if (value !== undefined && value !== String(own)) return `pins.${index} is ${pin}, schedule.${key} is ${own}`;
  }
  return null;
}

function layersProblem({ layerClasses: layers, stages, operators }: Plan): string | null {
  const seen = new Map<string, string>();
  for (const [index, { name, instances, recompute }] of layers.entries()) {
    if (recompute && recompute.length !== instances.length)
      return (
        `layerClasses.${index}.recompute has ${recompute.length} entries, layerClasses.${index}.instances has ` +
        `${instances.length}`
      );
    if (instances[0] !== name) return `layerClasses.${index}.name is ${name}, its first instance is ${instances[0]}`;
    for (const [place, instance] of instances.entries()) {
      const here = `layerClasses.${index}.instances.${place}`;
      const before = seen.get(instance);
      if (before) return `${before} and ${here} are both ${instance}`;
      seen.set(instance, here);
    }
  }
  if (layers.some((layer) => layer.operators === undefined)) return null;
  const placed = stages.map(() => 0);
  const place = (stage: number, count: number) => {
    placed[stage] = (placed[stage] ?? 0) + count;
  };
  for (const { stage } of Object.values(operators)) place(stage, 1);
  for (const { instances, stages: of, operators: count = 0 } of layers)
    for (const [index] of instances.entries()) if (index > 0) place(of?.[index] ?? 0, count);
  const other = stages.findIndex(({ operators: count }, stage) => count !== placed[stage]);
  if (other >= 0)
    return (
      `stages.${other}.operators is ${stages[other]?.operators}; operators, with those of the layers that ` +
      `repeat, has ${placed[other]} on stage ${other}`
    );
  const empty = stages.length === 1 ? -1 : placed.indexOf(0);
  return empty < 0 ? null : `stages.${empty}.operators is 0, and a stage has at least one`;
}

/** One rank updates for all ranks of data axes, in a training step whose stages have one mesh and shard no state over them. */
function serverProblem({ server, meshes, training }: Plan, mesh: Mesh): string | null {
  if (!server) return null;
  if (training === null) return `server is ${server.join(', ')}, and training is null`;
  if (meshes) return `server is ${server.join(', ')} beside meshes, each of which has its own first rank`;
  const data = dataAxes(mesh).flatMap(({ name, size }) => (size > 1 ? [name] : []));
  return server.join() === data.join()
    ? null
    : `server is ${server.join(', ')}, and the axes over which ranks share parameters are ${data.join(', ') || 'none'}`;
}

function operatorsProblem({ operators }: Plan, mesh: Mesh): string | null {
  const known = new Set(mesh.axes.flatMap(({ subAxes }) => subAxes.map(({ name }) => name)));
  for (const [name, operator] of Object.entries(operators)) {
    const used = new Map<string, string>();
    for (const [place, axis] of axesOf(operator)) {
      if (!known.has(axis)) return `operators.${name}.${place} names axis ${axis}, ${meshHas(mesh)}`;
      const before = used.get(axis);
      // Factors on the same axes throughout are queries and keys of a ring, which the operator's rule knows.
      if (before && !areSame(operator, before, place))
        return `operators.${name}.${before} and operators.${name}.${place} both take axis ${axis}`;
      used.set(axis, place);
    }
  }
  return null;
}

function areSame({ strategy }: PlanOperator, ...places: readonly [string, string]): boolean {
  const [one, other] = places.map((place) => strategy[place.replace('strategy.', '')]);
  return one !== undefined && one !== other && one.join() === other?.join();
}

function axesOf({ strategy, partial }: PlanOperator): readonly (readonly [place: string, axis: string])[] {
  return [
    ...Object.entries(strategy).flatMap(([factor, axes]) => axes.map((axis) => [`strategy.${factor}`, axis] as const)),
    ...(partial?.axes ?? []).map((axis) => ['partial.axes', axis] as const),
  ];
}

/** Words of a layout's text that are not axes. */
const WORDS: ReadonlySet<string> = new Set(['partial', 'sum', 'max', 'min', 'first']);

function layoutsProblem({ tensors, redistributions }: Plan, mesh: Mesh): string | null {
  const known = new Set(mesh.axes.flatMap(({ name, subAxes }) => [name, ...subAxes.map((sub) => sub.name)]));
  const stranger = (text: string) =>
    text.match(/[a-z]\w*(\.\d+)?/gi)?.find((word) => !known.has(word) && !WORDS.has(word));
  for (const [tensor, text] of Object.entries(tensors)) {
    const axis = stranger(text);
    if (axis) return `tensors.${tensor} is ${text}, which names axis ${axis}; ${meshHas(mesh)}`;
  }
  for (const [tensor, views] of Object.entries(redistributions)) {
    for (const [index, { layout }] of views.entries()) {
      const axis = stranger(layout);
      if (axis)
        return `redistributions.${tensor}.${index}.layout is ${layout}, which names axis ${axis}; ${meshHas(mesh)}`;
    }
  }
  return null;
}

function meshHas({ axes }: Mesh): string {
  const names = axes.flatMap(({ subAxes }) => subAxes.map(({ name }) => name));
  return names.length === 0 ? 'the mesh has one device' : `the mesh has ${names.join(', ')}`;
}
