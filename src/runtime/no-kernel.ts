/**
 * @file An operator that ONNX Runtime has no kernel for: how it is detected in error messages, and the one error for it.
 */
import type { ProgramNode } from '../program/program.js';
import { AutoparError } from '../program/values.js';

/** ONNX Runtime's message about a node that it has no kernel for; fields are empty where the message does not state them. */
export interface Complaint {
  readonly node: string;
  readonly op: string;
  /** It would run some nodes elsewhere, and does not say which. */
  readonly isElsewhere?: true;
}

/** How it says that it has none for an operator, or not for its types. */
const COMPLAINTS: readonly RegExp[] = [
  /Could not find an implementation for (?:\S+[.:])?(?<op>\w+)\(\d+\) node with name '(?<node>[^']*)'/,
  /running (?<op>\w+) node\. Name:'(?<node>[^']*)'[\s\S]*(?:NOT_IMPLEMENTED|NOT implemented)/,
  /running (?<op>\w+) node\. Name:'(?<node>[^']*)'[\s\S]*(?:not support(?:ed)?|are supported)\b/,
  /Type Error: Type '[^']*' of (?:input|output) parameter [\s\S]* of operator \((?<op>\w+)\) in node \((?<node>.*)\) is invalid/,
  /In Node, \("(?<node>[^"]*)", (?<op>\w+),[\s\S]*(?:is not a registered function\/op|No Op registered)/,
  /(?:[\w.]+:)?(?<op>\w+)\(-?\d+\) is not a registered function\/op/,
  /No Op registered for (?<op>\w+)/,
  /NOT_IMPLEMENTED/,
];

/** The error of a session that may not fall back to the CPU. */
const ELSEWHERE = /graph nodes that are assigned to the default CPU EP/;

/** The node that ONNX Runtime has no kernel for, in its words; null for any other complaint. */
export function complaintOf(reason: string): Complaint | null {
  if (ELSEWHERE.test(reason)) return { node: '', op: '', isElsewhere: true };
  for (const pattern of COMPLAINTS) {
    const found = pattern.exec(reason);
    if (found) return { node: found.groups?.['node'] ?? '', op: found.groups?.['op'] ?? '' };
  }
  return null;
}

/** The one of `nodes` that is meant where ONNX Runtime names no node: the first with the operator, or the only one. */
export function meantBy({ op }: Complaint, nodes: readonly ProgramNode[]): ProgramNode | null {
  const named = nodes.find((node) => node.op.split('.').at(-1) === op);
  return named ?? (nodes.length === 1 ? (nodes[0] ?? null) : null);
}

/** `unsupported-operator`: `runner` (a backend, or ONNX Runtime itself) has no kernel for a node of the model. */
export function withoutKernel(runner: string, node: ProgramNode | null, reason: string, hint: string): AutoparError {
  const typed = [node?.op, ...(node?.dtypes.length ? [node.dtypes.join(', ')] : [])].join(' of ');
  const what = node ? `node '${node.name}' (${typed})` : 'an operator of the model';
  return new AutoparError(
    'unsupported-operator',
    'backendAbsent',
    `${runner} has no kernel for ${what}: ${reason}`,
    node ? { node: node.name } : {},
    hint,
  );
}
