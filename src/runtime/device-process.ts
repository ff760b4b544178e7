/**
 * @file Entry of the separate process for a rank's GPU: it loads segments and runs them on command. One process per
 * device, since a second session of WebGPU in another thread crashes, and CUDA's devices are chosen once per process.
 */
import type * as Ort from 'onnxruntime-node';
import { BACKENDS, type Backend, type LoadedSegment } from './backend.js';
import type { DeviceAnswer, DeviceCommand, HostTensor } from './device-messages.js';
import { plainError } from './messages.js';
import { fromOrtTensor, makeOrtBackend } from './ort-backend.js';

// The rank decides when it ends: a terminal's Ctrl-C reaches this process too, while the caller still waits for an answer.
process.on('SIGINT', () => undefined);
process.on('disconnect', () => process.exit(0));
process.on('message', (command: DeviceCommand) => void answer(command));

const segments = new Map<number, LoadedSegment<Ort.Tensor>>();
let backend: Backend<Ort.Tensor> | null = null;

async function answer(command: DeviceCommand): Promise<void> {
  const { call } = command;
  try {
    const from = performance.now();
    const outputs = await obey(command);
    send({ call, error: null, outputs, milliseconds: performance.now() - from });
  } catch (error) {
    send({ call, error: plainError(error) });
  }
}

async function obey(command: DeviceCommand): Promise<readonly HostTensor[]> {
  if (command.kind === 'open') {
    backend = await makeOrtBackend(BACKENDS[command.backend], command.device, command.explain);
    return [];
  }
  if (!backend) throw new Error('no backend is open');
  if (command.kind === 'load') {
    segments.set(command.segment, await backend.load(command.source, command.threads));
    return [];
  }
  const segment = segments.get(command.segment);
  if (!segment) throw new Error(`segment ${command.segment} is not loaded`);
  if (command.kind === 'release') {
    segments.delete(command.segment);
    await segment.release();
    return [];
  }
  const { tensor } = backend;
  // Bytes arrive at any offset of a message, and typed arrays want theirs aligned.
  const inputs = command.inputs.map(({ dtype, shape, bytes }) => tensor(dtype, shape, Uint8Array.from(bytes)));
  const results = await segment.run(inputs, null);
  return results.map((result) => {
    const { dtype, shape, data } = fromOrtTensor(result);
    return { dtype, shape, bytes: asBuffer(data) };
  });
}

/** For a plain view the whole memory behind it would be sent. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function send(message: DeviceAnswer): void {
  process.send?.(message);
}
