/**
 * @file Python as ruff formats it: identifiers, and statements that are wrapped where they are too long.
 */
import { HELPERS } from './operators/helpers.js';

/** As ruff.toml of an emitted program says. */
export const LINE_LENGTH = 120;

const KEYWORDS = [
  ...'False None True and as assert async await break class continue def del elif else except finally for from'.split(
    ' ',
  ),
  ...'global if import in is lambda nonlocal not or pass raise return try while with yield match case type'.split(' '),
];

/** Attributes of torch.nn.Module, and of emitted modules. */
const ATTRIBUTES = [
  ...'T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda device double'.split(
    ' ',
  ),
  ...'dump_patches eval extra_repr float forward backward recompute update get_buffer get_extra_state'.split(' '),
  ...'get_parameter get_submodule half ipu load_state_dict modules mtia named_buffers named_children named_modules'.split(
    ' ',
  ),
  ...'named_parameters parameters register_backward_hook register_buffer register_forward_hook'.split(' '),
  ...'register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook'.split(' '),
  ...'register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter'.split(
    ' ',
  ),
  ...'register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ run set_extra_state'.split(' '),
  ...'set_submodule share_memory state_dict to to_empty train training type xpu zero_grad'.split(' '),
];

/** Names that methods of emitted modules use. */
const NAMES = [
  ...Object.keys(HELPERS),
  ...'self step micro mesh progress torch nn attach declare wait_for Values F tuple accumulate send receive to_disk'.split(
    ' ',
  ),
  ...'all_reduce all_gather reduce_scatter all_to_all permute list dict int bool layouts read_schedule reduce broadcast'.split(
    ' ',
  ),
];

const ATTRIBUTE_RESERVED: ReadonlySet<string> = new Set([...KEYWORDS, ...ATTRIBUTES]);
const RESERVED: ReadonlySet<string> = new Set([...ATTRIBUTE_RESERVED, ...NAMES]);

/** A Python identifier like a text. */
export function identifier(text: string): string {
  return unreserved(text, RESERVED);
}

/** A name of a module's attribute like a text: functions may have the same. */
export function attributeName(text: string): string {
  return unreserved(text, ATTRIBUTE_RESERVED);
}

function unreserved(text: string, reserved: ReadonlySet<string>): string {
  const plain = text.replace(/[^A-Za-z0-9_]+/g, '_').replace(/^_+|_+$/g, '');
  const named = /^[A-Za-z]/.test(plain) ? plain : `v_${plain}`;
  return reserved.has(named) ? `${named}_` : named;
}

/** `LayerNormalization` → `layer_normalization`. */
export function snakeCase(text: string): string {
  const words = text.replace(/([a-z0-9])([A-Z])/g, '$1_$2').replace(/([A-Z]+)([A-Z][a-z])/g, '$1_$2');
  return identifier(words.toLowerCase());
}

/** Gives names that are not taken: the wanted one, else one with a number behind it. */
export class Names {
  private readonly taken = new Set<string>();
  private readonly counts = new Map<string, number>();

  take(wanted: string): string {
    let name = wanted;
    for (let count = this.counts.get(wanted) ?? 1; this.taken.has(name); count++) {
      this.counts.set(wanted, count + 1);
      name = `${wanted}_${count}`;
    }
    this.taken.add(name);
    return name;
  }
}

/** Gives dotted paths of parameters: none is a parameter and a module of another one. */
export class PathNames {
  private readonly parameters = new Set<string>();
  private readonly modules = new Set<string>();

  /** @param taken paths of parameters that modules have already */
  constructor(taken: Iterable<string> = []) {
    for (const path of taken) this.add(path);
  }

  take(wanted: string): string {
    const parts = wanted.split('.');
    const last = parts.pop() as string;
    let inside = '';
    for (const part of parts) {
      let own = `${inside}${part}`;
      while (this.parameters.has(own)) own = `${own}_`;
      inside = `${own}.`;
    }
    let path = `${inside}${last}`;
    for (let count = 1; this.parameters.has(path) || this.modules.has(path); count++)
      path = `${inside}${last}_${count}`;
    this.add(path);
    return path;
  }

  private add(path: string): void {
    this.parameters.add(path);
    for (let dot = path.lastIndexOf('.'); dot > 0; dot = path.lastIndexOf('.', dot - 1))
      this.modules.add(path.slice(0, dot));
  }
}

/** A statement in lines of at most LINE_LENGTH columns, with a comment behind it, or ahead of it where there is no room. */
export function statement(text: string, indent: string, comment = ''): readonly string[] {
  const line = `${indent}${text}`;
  const noted = comment === '' ? line : `${line}  # ${comment}`;
  if (noted.length <= LINE_LENGTH) return [noted];
  const ahead = comment === '' ? [] : [`${indent}# ${comment}`];
  return [...ahead, ...(line.length <= LINE_LENGTH ? [line] : cutLines(line, indent))];
}

/** Deletions in lines of at most LINE_LENGTH columns. */
export function deletion(names: readonly string[], indent: string): readonly string[] {
  const lines: string[] = [];
  for (const name of names) {
    const longer = `${lines.at(-1)}, ${name}`;
    if (lines.length > 0 && longer.length <= LINE_LENGTH) lines[lines.length - 1] = longer;
    else lines.push(`${indent}del ${name}`);
  }
  return lines;
}

