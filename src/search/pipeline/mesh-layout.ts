/**
 * @file Meshes of stages as text: `tp2 | dp2`, a stage's axes and their sizes, and a bar between stages.
 */
import { AutoparError } from '../../ir/error.js';
import { MOST_DEVICES, MOST_STAGES } from '../../sharding-propagation/mesh.js';
import { type AxisSizes, sizesText, stageMeshesProblem } from '../../sharding-propagation/stage-meshes.js';
import type { Degrees } from '../degrees.js';

/**
 * The degrees of each stage; an axis that a stage leaves out has one rank.
 * @throws AutoparError (usage) `bad-meshes` for a text of another form, and for meshes that stages of one pipeline cannot have
 */
export function readMeshes(text: string): readonly Degrees[] {
  const stages = text.split('|').map((part): Degrees => {
    const own = part.trim();
    if (!/^((dp|tp)[ =]?\d{1,7}[ ,·]*)+$/.test(own))
      throw refused(text, own === '' ? 'a stage has no mesh' : `"${own}" is no mesh of dp and tp`);
    const sizes = [...own.matchAll(/(dp|tp)[ =]?(\d+)/g)].map(([, axis = '', size]) => [axis, Number(size)] as const);
    const twice = sizes.find(([axis], index) => sizes.findIndex(([other]) => other === axis) < index);
    if (twice) throw refused(text, `"${own}" gives ${twice[0]} twice`);
    const { dp = 1, tp = 1 } = Object.fromEntries(sizes) as Partial<Degrees>;
    if (dp < 1 || tp < 1 || dp * tp > MOST_DEVICES) throw refused(text, `"${own}" makes ${dp * tp} devices`);
    return { dp, tp };
  });
  if (stages.length < 2 || stages.length > MOST_STAGES)
    throw refused(text, `it has ${stages.length} stage${stages.length === 1 ? '' : 's'}, and a pipeline has 2 or more`);
  const problem = stageMeshesProblem(stages.map(sizesOf));
  if (problem !== null) throw refused(text, problem);
  return stages;
}

/** A stage's axes, outermost first. */
export function sizesOf({ dp, tp }: Degrees): AxisSizes {
  return [
    ['dp', dp],
    ['tp', tp],
  ];
}

/** @throws AutoparError (usage) `bad-meshes` where the stages' meshes are not of so many devices each */
export function checkMeshes(text: string, stages: readonly Degrees[], devices: number): void {
  const [first] = stages;
  if (!first || first.dp * first.tp === devices) return;
  throw refused(
    text,
    `stage 0 (${sizesText(sizesOf(first))}) has ${first.dp * first.tp} devices, and there are ${devices} a stage`,
  );
}

function refused(text: string, why: string): AutoparError {
  return new AutoparError(
    'bad-meshes',
    'usage',
    `--meshes "${text}": ${why}`,
    {},
    'give each stage dp, tp or both, with a bar between stages and as many devices on each, such as --meshes "tp2 | dp2"; ' +
      'of the dp of two stages one divides the other',
  );
}
