/** @file The parts of a step's time as people read them. */

/** By the name of a part in `--json`. */
const TEXTS: Readonly<Record<string, string>> = {
  matmul: 'matmul',
  attention: 'attention',
  memory: 'pointwise ops',
  launch: 'launch overhead',
  tp: 'communication over tp',
  sp: 'communication over sp',
  ep: 'communication over ep',
  pp: 'communication over pp',
  dp: 'communication over dp',
  host: 'transfers to and from the host',
  bubble: 'pipeline bubble',
  optimizer: 'optimizer',
  other: 'framework overhead',
  launches: 'launch overhead',
  'outside the model': 'framework overhead',
};

/** In the order in which reports show them. */
export const PART_NAMES: readonly string[] = Object.keys(TEXTS);

export function partText(part: string): string {
  return TEXTS[part] ?? part;
}
