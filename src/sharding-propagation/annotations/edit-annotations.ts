/**
 * @file Writing annotations: pins are added to a file or replaced in it, and everything else, comments included, stays as its
 * author left it. A file that is JSON stays JSON.
 */
import type { Document, Pair, YAMLMap, YAMLSeq } from 'yaml';
import { AutoparError } from '../../ir/error.js';
import { ANNOTATIONS_VERSION, type AnnotationRecord, MATCH_KINDS, type PinRecord } from './annotation.js';
import { annotationsIn } from './read-annotations.js';
import { parseDocument, parseYaml } from './yaml-source.js';

export interface AnnotationEdit {
  /** A pin replaces the one of the file that matches the same; others are added after the last. */
  readonly pins: readonly PinRecord[];
  /** Degrees to fix; those that are not named stay. */
  readonly mesh?: AnnotationRecord['mesh'];
  /** Matches whose pins are taken out. */
  readonly remove?: readonly PinRecord['match'][];
}

/** The text of a new file. @throws AutoparError (input) `bad-annotations` for invalid pins */
export async function writeAnnotations(record: AnnotationRecord): Promise<string> {
  annotationsIn({ file: null, value: record, lineOf: () => null });
  const { Document } = await import('yaml');
  const document = new Document({});
  document.set('version', ANNOTATIONS_VERSION);
  if (record.mesh && Object.keys(record.mesh).length > 0) document.set('mesh', flow(document, record.mesh));
  document.set('pins', document.createNode([]));
  const pins = document.get('pins') as YAMLSeq;
  for (const pin of record.pins) pins.items.push(pinNode(document, pin));
  return document.toString(STYLE);
}

/**
 * The text of a file with pins added, replaced and removed. Keys of a replaced pin that keep their value keep their comments.
 * @throws AutoparError (input) where the text is not valid, before or after
 */
export async function editAnnotations(text: string, file: string, edit: AnnotationEdit): Promise<string> {
  const { pins: added, mesh } = edit;
  if (text.trim() === '')
    return writeAnnotations({ version: ANNOTATIONS_VERSION, pins: added, ...(mesh ? { mesh } : {}) });
  annotationsIn(await parseYaml(text, file));
  const json = jsonOf(text);
  if (json) return editJson(json, edit);
  const { document } = await parseDocument(text, file);
  const pins = document.get('pins', true) as YAMLSeq | undefined;
  if (!pins || !Array.isArray(pins.items))
    throw new AutoparError(
      'bad-annotations',
      'input',
      'the pins are an alias, which cannot be edited',
      { file },
      'write the pins as a list under the key pins',
    );
  let changed = false;
  for (const match of edit.remove ?? []) {
    const index = indexOf(pins, match, document);
    if (index < 0) continue;
    pins.items.splice(index, 1);
    changed = true;
  }
  for (const pin of added) {
    const index = indexOf(pins, pin.match, document);
    if (index < 0) pins.items.push(pinNode(document, pin));
    const updated = index < 0 || updatePin(document, pins.items[index] as YAMLMap, pin);
    changed ||= updated;
  }
  if (changed && pins.items.length > 0) pins.flow = false;
  for (const [axis, size] of Object.entries(mesh ?? {})) {
    if (document.getIn(['mesh', axis]) === size) continue;
    document.setIn(['mesh', axis], size);
    changed = true;
  }
  if (!changed) return text;
  const written = document.toString({ ...STYLE, ...indentOf(text) });
  annotationsIn(await parseYaml(written, file));
  return written;
}

/** Lines are never folded: a long line of the author's stays one line. */
const STYLE = { lineWidth: 0, flowCollectionPadding: false } as const;

/** How far the author indents lists and mappings. */
function indentOf(text: string): { readonly indent: number; readonly indentSeq: boolean } {
  const [, before = '  ', after = ' '] = /^pins:.*\n(?:\s*#.*\n|\s*\n)*( *)-( +)/m.exec(text) ?? [];
  return { indent: Math.max(2, before.length, after.length + 1), indentSeq: before.length > 0 };
}

/** Keys in the order in which people write them. */
const ORDER: readonly (keyof PinRecord)[] = [
  'match',
  'layout',
  'split',
  'map',
  'factors',
  'style',
  'stage',
  'chunk',
  'recompute',
  'place',
  'priority',
  'why',
];

function pinNode(document: Document, pin: PinRecord): YAMLMap {
  const node = document.createNode({}) as YAMLMap;
  for (const key of ORDER) if (pin[key] !== undefined) node.set(key, flow(document, pin[key]));
  return node;
}

/** Values are written on one line: `{module: h.*.mlp}`. */
function flow(document: Document, value: unknown): unknown {
  const node = document.createNode(value);
  if (typeof node === 'object' && node !== null && 'flow' in node) node.flow = true;
  return node;
}

function indexOf(pins: YAMLSeq, match: PinRecord['match'], document: Document): number {
  return pins.items.findIndex((item) => {
    const own = (plain(item, document) as { readonly match?: PinRecord['match'] } | null)?.match;
    return own !== undefined && MATCH_KINDS.every((kind) => own[kind] === match[kind]);
  });
}

/** Changes a pin's node to `pin`; false where they are equal already. */
function updatePin(document: Document, node: YAMLMap, pin: PinRecord): boolean {
  const before = plain(node, document) as Readonly<Record<string, unknown>>;
  const gone = node.items.filter((pair: Pair) => pin[String(pair.key) as keyof PinRecord] === undefined);
  for (const pair of gone) node.delete(pair.key);
  const differing = ORDER.filter(
    (key) => pin[key] !== undefined && JSON.stringify(pin[key]) !== JSON.stringify(before[key]),
  );
  for (const key of differing) {
    const old = node.get(key, true) as
      | { readonly comment?: string | null; readonly commentBefore?: string | null }
      | undefined;
    const value = flow(document, pin[key]) as { comment?: string | null; commentBefore?: string | null };
    if (old?.comment) value.comment = old.comment;
    if (old?.commentBefore) value.commentBefore = old.commentBefore;
    node.set(key, value);
  }
  return gone.length > 0 || differing.length > 0;
}

function plain(node: unknown, document: Document): unknown {
  return (node as { readonly toJS?: (document: Document) => unknown } | null)?.toJS?.(document) ?? null;
}

/** The record of a file that is JSON; null for YAML. */
function jsonOf(text: string): AnnotationRecord | null {
  if (!text.trimStart().startsWith('{')) return null;
  try {
    return JSON.parse(text) as AnnotationRecord;
  } catch {
    return null;
  }
}

function editJson(record: AnnotationRecord, edit: AnnotationEdit): string {
  const same = (one: PinRecord['match'], other: PinRecord['match']) =>
    MATCH_KINDS.every((kind) => one[kind] === other[kind]);
  const kept = record.pins.filter((pin) => !(edit.remove ?? []).some((match) => same(match, pin.match)));
  const replaced = kept.map((pin) => edit.pins.find((other) => same(other.match, pin.match)) ?? pin);
  const added = edit.pins.filter((pin) => !kept.some((other) => same(other.match, pin.match)));
  const mesh = { ...record.mesh, ...edit.mesh };
  const edited = { ...record, ...(Object.keys(mesh).length > 0 ? { mesh } : {}), pins: [...replaced, ...added] };
  return `${JSON.stringify(edited, null, 2)}\n`;
}
