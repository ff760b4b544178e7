/**
 * @file A page of pictures and tables that needs nothing besides: the script that draws, the pictures' data, and the object that
 * `--json` prints, all in one file. Every picture's figures stand in a table too.
 */
import { chartScript, type Picture } from './picture.js';
import { escaped } from './timeline.js';

export interface Page {
  readonly title: string;
  /** Facts at the top of the page: names with their values. */
  readonly facts: readonly (readonly [name: string, value: string])[];
  readonly sections: readonly PageSection[];
  /** The object for programs. */
  readonly json: unknown;
}

export interface PageSection {
  readonly heading: string;
  readonly says?: string;
  readonly picture?: Picture;
  /** In pixels. */
  readonly height?: number;
  readonly table?: PageTable;
}

export interface PageTable {
  readonly columns: readonly { readonly title: string; readonly right?: boolean }[];
  readonly rows: readonly (readonly string[])[];
}

/** The page as HTML. */
export async function pageHtml({ title, facts, sections, json }: Page): Promise<string> {
  const pictures = sections.flatMap(({ picture }) => (picture ? [picture] : []));
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${escaped(title)}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
<h1>${escaped(title)}</h1>
<dl>
${facts.map(([name, value]) => `<dt>${escaped(name)}</dt><dd>${escaped(value)}</dd>`).join('\n')}
</dl>
${sections.map((section) => sectionHtml(section, pictures)).join('\n')}
</main>
<script type="application/json" id="pictures">${inScript(pictures)}</script>
<script type="application/json" id="report">${inScript(json)}</script>
<script>${(await chartScript()).replaceAll('</script', '<\\/script')}
charts.drawPage();</script>
</body>
</html>
`;
}

function sectionHtml(
  { heading, says, picture, height = 320, table }: PageSection,
  pictures: readonly Picture[],
): string {
  const place = picture
    ? `<div role="img" aria-label="${escaped(heading)}" data-picture="${pictures.indexOf(picture)}" ` +
      `style="height:${height}px"></div>`
    : '';
  const text = says === undefined ? '' : `<p>${escaped(says)}</p>`;
  const open = picture ? '' : ' open';
  const below = table ? `<details${open}><summary>as a table</summary>${tableHtml(heading, table)}</details>` : '';
  return `<section>\n<h2>${escaped(heading)}</h2>\n${text}${place}${below}\n</section>`;
}

/** It scrolls by keyboard: in every browser an element with a tab index can be focused. */
function tableHtml(name: string, { columns, rows }: PageTable): string {
  const cells = (tag: 'th' | 'td', row: readonly string[]) =>
    row
      .map((cell, index) => `<${tag}${columns[index]?.right ? ' class="right"' : ''}>${escaped(cell)}</${tag}>`)
      .join('');
  const head = cells(
    'th',
    columns.map(({ title }) => title),
  );
  return `<div class="wide" tabindex="0" role="region" aria-label="${escaped(name)}"><table><thead><tr>${head}</tr></thead><tbody>
${rows.map((row) => `<tr>${cells('td', row)}</tr>`).join('\n')}
</tbody></table></div>`;
}

/** JSON that cannot end the script that it is in. */
function inScript(value: unknown): string {
  return JSON.stringify(value).replaceAll('<', '\\u003c');
}

const STYLE = `
:root { color-scheme: light dark; --line: #d8dbe0; --dim: #5b6270; }
@media (prefers-color-scheme: dark) { :root { --line: #3a3f4a; --dim: #a3a9b6; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 1100px; margin: 0 auto; padding: 16px 24px 64px; }
h1 { font-size: 22px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 36px 0 8px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; }
dt { color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; }
p { color: var(--dim); margin: 0 0 8px; }
.wide { overflow-x: auto; max-height: 520px; }
table { border-collapse: collapse; font-size: 13px; }
th, td { text-align: left; padding: 3px 12px 3px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { position: sticky; top: 0; background: Canvas; }
td { overflow-wrap: anywhere; min-width: 60px; }
.right { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
summary { cursor: pointer; color: var(--dim); }
`;
