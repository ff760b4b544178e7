/** @file A report as one HTML file. */
import { type Page, pageHtml } from '../../pictures/page.js';
import { writeFileAtomic } from '../../program/atomic.js';
import { checkArguments, text } from '../options/kinds.js';
import { PAGE } from '../options/results.js';

export type { StepSpan } from '../../cost-model/step-spans.js';
export type { Page, PageSection } from '../../pictures/page.js';

/** @throws AutoparError (cannotWrite) */
export async function writePage(file: string, page: Page): Promise<void> {
  checkArguments('writePage', { file: [file, text], page: [page, PAGE] });
  await writeFileAtomic(file, await pageHtml(page));
}
