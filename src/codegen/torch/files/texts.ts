/**
 * @file The small files of an emitted program: operators.py, requirements.txt, ruff.toml, README.md.
 */
import { HELPERS, type HelperName } from '../operators/helpers.js';
import { LINE_LENGTH, torchImports } from '../python.js';

/** operators.py with the functions that the modules' text calls; null where it calls none. */
export function operatorsFile(modules: string): string | null {
  const names = calledHelpers(modules);
  if (names.length === 0) return null;
  const texts = names.map((name) => HELPERS[name]);
  const imports = torchImports(texts.join('\n')).map((line) => `${line}\n`);
  return (
    '"""Operators that torch has no function ' +
    `for."""\n\n${imports.join('')}${imports.length > 0 ? '\n\n' : '\n'}${texts.join('\n\n')}`
  );
}

/** Functions that a text calls, and those that they call or choose from, in the order of the table. */
function calledHelpers(text: string): readonly HelperName[] {
  const all = Object.keys(HELPERS) as HelperName[];
  const known = new Set(all.filter((name) => calls(text, name)));
  // Iteration over a set includes names that are added during it.
  for (const name of known)
    for (const other of all) if (new RegExp(`(?<![\\w.])${other}[(,)]`).test(HELPERS[name])) known.add(other);
  return all.filter((name) => known.has(name));
}

/** Whether a text names something of another file. */
export function calls(text: string, name: string): boolean {
  return new RegExp(`(?<![\\w.])${name}\\(`).test(text);
}

export const RUFF = `line-length = ${LINE_LENGTH}\n\n[lint]\nselect = ["E", "F", "I", "W"]\n`;

export interface DescribedProgram {
  readonly model: string;
  readonly ranks: number;
  readonly mesh: string;
  readonly isPipeline: boolean;
}

const MODEL =
  '| model.py | a class for each kind of layer, one line per operator with its layout; the model, which calls them |';
const PIPELINE = `| layers.py | a class for each kind of layer, one line per operator with its layout |
| stage_0.py … | the model of a stage, which calls its layers |
| schedule.csv | the actions of each stage in order, in the grammar of torch.distributed.pipelining |`;

/** README.md. */
export function torchReadme({ model, ranks, mesh, isPipeline }: DescribedProgram): string {
  return `# ${model} on ${ranks} ${ranks === 1 ? 'rank' : 'ranks'} (${mesh})

    pip install -r requirements.txt
    torchrun --nproc-per-node ${ranks} main.py --steps 3

\`--inputs FILE.npz\` gives unsharded inputs, \`--outputs\` and \`--state\` write unsharded outputs and weights, \`--save\`
and \`--resume\` checkpoints; \`main.py --help\` lists the rest. On several machines add torchrun's own options
(\`--nnodes\`, \`--rdzv-endpoint\`).

| file | holds |
|---|---|
${isPipeline ? PIPELINE : MODEL}
| optimizer.py | functions that update parameters (training only) |
| mesh.py | the device mesh, process groups, and functions that shard tensors |
| collectives.py | one function per transition between layouts |
| values.py | parameters and their files |
| main.py | options; checks modules and the world size |
| steps.py | inputs, steps, outputs |
| checkpoint.py | checkpoints in torch's distributed format |
| weights/ | a safetensors file per distinct shard, and index.json, which names each parameter's |

## Proof

The operators and collectives are those of the sharded graph that autopar priced, type-checked, and wrote as the
program beside this folder. That program is run and compared with the unsharded model, tensor by tensor, with

    autopar verify ..

Gradients, optimizer and recomputation are operators of the program. Autograd makes the gradients of single operators
alone: attention, normalisations, GELU, SwiGLU, losses.
`;
}
