/**
 * @file Backends in processes of their own: their results, and how they end. The CPU's kernels run in such a process on every
 * machine; WebGPU's where there is a driver.
 */
import { spawnSync } from 'node:child_process';
import test, { type ExecutionContext } from 'ava';
import { AutoparError } from '../../src/program/values.js';
import { BACKENDS, type BackendTraits, type SegmentSource } from '../../src/runtime/backend.js';
import { type DeviceBackend, openDevice, placementsOf } from '../../src/runtime/device-client.js';
import { missing } from '../missing.js';
import { type TinyNode, tinyModel } from './tiny-program.js';
import { vulkanAbsence } from './vulkan.js';

function segment(nodes: readonly TinyNode[], weights: SegmentSource['weights'] = []): SegmentSource {
  const shape = [2, 2];
  const declared = weights.map(({ name }) => ({ name, shape }));
  const model = tinyModel(nodes, [{ name: 'x', shape }], [{ name: 'y', shape }], declared);
  const behind = nodes.map(({ op }, index) => ({ name: `model/${op}_${index}`, op, dtypes: ['float32'] as const }));
  return { id: 'tiny', file: 'tiny.onnx', model, inputs: ['x'], outputs: ['y'], nodes: behind, weights };
}

function bytes(...values: readonly number[]): Uint8Array {
  return new Uint8Array(Float32Array.from(values).buffer);
}

const never = () => false;

/** A device that ends with its test. */
async function opened(t: ExecutionContext, traits: BackendTraits, isStopped = never): Promise<DeviceBackend> {
  const device = await openDevice(traits, 0, isStopped);
  t.teardown(() => device.close());
  return device;
}

const matmul: TinyNode = { op: 'MatMul', inputs: ['x', 'w'], outputs: ['y'] };
const w = { name: 'w', data: bytes(0, 1, 1, 0) };

/** Processes of devices below this one. */
function processes(): readonly string[] {
  const { stdout } = spawnSync('ps', ['-o', 'pid=,args=', '--ppid', String(process.pid)], { encoding: 'utf8' });
  return stdout.split('\n').filter((line) => line.includes('device-process'));
}

test.serial(
  'a segment runs in a process of its own, with its weights, on parts of larger memory, and the process ends',
  async (t) => {
    const device = await opened(t, BACKENDS.cpu);
    const loaded = await device.load(segment([matmul], [w]), 1);
    const room = new Uint8Array(40);
    room.set(bytes(1, 2, 3, 4), 4);
    const [y] = await loaded.run([device.tensor('float32', [2, 2], room.subarray(4, 20))], null);
    t.deepEqual(y && device.bytes(y), bytes(2, 1, 4, 3));
    t.deepEqual(y?.shape, [2, 2]);
    t.true((device.copied?.() ?? 0) > 0);
    t.is(processes().length, 1);
    await loaded.release();
    await device.close();
    t.deepEqual(processes(), []);
  },
);

test.serial('a process that dies fails what it was asked, and what it is asked after', async (t) => {
  const device = await opened(t, BACKENDS.cpu);
  const loaded = await device.load(segment([matmul], [w]), 1);
  const pid = Number.parseInt(processes()[0] ?? '', 10);
  process.kill(pid, 'SIGSTOP');
  const running = loaded.run([device.tensor('float32', [2, 2], bytes(1, 2, 3, 4))], null);
  process.kill(pid, 'SIGKILL');
  await t.throwsAsync(running, { message: /^the process of the device ended with signal SIGKILL/ });
  await t.throwsAsync(loaded.run([], null), { message: /SIGKILL/ });
});

test.serial('a rank that is told to stop waits for nothing', async (t) => {
  let isStopped = false;
  const device = await opened(t, BACKENDS.cpu, () => isStopped);
  process.kill(Number.parseInt(processes()[0] ?? '', 10), 'SIGSTOP');
  const loading = device.load(segment([matmul], [w]), 1);
  isStopped = true;
  await t.throwsAsync(loading, { message: /SIGKILL/ });
  t.deepEqual(processes(), []);
});

test.serial('a backend that is not installed says what it needs', async (t) => {
  const device = await opened(t, BACKENDS.cuda);
  const loading = device.load(segment([matmul], [w]), 1);
  if (missing((await loading.catch(() => null)) !== null, "CUDA's absence (it is here)") === null) {
    const error = await t.throwsAsync(loading, { instanceOf: AutoparError });
    t.is(error.code, 'backend-absent');
    t.regex(error.hint ?? '', /ONNXRUNTIME_NODE_INSTALL=cuda12/);
  } else t.pass();
});

const why = missing(vulkanAbsence() !== null, vulkanAbsence() ?? '');
const onWebGpu = why === null ? test.serial : test.skip;

onWebGpu(`WebGPU computes, and not the CPU in its place${why ? `: ${why}` : ''}`, async (t) => {
  const source = segment([matmul], [w]);
  t.deepEqual(
    (await placementsOf(BACKENDS.webgpu, 0, source, never)).map(({ provider }) => provider),
    ['WebGpuExecutionProvider'],
  );
  const device = await opened(t, BACKENDS.webgpu);
  const loaded = await device.load(source, 1);
  const [y] = await loaded.run([device.tensor('float32', [2, 2], bytes(1, 2, 3, 4))], null);
  t.deepEqual(y && device.bytes(y), bytes(2, 1, 4, 3));
});

onWebGpu(`an operator without a kernel is named, and not run on the CPU${why ? `: ${why}` : ''}`, async (t) => {
  const device = await opened(t, BACKENDS.webgpu);
  const relu: TinyNode = { op: 'Relu', inputs: ['x'], outputs: ['z'] };
  const hardmax: TinyNode = { op: 'Hardmax', inputs: ['z'], outputs: ['y'] };
  const error = await t.throwsAsync(device.load(segment([relu, hardmax]), 1), { instanceOf: AutoparError });
  t.is(error.code, 'unsupported-operator');
  t.is(error.where.node, 'model/Hardmax_1');
  t.regex(error.message, /^backend webgpu has no kernel for node 'model\/Hardmax_1' \(Hardmax of float32\)/);
});

onWebGpu(
  `plainer operators run in the place of one without a kernel, and are named${why ? `: ${why}` : ''}`,
  async (t) => {
    const device = await opened(t, BACKENDS.webgpu);
    const hardmax = segment([{ op: 'Hardmax', inputs: ['x'], outputs: ['y'] }]);
    const relu = segment([{ op: 'Relu', inputs: ['x'], outputs: ['y'] }]);
    const loaded = await device.load({ ...hardmax, plain: async () => relu.model }, 1);
    t.deepEqual(loaded.substitutes, ['Hardmax, in plainer operators']);
    const [y] = await loaded.run([device.tensor('float32', [2, 2], bytes(-1, 2, -3, 4))], null);
    t.deepEqual(y && device.bytes(y), bytes(0, 2, 0, 4));
    const error = await t.throwsAsync(device.load({ ...hardmax, plain: async () => hardmax.model }, 1), {
      instanceOf: AutoparError,
    });
    t.is(error.code, 'unsupported-operator');
  },
);
