/**
 * @file `npm run models`: writes the small models of models/ anew, byte for byte as they are committed.
 */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { SHIPPED_MODELS } from '../models/shipped.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

for (const [file, build] of Object.entries(SHIPPED_MODELS)) {
  const bytes = writeOnnx(build());
  writeFileSync(join(root, 'models', file), bytes);
  console.log(`models/${file}  ${bytes.length} bytes`);
}
