/**
 * @file docs/reference/families.md: the models that `--model FAMILY:key=value,…` generates.
 */
import { families } from '../../models/families.js';

/** The page. */
export function familyDocs(): string {
  const rows = families().map(({ name, says, keys }) => `| \`${name}\` | ${says} | ${keys} |`);
  return `# Model families

\`--model FAMILY:key=value,…\` of \`compile\`, \`simulate\` and \`inspect\` generates a model as a graph without weights; \
\`compile --init random\` makes
weights, and [\`--write-model\`](../using.md#a-family-as-a-file) writes the model as an ONNX file. \
Keys that are left out have these defaults.
Written by \`npm run docs:reference\`.

| family | what | keys |
|---|---|---|
${rows.join('\n')}

- \`dropout\` writes ONNX's Dropout behind the embedding, attention's probabilities and each block; \
training draws its masks, inference
  leaves it out. Attention is then priced in parts.
- Experts of \`moe\` choose tokens of each sample (each expert its best tokens · topk / experts), \
so that shapes are static and samples independent.
- \`moe\` has what GPT-OSS adds: \`window\` (positions that every second layer attends to), \
\`sinks\` (a learned score per head), \`bias\`, \`clamp\` (the
  largest gate). GPT-OSS 120B is
  \`moe:layers=36,hidden=2880,heads=64,kv_heads=8,head_width=64,ffn=2880,experts=128,topk=4,vocab=201088,window=128,sinks=1,\
bias=1,clamp=7\`.
- \`pattern\` of \`hybrid\` has a letter for each layer: M state space (Mamba-2), \\* attention, - feed-forward, E experts. \
\`seq\` is a multiple of
  \`chunk\`, or shorter; \`latent\` is the width in which experts take tokens (0: the model's). The default is Nemotron-H 8B.
- \`vgg\` has 11, 13, 16 or 19 layers. DenseNet-121 is \`densenet\`, Swin-T \`swin\`, Swin-B \`swin:layers=24,width=128,heads=4\`.
`;
}
