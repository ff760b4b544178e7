/**
 * @file `npm run docs:operators`: writes docs/reference/operators.md from the registry and from the samples that
 * prove it, so that the page always agrees with them.
 */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { INTERNAL_OPSET } from '../src/ir/graph.js';
import { isDifferentiable, type OperatorEntry, type OperatorFamily } from '../src/ir/operator.js';
import { operatorEntries } from '../src/ir/ops/index.js';
import { verificationOf } from '../test/ir/autodiff/gradient-samples.js';
import { CASES, operatorOfCase } from '../test/ir/ops/cases.js';
import type { Case } from '../test/ir/ops/sample.js';
import { MISSED } from '../test/validator/missed-reasons.js';

/** Path of the page, from the repository root. */
export const OPERATOR_DOCS = 'docs/reference/operators.md';

const FAMILIES: Readonly<Record<OperatorFamily, string>> = {
  contraction: 'Contractions',
  convolution: 'Convolutions',
  pooling: 'Pooling',
  attention: 'Attention',
  normalisation: 'Normalisation',
  reduction: 'Reductions',
  elementwise: 'Element-wise',
  view: 'Views and movement',
  indexing: 'Indexing',
  recurrent: 'Recurrent',
  loss: 'Losses',
  sort: 'Sorting',
  generator: 'Generators',
  other: 'Other',
};

const INTRODUCTION = `# Operators

Written by \`npm run docs:operators\` from the registry (\`src/ir/ops/\`) and from the samples that prove it
(\`test/ir/ops/\`); a test checks that it is current. [How to add one](../contributing.md).

An operator of this list can be sharded along every dimension that its rule does not keep whole. Any other operator is
run replicated, with a note in the report; no operator stops a compile.

- *rule*: that of one sample; attributes and shapes may make it another. Factors that stand on several tensors are sharded
  together. \`+\` contracted, results are partial sums (\`+max\`, \`+min\`) · \`+mask\` looked up, indices outside a shard
  count zero · \`!\` whole · \`x~y\` cut as y is, with borders of the neighbours · \`%\` sharded by expansion · \
\`@\` a shard takes its
  offset · \`#\` sharded where asked only.
- *expanded*: replaced by plainer operators where a \`%\` factor is sharded (softmax: max, subtraction, power, sum, division).
- *constant inputs*: must be known when compiling.
- *gradient*: whether there is one ([training](../training.md)); else why none passes (what is behind the operator is a constant
  then), or why training through it is *refused*.
- *verified*: how the gradient was: compared with five-point differences of the operator in ONNX Runtime (in float64 where it
  computes so), on how many samples of how many shapes and attributes; and compared with PyTorch's on the same samples
  ([reference](../contributing.md#references)). A gradient's operators are sharded by their own rules.
- *backends*: where the rule was run, in shards under every assignment of one and of two axes to its factors, over sub-axes,
  pieces, padded sizes and partial operands, and compared with the whole operator; how many samples there are.
`;

/** The page that follows from the registry; `samples` are the cases of the tests that prove the rules. */
export function operatorDocs(entries: readonly OperatorEntry[], samples: readonly Case[] = CASES): string {
  const sections = Object.entries(FAMILIES).flatMap(([family, title]) => {
    const members = entries.filter((entry) => entry.family === family);
    return members.length === 0 ? [] : [section(title, members, samples)];
  });
  return `${INTRODUCTION}\n${entries.length} operators.\n\n${sections.join('\n')}\n${missedSection()}`;
}

/** Shardings that operators would allow and rules do not offer. */
function missedSection(): string {
  const rows = MISSED.flatMap(({ op, domain, shardings, reason }) =>
    shardings.map((sharding) => `| ${nameOf({ op, domain })} | \`${sharding}\` | ${reason} |`),
  );
  return `## Shardings that rules do not offer

The validator (\`test/validator/\`) cuts the operands of every sample in two along every choice of dimensions and looks whether
the results are the halves side by side, or their sum. Shardings beyond the rules that it finds, as the dimension cut per
operand and that of the results:

| operator | sharding | why it is not offered |
|---|---|---|
${rows.join('\n')}
`;
}

const HEADER = [
  '| operator | rule | expanded | constant inputs | what stays whole, and why | gradient | verified | backends |',
  '|---|---|---|---|---|---|---|---|',
].join('\n');

function section(title: string, members: readonly OperatorEntry[], samples: readonly Case[]): string {
  const rows = [...members]
    .sort((left, right) => (nameOf(left) < nameOf(right) ? -1 : 1))
    .map((entry) =>
      rowOf(
        entry,
        samples.filter((sample) => nameOf(sample) === nameOf(entry)),
      ),
    );
  return `## ${title}\n\n${HEADER}\n${rows.join('\n')}\n`;
}

function rowOf(entry: OperatorEntry, samples: readonly Case[]): string {
  const [typical] = samples;
  const cells = [
    nameOf(entry),
    typical ? `\`${ruleText(entry, typical)}\`` : '–',
    entry.expansion ? 'yes' : '',
    entry.constantInputs.map(({ attribute }) => attribute).join(', '),
    entry.note ?? '',
    gradientOf(entry),
    verifiedBy(entry),
    backendsOf(entry, samples.length),
  ];
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
}

/** The rule's text with the operands and results that the sample has. */
function ruleText(entry: OperatorEntry, sample: Case): string {
  const operator = operatorOfCase(sample);
  const present = (side: string, types: typeof operator.inputs): string =>
    side
      .split(',')
      .slice(0, types.length)
      .map((text, index) => (types[index] ? text.trim() || '()' : '_'))
      .join(', ');
  const [operands = '', results = ''] = entry.rule(operator).text.split('->');
  return `${present(operands, operator.inputs)} -> ${present(results, operator.outputs)}`.trim();
}

/** The operator's gradient in words: that there is one, why none passes, or why there is none. */
function gradientOf({ gradient }: OperatorEntry): string {
  if (gradient === undefined) return '–';
  if (gradient.kind === 'refused') return `refused: ${gradient.why}`;
  return gradient.kind === 'none' ? gradient.why : 'yes';
}

function verifiedBy(entry: OperatorEntry): string {
  if (!isDifferentiable(entry)) return '';
  const { samples, shapes, attributes, torch } = verificationOf(entry);
  if (samples === 0) return 'not yet';
  const forms = attributes > 1 ? `, ${attributes} sets of attributes` : '';
  const counted = `differences (${samples} samples, ${shapes} shapes${forms})`;
  return [counted, ...(torch ? ['PyTorch'] : [])].join(', ');
}

function backendsOf({ unproven, since, until }: OperatorEntry, samples: number): string {
  if (unproven !== undefined) return `none: ${unproven}`;
  const opset =
    since !== undefined && since > INTERNAL_OPSET ? ` from opset ${since}` : until ? ` up to opset ${until}` : '';
  return `onnxruntime cpu${opset} (${samples})`;
}

function nameOf({ op, domain }: { readonly op: string; readonly domain: string }): string {
  return domain === '' ? op : `${domain}.${op}`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
  writeFileSync(join(root, OPERATOR_DOCS), operatorDocs(operatorEntries));
  console.log(`${OPERATOR_DOCS}: ${operatorEntries.length} operators`);
}