/** As ruff wraps it: at its last bracket, all arguments in one line where there is room, else one in each. */
function cutLines(line: string, indent: string): readonly string[] {
  const listed = /^( *)return (.*)$/.exec(line);
  if (listed && !/[([]/.test(line)) return cutLines(`${listed[1]}return (${listed[2]},)`, indent);
  const [, target = '', value = ''] = /^( *[^=]* = )(.*)$/.exec(line) ?? [];
  const links = linksOf(value);
  if (links.length > 2)
    return [`${target}(`, ...links.flatMap((link) => statement(link, `${indent}    `)), `${indent})`];
  const openings = openingsIn(line);
  const open = openings.findLast((at) => at < LINE_LENGTH);
  const isPastTargets = (openings.at(-1) ?? 0) >= LINE_LENGTH && /^[^=([]*, [^=([]* = /.test(line);
  if (isPastTargets) return cutTargets(line, indent);
  if (open === undefined) return [line];
  const close = closing(line, open);
  const head = line.slice(0, open + 1);
  const body = line.slice(open + 1, close);
  const inner = `${indent}    `;
  const parts = argumentsIn(body);
  if (`${inner}${body}`.length <= LINE_LENGTH && !body.endsWith(','))
    return [head, `${inner}${body}`, `${indent}${line.slice(close)}`];
  // The rest of a comprehension is no argument, though its loop may have commas.
  const loop = outside(parts[0] ?? '', (at, part) => part.startsWith(' for ', at))[0];
  if (loop !== undefined) {
    const lines = [body.slice(0, loop), body.slice(loop + 1)].flatMap((part) => {
      const row = `${inner}${part}`;
      return row.length <= LINE_LENGTH ? [row] : cutLines(row, inner);
    });
    return [head, ...lines, `${indent}${line.slice(close)}`];
  }
  const rows = parts.flatMap((part) => {
    const row = `${inner}${part},`;
    return row.length <= LINE_LENGTH ? [row] : cutLines(row, inner);
  });
  return [head, ...rows, `${indent}${line.slice(close)}`];
}

/** An assignment to more names than a line holds. */
function cutTargets(line: string, indent: string): readonly string[] {
  const [targets = '', value = ''] = line.trimStart().split(' = ');
  const tail = statement(`) = ${value}`, indent);
  return [`${indent}(`, ...targets.split(', ').map((target) => `${indent}    ${target},`), ...tail];
}

/** Brackets that stand in no other ones. */
function openingsIn(line: string): readonly number[] {
  return outside(line, (at) => '([{'.includes(line[at] as string));
}

/** A value in the parts that ruff puts in lines of their own: from each dot behind a bracket on. */
function linksOf(value: string): readonly string[] {
  const isChain = outside(value.replace(/^yield from /, ''), (at, text) => text[at] === ' ').length === 0;
  const dots = isChain ? outside(value, (at) => /^[)\]]\.$/.test(value.slice(at - 1, at + 1))) : [];
  return [0, ...dots].map((from, index) => value.slice(from, dots[index]));
}

/** Places outside of brackets, where an opening bracket is too. */
function outside(line: string, isWanted: (at: number, line: string) => boolean): readonly number[] {
  const places: number[] = [];
  let depth = 0;
  for (let at = 0; at < line.length; at++) {
    if (depth === 0 && isWanted(at, line)) places.push(at);
    if ('([{'.includes(line[at] as string)) depth++;
    // A line may begin with the bracket that closes another.
    if (')]}'.includes(line[at] as string)) depth = Math.max(0, depth - 1);
  }
  return places;
}

function closing(line: string, open: number): number {
  let depth = 0;
  for (let at = open; at < line.length; at++) {
    if ('([{'.includes(line[at] as string)) depth++;
    if (')]}'.includes(line[at] as string) && --depth === 0) return at;
  }
  return line.length;
}

function argumentsIn(body: string): readonly string[] {
  const parts: string[] = [];
  let depth = 0;
  let from = 0;
  for (let at = 0; at < body.length; at++) {
    const character = body[at] as string;
    if ('([{'.includes(character)) depth++;
    if (')]}'.includes(character)) depth--;
    if (character === ',' && depth === 0 && !/^ *lambda [^:]*$/.test(body.slice(from, at))) {
      parts.push(body.slice(from, at).trim());
      from = at + 1;
    }
  }
  const rest = body.slice(from).trim();
  return rest === '' ? parts : [...parts, rest];
}

/** `NAME = (a, b)`. */
export function assignment(name: string, open: string, items: readonly string[], close: string): string {
  const comma = open === '(' && items.length === 1 ? ',' : '';
  return statement(`${name} = ${open}${items.join(', ')}${comma}${close}`, '').join('\n');
}

/** The imports of torch that a file's text needs. */
export function torchImports(text: string): readonly string[] {
  return [
    ...(/\btorch\./.test(text) ? ['import torch'] : []),
    ...(/\bF\./.test(text) ? ['import torch.nn.functional as F'] : []),
  ];
}
