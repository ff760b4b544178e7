/**
 * @file docs/reference/errors.md from the table of codes (src/ir/error-codes.ts) and the exit codes of the command.
 */
import { EXIT, type ExitKind } from '../../src/ir/error.js';
import { ERROR_CODES } from '../../src/ir/error-codes.js';

const EXITS: Readonly<Record<ExitKind, string>> = {
  done: 'done',
  checkFailed:
    'a check failed: `verify` or `rehearse` found a difference, a conformance case failed, `train` met a loss that is not ' +
    'finite',
  usage: 'usage: a command, an option or a value',
  input: 'the model, an input, or a file that was compiled',
  noPlan: 'no plan, or none that fits',
  rankFailed: 'a rank failed',
  backendAbsent: 'a backend or package is absent, or cannot do what is asked',
  cannotWrite: 'a file cannot be written',
  fault: 'an internal error of autopar: the message says what to report',
  interrupted:
    'interrupted by Ctrl-C or SIGTERM, and tidied up. Where nothing is to be tidied up, and at a second signal, the signal ' +
    'itself ends the process: a shell shows 130 for Ctrl-C and 143 for SIGTERM',
};

const HEAD = `# Errors

An error says what is wrong, where, and what to do:

    error[unbound-dimension]: the model leaves dimensions open: batch (input ids, dimension 0)
      in model.onnx
      hint: bind them: --dim batch=SIZE

With \`--json\` it is an object on stdout:
\`{"error": {"code", "message", "where": {"file", "line", "node", "tensor"}, "hint"}}\`. Codes stay; messages may
become clearer. In JavaScript they are the \`code\` of an \`AutoparError\`.

## Exit codes
`;

const OUT_OF_MEMORY = `### Out of memory

\`out-of-memory\` (exit 4) has two causes. The machine could not give the memory asked for, for instance for weights: the message
says how much is held and free. Or the JavaScript heap, which holds graphs, plans and tables of a search, reached the limit
that Node.js sets whatever the machine has:

    error[out-of-memory]: the JavaScript heap reached its limit of 4144 MiB (planning); 21.3 GB of this machine's 25.3 GB are free
      hint: NODE_OPTIONS=--max-old-space-size=8288 raises the limit; or plan fewer layers, devices or micro-batches

The parentheses name the work that had begun last. Outputs stay as they were; a folder that was being written is removed by
the next command that writes there. A single object that is far larger than what is left of the heap still ends the process
in Node.js itself (\`FATAL ERROR: … JavaScript heap out of memory\` or \`invalid table size\`, exit code 134).

In JavaScript the heap is the caller's own: a full one ends the caller's process. Where that must not happen, call autopar in
a \`Worker\` of \`node:worker_threads\`: its \`error\` event has the code \`ERR_WORKER_OUT_OF_MEMORY\`, and \`resourceLimits\`
sets its limit.
`;

export function errorDocs(): string {
  const exits = Object.entries(EXITS).map(([kind, says]) => [String(EXIT[kind as ExitKind]), says]);
  const sections = Object.entries(ERROR_CODES).map(([heading, codes]) => {
    const rows = Object.entries<readonly [string, string, string?]>(codes).map(
      ([code, [kinds, meaning, remedy = '']]) => [
        `\`${code}\``,
        kinds
          .split('|')
          .map((kind) => EXIT[kind as ExitKind])
          .join(', '),
        meaning,
        remedy,
      ],
    );
    return `## ${heading}\n\n${table(['code', 'exit', 'meaning', 'remedy'], rows)}`;
  });
  return [`${HEAD}\n${table(['exit', 'meaning'], exits)}`, OUT_OF_MEMORY, ...sections].join('\n');
}

function table(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |\n`.replaceAll('|  |', '| |');
  return `${line(titles)}${'|---'.repeat(titles.length)}|\n${rows.map(line).join('')}`;
}
