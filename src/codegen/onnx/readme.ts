/**
 * @file README.md of the ONNX target's folder.
 */
import { rankCount } from '../../program/mesh.js';
import type { Program } from '../../program/program.js';

/** Describes the files, and the operators between ranks. */
export function onnxReadme({ model, mesh }: Program): string {
  const ranks = rankCount(mesh);
  const axes = mesh.map(({ axis, size }) => `${axis} ${size}`).join(' · ');
  const name = model.name.replace(/[\n\r]+/g, ' ');
  return `# ${name} on ${ranks} ${ranks === 1 ? 'rank' : 'ranks'} (${axes})

| file | holds |
|---|---|
| rank-N.onnx | the model of rank N over its blocks, weights as external data; ranks whose models are equal share one file |
| index.json | per rank: its file, how inputs and outputs are cut, what goes to and comes from other stages, state |
| model.onnx | the whole model, annotated with the plan (ONNX multi-device annotations, IR version 11) |
| weights/ | a safetensors file per distinct shard |

Operators of the domain \`autopar\` run among ranks. \`groups\` lists the ranks of all groups, \`group_size\` at a time, in the
order of their members; all ranks of a stage run them in the order of the file. They work on the leading dimension:

| operator | result |
|---|---|
| AllReduce | element by element the \`reduction\` (sum, max, min) of the members' operands |
| AllGather | the members' operands, one after the other |
| ReduceScatter | of the \`reduction\` the member's part, of as many equal parts as members |
| AllToAll | part m of member k becomes part k of member m |
| Permute | member k's operand, at member \`to[k]\` |

Where all ranks are one group, AllReduce, AllGather and AllToAll are ONNX Runtime's own (\`com.microsoft\`, of builds with NCCL).

In index.json \`boxes\` say which part of a whole tensor (\`offset\`, \`size\`) is where in the block (\`inBlock\`), in
zig-zag order of a sequence too, which the annotations of model.onnx cannot say; the rest of a block is padding, which is zero.
\`receives\` and \`sends\` name tensors that the rank with that number sends or receives
under the same label. \`state\`: the output that is the input of the next step; the first step finds its value in the file,
or it is zero (\`zeros\`).
`;
}
