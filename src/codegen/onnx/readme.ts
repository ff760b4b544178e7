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
| rank-N.onnx | the model of rank N over its shards, weights as external data; ranks whose models are equal share one file |
| index.json | per rank: its file, sharding of inputs and outputs, transfers between stages, state |
| model.onnx | the unsharded model, annotated with the plan (ONNX multi-device annotations, IR version 11) |
| weights/ | a safetensors file per distinct shard |

Operators of the domain \`autopar\` run among ranks. \`groups\` lists the ranks of all groups, \`group_size\` at a time, in the
order of their members; all ranks of a stage run them in the order of the file. They work on the leading dimension:

| operator | result |
|---|---|
| AllReduce | element by element the \`reduction\` (sum, max, min) of the members' operands |
| AllGather | the members' operands, one after the other |
| ReduceScatter | the member's part of the \`reduction\`, in equal parts, one per member |
| AllToAll | part m of member k becomes part k of member m |
| Permute | member k's operand, at member \`to[k]\` |

Where all ranks are one group, AllReduce, AllGather and AllToAll are ONNX Runtime's own (\`com.microsoft\`, of builds with NCCL).

In index.json \`boxes\` map parts of an unsharded tensor (\`offset\`, \`size\`) to places in the shard (\`inBlock\`), in
zig-zag order of a sequence too, which the annotations of model.onnx cannot express; the rest of a shard is zero padding.
\`receives\` and \`sends\` name tensors that the rank with that number sends or receives
under the same label. \`state\`: the output that is the input of the next step; the first step finds its value in the file,
or it is zero (\`zeros\`).
`;
}
