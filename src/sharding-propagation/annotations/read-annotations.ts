/**
 * @file Reading annotations: from a file, or from data that a program holds. The form is checked here; whether names, axes
 * and shapes fit is known once there are a graph and a mesh (resolve-annotations.ts).
 */
import { AutoparError } from '../../ir/error.js';
import { schemaCheck } from '../../ir/schema-check.js';
import {
  ANNOTATIONS_VERSION,
  type AnnotationRecord,
  type Annotations,
  MATCH_KINDS,
  NOTATIONS,
  type PinAnnotation,
  type PinRecord,
} from './annotation.js';
import { ANNOTATIONS_SCHEMA } from './annotation-schema.js';
import { schemaFault } from './schema-errors.js';
import { readYaml, type YamlPath, type YamlSource } from './yaml-source.js';

/**
 * Reads a YAML or JSON file.
 * @throws AutoparError (input): `file-missing`, `bad-yaml`, `annotations-newer`, `bad-annotations` with file and line
 */
export async function readAnnotations(file: string): Promise<Annotations> {
  return annotationsIn(await readYaml(file));
}

/** Annotations given as data, in the form of the file. @throws AutoparError (input) as `readAnnotations` */
export function annotationsOf(record: AnnotationRecord): Annotations {
  return annotationsIn({ file: null, value: record, lineOf: () => null });
}

/** Checks a document that was read already. @throws AutoparError (input) as `readAnnotations` */
export function annotationsIn(source: Omit<YamlSource, 'file'> & { readonly file: string | null }): Annotations {
  const { file, value, lineOf } = source;
  checkVersion(source);
  const validate = validator();
  if (!validate(value)) {
    const fault = schemaFault(validate.errors ?? [], lineOf);
    throw malformed(source, fault.path, fault.sentence, fault.hint ?? undefined);
  }
  const pins = value.pins.map((pin, index) => pinOf(pin, index, source));
  return { file, mesh: value.mesh ?? {}, meshLine: lineOf(['mesh']), pins };
}

const validator = schemaCheck<AnnotationRecord>(ANNOTATIONS_SCHEMA, { allErrors: true, verbose: true });

function checkVersion({ file, value, lineOf }: Omit<YamlSource, 'file'> & { readonly file: string | null }): void {
  const version = (value as { readonly version?: unknown } | null)?.version;
  if (typeof version !== 'number' || version <= ANNOTATIONS_VERSION) return;
  const line = lineOf(['version']);
  throw new AutoparError(
    'annotations-newer',
    'input',
    `the annotations have version ${version}; this autopar reads up to version ${ANNOTATIONS_VERSION}`,
    { ...(file ? { file } : {}), ...(line ? { line } : {}) },
    'update autopar, or write them in version 1 (docs/annotations.md)',
  );
}

function pinOf(pin: PinRecord, index: number, source: Pick<YamlSource, 'lineOf'> & { readonly file: string | null }) {
  const path: YamlPath = ['pins', index];
  const [kind] = MATCH_KINDS.filter((candidate) => pin.match[candidate] !== undefined);
  if (kind === undefined) throw new Error('the schema requires a match of each pin');
  const keys = Object.keys(pin) as (keyof PinRecord)[];
  const lines = Object.fromEntries(
    keys.flatMap((key) => {
      const line = source.lineOf([...path, key]);
      return line === null ? [] : [[key, line] as const];
    }),
  );
  const annotation: PinAnnotation = {
    ...pin,
    index,
    line: source.lineOf(path),
    lines,
    target: { kind, glob: pin.match[kind] ?? '' },
  };
  const misplaced = misplacedKey(annotation);
  if (misplaced)
    throw malformed(source, [...path, misplaced.key], `pins[${index}]${misplaced.sentence}`, misplaced.hint);
  return annotation;
}

interface Misplaced {
  readonly key: keyof PinRecord;
  readonly sentence: string;
  readonly hint: string;
}

/** A key that does not apply to the targets of the pin. */
function misplacedKey(pin: PinAnnotation): Misplaced | null {
  const { kind } = pin.target;
  const has = (key: keyof PinRecord) => pin[key] !== undefined;
  if (![...NOTATIONS, 'stage' as const, 'chunk' as const, 'recompute' as const, 'place' as const].some(has))
    return {
      key: 'match',
      sentence: ' requests nothing',
      hint: `give it one of ${NOTATIONS.join(', ')}, stage, recompute, place`,
    };
  const notOnTensors = (['factors', 'style', 'stage', 'chunk', 'recompute', 'place'] as const).find(has);
  if (kind === 'tensor' && notOnTensors)
    return {
      key: notOnTensors,
      sentence: `.${notOnTensors} applies to operators, and the pin matches tensors`,
      hint: 'match by node, module or op, or give the tensor a layout, split or map',
    };
  if (has('chunk') && !has('stage'))
    return {
      key: 'chunk',
      sentence: '.chunk needs a stage, and the pin has none',
      hint: 'give the pin a stage as well',
    };
  const notOnModules = (['layout', 'split', 'map'] as const).find(has);
  if (kind === 'module' && notOnModules)
    return {
      key: notOnModules,
      sentence: `.${notOnModules} applies to one tensor or operator, and the pin matches modules`,
      hint: 'match by node or tensor, or give the module a style or factors',
    };
  return null;
}

function malformed(
  { file, lineOf }: Pick<YamlSource, 'lineOf'> & { readonly file: string | null },
  path: YamlPath,
  sentence: string,
  hint = 'docs/annotations.md describes the form',
): AutoparError {
  const line = lineOf(path);
  return new AutoparError(
    'bad-annotations',
    'input',
    sentence,
    { ...(file ? { file } : {}), ...(line ? { line } : {}) },
    hint,
  );
}
