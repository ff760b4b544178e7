/**
 * @file Canonical columns: written rows are read again, and values that no run can have are refused with the field.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { publishedRun } from '../../../bench/published/run.js';
import { tableRows } from '../../../bench/published/table.js';
import { COLUMNS, recordOfRow, rowOf } from '../../../src/api/calibration/columns.js';
import { csvTable, csvText } from '../../../src/api/calibration/csv.js';
import { measuredRow } from '../../../src/api/calibration/run.js';
import { ROOT } from '../../cli/autopar.js';

const RAW = join(ROOT, 'bench/published/raw');
const names = COLUMNS.map(({ name }) => name);

test('canonical rows of published tables say the same as a file, whatever is left out of it that none has', (t) => {
  const rows = readdirSync(RAW).flatMap((file) =>
    tableRows(readFileSync(join(RAW, file), 'utf8')).flatMap((row) => {
      const run = publishedRun(row, file);
      return typeof run === 'string' ? [] : [run.canonical];
    }),
  );
  t.true(rows.length > 200);
  const again = csvTable(csvText(names, rows)).rows;
  t.is(again.length, rows.length);
  for (const [index, row] of rows.entries()) {
    t.deepEqual(measuredRow(again[index] ?? {}), measuredRow(row));
    const record = recordOfRow(row);
    if (typeof record === 'string') t.fail(record);
    else t.deepEqual(rowOf(record), row);
    t.regex(row['why'] ?? '', /^device from gpu_type "/);
  }
});

test('a row needs little; the rest has the defaults of simulate', (t) => {
  const row = {
    ...{ device: 'h100-sxm-80', devices: '16', model: 'mine', layers: '4', hidden: '512', heads: '8', ffn: '2048' },
    ...{ vocab: '1024', seq: '256', micro_batch: '2', global_batch: '64', tp: '2', seconds: '0.5' },
  };
  const run = measuredRow(row);
  if (typeof run === 'string') return t.fail(run);
  t.deepEqual(run.configuration.degrees, { tp: 2, pp: 1, sp: 1, dp: 8, ep: 1 });
  const { precision, software, attention, recompute, tpSequence } = run.configuration;
  t.deepEqual(
    [precision, software, attention, recompute, tpSequence],
    ['bf16', 'megatron-core', 'fused', 'none', true],
  );
  t.deepEqual([run.sizes.headWidth, run.sizes.keyHeads, run.sizes.batch, run.seconds], [64, 8, 2, 0.5]);
  t.deepEqual([run.cluster.nodes, run.cluster.perNode], [2, 8]);
  for (const [change, says] of [
    [{ tp: '3' }, 'degrees do not multiply to the devices'],
    [{ tp: '2.5' }, 'tp is 2.5, where a whole number from 1 is expected'],
    [{ tp: '1e300' }, 'tp is 1e300, where a whole number from 1 is expected'],
    [{ precision: 'BF16' }, 'precision is BF16, where one of fp32, bf16, fp16, fp8, fp4 is expected'],
    [{ gated: '1' }, 'gated is 1, where yes or no is expected'],
    [{ pattern: 'M?' }, 'pattern is M?, where letters M, *, - and E, or layers such as attention+experts is expected'],
    [{ hidden: '500' }, 'heads do not divide the hidden size'],
    [{ pp: '8', tp: '1' }, 'more stages than layers'],
    [{ vocab: '' }, 'vocab is not stated'],
    [{ layers: '1e9' }, 'layers is 1e9, where a whole number from 1 to 4096 is expected'],
    [{ zero: '9' }, 'zero is 9, where a whole number from 0 to 3 is expected'],
    [{ gradients: '3' }, 'gradients is 3, where 2 or 4 is expected'],
    [{ experts: '8' }, 'topk is not stated'],
    [{ shared: '0' }, 'experts is not stated'],
    [{ latent_query: '8' }, 'latent_kv is not stated'],
  ] as const)
    t.is(measuredRow({ ...row, ...change }), says);
});

test('experts that say no more are in every layer and share none', (t) => {
  const run = measuredRow({
    ...{ device: 'h100-sxm-80', devices: '8', model: 'mine', layers: '4', hidden: '512', heads: '8', ffn: '2048' },
    ...{ vocab: '1024', seq: '256', micro_batch: '1', global_batch: '8', experts: '8', topk: '2', expert_ffn: '64' },
  });
  if (typeof run === 'string') return t.fail(run);
  t.deepEqual(run.sizes.experts, { count: 8, chosen: 2, feedForward: 64, shared: 0, dense: 0 });
});

test('a table is refused where it is none', (t) => {
  t.deepEqual(csvTable('a,b\r\n1,"x, ""y"""\r\n\r\n').rows, [{ a: '1', b: 'x, "y"' }]);
  t.throws(() => csvTable('a,a\n1,2\n'), { message: /two columns are a/ });
  t.throws(() => csvTable('a,b\n1,2,3\n'), { message: 'row 1 has 3 fields for 2 columns' });
});
