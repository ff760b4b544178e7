/**
 * @file Meshes of stages as text: `tp2 sp2 | dp4 ep2`, a stage's axes and their sizes, and a bar between stages. `ep` is not an
 * axis of ranks: experts are sharded over sub-axes of the stage's dp · sp.
 */
import { AutoparError } from '../../ir/error.js';
import { MOST_DEVICES, MOST_STAGES } from '../../sharding-propagation/mesh.js';
import { EXPERTS, INNER_AXES, SEARCHED_AXES } from '../../sharding-propagation/roles.js';
import { type AxisSizes, rankAxes, sizesText, stageMeshesProblem } from '../../sharding-propagation/stage-meshes.js';
import type { MeshDegrees } from '../degrees.js';

const AXES = [...INNER_AXES, EXPERTS].join('|');
const MESH = new RegExp(`^((${AXES})[ =]?\\d{1,7}[ ,·]*)+$`);
const AXIS = new RegExp(`(${AXES})[ =]?(\\d+)`, 'g');

/**
 * The degrees of each stage; an axis that a stage leaves out has one rank.
 * @throws AutoparError (usage) `bad-meshes` for a text of another form, and for meshes that stages of one pipeline cannot have
 */
export function readMeshes(text: string): readonly MeshDegrees[] {
  const stages = text.split('|').map((part): MeshDegrees => {
    const own = part.trim();
    if (!MESH.test(own))
      throw refused(text, own === '' ? 'a stage has no mesh' : `"${own}" is not a mesh of dp, sp, tp and ep`);
    const sizes = [...own.matchAll(AXIS)].map(([, axis = '', size]) => [axis, Number(size)] as const);
    const twice = sizes.find(([axis], index) => sizes.findIndex(([other]) => other === axis) < index);
    if (twice) throw refused(text, `"${own}" gives ${twice[0]} twice`);
    const degrees: MeshDegrees = { dp: 1, tp: 1, ...Object.fromEntries(sizes) };
    const { dp, tp, sp = 1, ep = 1 } = degrees;
    const devices = dp * sp * tp;
    if (devices < 1 || devices > MOST_DEVICES) throw refused(text, `"${own}" makes ${devices} devices`);
    if (ep < 1 || (dp * sp) % ep !== 0)
      throw refused(text, `"${own}" has experts on ${ep} ranks, which does not divide dp · sp = ${dp * sp}`);
    return degrees;
  });
  if (stages.length < 2 || stages.length > MOST_STAGES)
    throw refused(text, `it has ${stages.length} stage${stages.length === 1 ? '' : 's'}, and a pipeline has 2 or more`);
  const problem = stageMeshesProblem(meshSizes(stages));
  if (problem !== null) throw refused(text, problem);
  return stages;
}

/** Each stage's axes, outermost first: dp, tp, and sp where some stage has it; then ep where the stage has it. */
export function meshSizes(stages: readonly MeshDegrees[]): readonly AxisSizes[] {
  const isThere = (axis: keyof MeshDegrees) =>
    (SEARCHED_AXES as readonly string[]).includes(axis) || stages.some((own) => (own[axis] ?? 1) > 1);
  const axes = INNER_AXES.filter(isThere);
  return stages.map((own) => {
    const ranks = axes.map((axis) => [axis, own[axis] ?? 1] as const);
    return (own.ep ?? 1) > 1 ? [...ranks, [EXPERTS, own.ep ?? 1]] : ranks;
  });
}

/** @throws AutoparError (usage) `bad-meshes` where the stages' meshes are not of so many devices each */
export function checkMeshes(text: string, stages: readonly MeshDegrees[], devices: number): void {
  const [first = []] = meshSizes(stages);
  const own = rankAxes(first).reduce((product, [, size]) => product * size, 1);
  if (own === devices) return;
  throw refused(text, `stage 0 (${sizesText(first)}) has ${own} devices, not ${devices}`);
}

function refused(text: string, why: string): AutoparError {
  return new AutoparError(
    'bad-meshes',
    'usage',
    `--meshes "${text}": ${why}`,
    {},
    'give the dp, sp and tp of each stage, with a bar between stages and equal products, such as ' +
      '--meshes "tp2 | dp2"; ' +
      'the dp of one of two stages must divide the dp of the other, and so must their dp · sp',
  );
}
