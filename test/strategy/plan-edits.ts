/**
 * @file Single edits of a plan after which it contradicts itself, such as typing errors.
 */
import type { Plan } from '../../src/strategy/plan.js';

export interface Edit {
  readonly name: string;
  readonly plan: unknown;
}

/** Operators and tensors of a plan that are edited. */
const MOST_OPERATORS = 5;

/** All edits of a class that a plan has a place for; each changes one value, or adds or removes one entry. */
export function singleEdits(plan: Plan): readonly Edit[] {
  const edits: Edit[] = [];
  const edit = (name: string, change: (copy: Editable) => void) => {
    const copy = structuredClone(plan) as unknown as Editable;
    change(copy);
    edits.push({ name, plan: copy });
  };
  for (const axis of ['dp', 'tp', 'pp', 'sp'] as const)
    for (const size of [plan.degrees[axis] * 2, plan.degrees[axis] + 7, 2 ** 31 - 1, 0, -1, 1.5])
      edit(`degrees.${axis} = ${size}`, (copy) => {
        copy.degrees[axis] = size;
      });
  edit('degrees.ep does not divide', (copy) => {
    copy.degrees['ep'] = 7919;
  });
  for (const [index, { axis, size }] of plan.mesh.entries()) {
    edit(`mesh.${index}.size`, (copy) => {
      copy.mesh[index] = { axis, size: size * 2 };
    });
    edit(`mesh.${index}.axis`, (copy) => {
      copy.mesh[index] = { axis: 'up', size };
    });
    edit(`mesh.${index} twice`, (copy) => {
      copy.mesh.push({ axis, size });
    });
  }
  for (const [stage, axes] of (plan.meshes ?? []).entries())
    for (const [index, { axis, size }] of axes.entries()) {
      edit(`meshes.${stage}.${index}.size`, (copy) => {
        copy.meshes?.[stage]?.splice(index, 1, { axis, size: size * 2 });
      });
      edit(`meshes.${stage}.${index}.axis`, (copy) => {
        copy.meshes?.[stage]?.splice(index, 1, { axis: 'sp', size });
      });
    }
  if (plan.meshes) {
    edit('meshes: one more', (copy) => {
      copy.meshes?.push(copy.meshes[0] ?? []);
    });
    edit('meshes: all as the first', (copy) => {
      copy.meshes = (plan.meshes ?? []).map(() => [...(plan.meshes?.[0] ?? [])]);
    });
    edit('meshes left out, with layouts over what stages share', (copy) => {
      delete copy.meshes;
    });
  }
  for (const key of ['nodes', 'perNode'] as const)
    edit(`cluster.${key}`, (copy) => {
      copy.cluster[key] = plan.cluster[key] * 3;
    });
  edit('stages: one more', (copy) => {
    copy.stages.push({ operators: 0, devices: plan.stages[0]?.devices ?? 1 });
  });
  for (const [index, stage] of plan.stages.entries()) {
    edit(`stages.${index}.devices`, (copy) => {
      copy.stages[index] = { ...stage, devices: stage.devices * 2 };
    });
    edit(`stages.${index}.operators`, (copy) => {
      copy.stages[index] = { ...stage, operators: stage.operators + 1 };
    });
  }
  edit('predicted.peakBytes: one more', (copy) => {
    copy.predicted.peakBytes.push(1);
  });
  edit('schedule.kind', (copy) => {
    copy.schedule['kind'] = plan.schedule.kind === 'single' ? '1f1b' : 'single';
  });
  for (const count of [plan.schedule.microBatches * 8, plan.schedule.microBatches + 1])
    edit(`schedule.microBatches = ${count}`, (copy) => {
      copy.schedule['microBatches'] = count;
    });
  for (const [name, operator] of Object.entries(plan.operators).slice(0, MOST_OPERATORS)) {
    for (const stage of [plan.stages.length, 7])
      edit(`operators.${name}.stage = ${stage}`, (copy) => {
        copy.operators[name] = { ...operator, stage };
      });
    edit(`operators.${name} on an axis that is not there`, (copy) => {
      copy.operators[name] = { ...operator, strategy: { ...operator.strategy, m: ['up'] } };
    });
    edit(`operators.${name} missing`, (copy) => {
      delete copy.operators[name];
    });
    edit(`operators.${name} once more`, (copy) => {
      copy.operators[`${name}.1`] = operator;
    });
  }
  for (const [name, layout] of Object.entries(plan.tensors).slice(0, MOST_OPERATORS))
    edit(`tensors.${name} on an axis that is not there`, (copy) => {
      copy.tensors[name] = layout.replace(/dp|sp|tp|rank/, 'up');
    });
  for (const [index, { instances }] of plan.layerClasses.entries())
    edit(`layerClasses.${index}: one more`, (copy) => {
      copy.layerClasses[index] = { ...plan.layerClasses[index], instances: [...instances, 'another'] };
    });
  return edits;
}

type Numbers = Record<string, number>;

interface Editable {
  readonly degrees: Numbers;
  readonly cluster: Numbers;
  readonly mesh: unknown[];
  meshes?: unknown[][];
  readonly stages: unknown[];
  readonly layerClasses: unknown[];
  readonly predicted: { readonly peakBytes: number[] };
  readonly schedule: Record<string, unknown>;
  readonly operators: Record<string, unknown>;
  readonly tensors: Record<string, string>;
}
