import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { SHIPPED_MODELS } from '../../models/shipped.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { ROOT } from '../cli/autopar.js';

for (const [file, build] of Object.entries(SHIPPED_MODELS)) {
  test(`${file} is what its generator writes, byte for byte`, (t) => {
    const committed = readFileSync(join(ROOT, 'models', file));
    const written = writeOnnx(build());
    t.true(
      committed.equals(written),
      `npm run models writes it anew (${committed.length} and ${written.length} bytes)`,
    );
  });
}

test('the shipped models are small', (t) => {
  const bytes = Object.keys(SHIPPED_MODELS).map((file) => readFileSync(join(ROOT, 'models', file)).length);
  t.true(bytes.reduce((sum, size) => sum + size, 0) < 400_000);
});
