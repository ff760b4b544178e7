/**
 * @file The operators that stay when a model is resolved, in order: each has a name of its own, and the first of equal operators
 * replaces the others.
 */
import type { SourceNode } from '../onnx/model.js';
import { commonPath } from '../onnx/module-path.js';
import type { OperatorRole } from '../operator.js';
import { operatorRole } from '../ops/index.js';
import { attributesKey } from './attributes-key.js';
import { type DraftOperator, valueKey } from './values.js';

/**
 * Random operators would draw alike. ONNX Runtime computes in integers where every operand has a DequantizeLinear of its own: on
 * ranks that need different parts of one tensor it is the integers that are resharded.
 */
const NEVER_MERGED: ReadonlySet<OperatorRole | undefined> = new Set(['random', 'dequantise']);

/** An operator that stays, which further modules may turn out to have. */
interface KeptOperator extends DraftOperator {
  module: readonly string[];
}

export class ResolvedOperators {
  private readonly kept: KeptOperator[] = [];
  private readonly makers = new Map<string, DraftOperator>();
  private readonly merged = new Map<string, KeptOperator>();
  private readonly names = new Set<string>();
  private readonly ordinals = new Map<string, number>();
  /** Names that several nodes of the model have. */
  private readonly repeated: ReadonlySet<string>;

  /** `nodes` are all nodes of the model. */
  constructor(nodes: readonly SourceNode[]) {
    this.repeated = repeatedNames(nodes);
  }

  get drafts(): readonly DraftOperator[] {
    return this.kept;
  }

  /** The operator that makes a tensor; undefined for inputs and constants. */
  makerOf(tensor: string): DraftOperator | undefined {
    return this.makers.get(tensor);
  }

  /** Keeps a node: returns null, or the equal operator that is kept already, whose results replace the node's. */
  keep(
    node: SourceNode,
    found: Pick<DraftOperator, 'attributes' | 'inputs' | 'types' | 'constants'>,
  ): DraftOperator | null {
    const key = keyOf(node, found);
    const equal = key === null ? undefined : this.merged.get(key);
    if (equal) {
      // A mask that every layer makes is not the first layer's. Parameters are named after the module that reads them first.
      const readsParameter = found.inputs.some((value) => value?.kind === 'constant' && value.constant.stated);
      if (!readsParameter) equal.module = commonPath([equal.module, node.module]);
      return equal;
    }
    const { op, domain, outputs, module } = node;
    const draft: KeptOperator = {
      ...found,
      name: this.nameOf(node),
      op,
      domain,
      operands: node.inputs,
      outputs,
      module,
    };
    this.kept.push(draft);
    if (key !== null) this.merged.set(key, draft);
    outputs.forEach((name, index) => {
      if (name !== null && draft.types[index]) this.makers.set(name, draft);
    });
    return null;
  }

  /** The exporter's name where it is unique, else operator and ordinal. */
  private nameOf(node: SourceNode): string {
    const taken = this.repeated.has(node.name) || this.names.has(node.name) || node.name in Object.prototype;
    if (node.name !== '' && !taken) {
      this.names.add(node.name);
      return node.name;
    }
    for (;;) {
      const ordinal = this.ordinals.get(node.op) ?? 0;
      this.ordinals.set(node.op, ordinal + 1);
      const name = `${node.op}_${ordinal}`;
      if (this.names.has(name)) continue;
      this.names.add(name);
      return name;
    }
  }
}

/** A text that is equal exactly for operators that compute the same; null for operators that are never merged. */
function keyOf(node: SourceNode, { attributes, inputs }: Pick<DraftOperator, 'attributes' | 'inputs'>): string | null {
  if (NEVER_MERGED.has(operatorRole(node))) return null;
  const results = node.outputs.map((name) => (name === null ? 0 : 1)).join('');
  return `${node.domain}:${node.op}(${inputs.map(valueKey).join(',')})${attributesKey(attributes)}/${results}`;
}

function repeatedNames(nodes: readonly SourceNode[]): ReadonlySet<string> {
  const seen = new Set<string>();
  const repeated = new Set<string>();
  for (const { name } of nodes) (seen.has(name) ? repeated : seen).add(name);
  return repeated;
}
