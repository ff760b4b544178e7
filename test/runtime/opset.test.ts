/**
 * @file A model under another version of ONNX's operators: all else is the same, and older versions are never made newer.
 */
import test from 'ava';
import fc from 'fast-check';
import onnxProto from 'onnx-proto';
import { EQUAL_OPSETS, withOpset } from '../../src/runtime/opset.js';

const { onnx } = onnxProto;

function model(versions: readonly (readonly [domain: string, version: number])[], name: string): Uint8Array {
  const opsetImport = versions.map(([domain, version]) => ({ domain, version }));
  return onnx.ModelProto.encode(onnx.ModelProto.create({ irVersion: 10, producerName: name, opsetImport })).finish();
}

function versionsIn(bytes: Uint8Array): readonly (readonly [string, number])[] {
  return onnx.ModelProto.decode(bytes).opsetImport.map(({ domain, version }) => [domain ?? '', Number(version)]);
}

test("ONNX's own operators get the version, those of other domains and all else stay", (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 26 }), fc.string(), fc.boolean(), (version, name, isFirst) => {
      const own = ['', version] as const;
      const other = ['com.microsoft', 1] as const;
      const bytes = model(isFirst ? [own, other] : [other, own], name);
      for (const wanted of EQUAL_OPSETS) {
        const changed = withOpset(bytes, wanted);
        t.is(changed === null, version <= wanted);
        if (!changed) continue;
        t.deepEqual(
          versionsIn(changed),
          versionsIn(bytes).map(([domain, known]) => [domain, domain === '' ? wanted : known]),
        );
        t.is(onnx.ModelProto.decode(changed).producerName, name);
        t.is(changed.length, bytes.length);
      }
    }),
  );
});
