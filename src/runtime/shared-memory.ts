/**
 * @file The transport between worker threads of one process.
 *
 * Every rank has a region of shared memory with its slots, and per slot three counters that only it advances:
 *
 *     published   its input for use number u is in the slot
 *     reduced     its chunk of a large all-reduce is done
 *     read        it has read all inputs of use u
 *
 * A use of a slot is: wait until those who read the previous use have read it; copy in; published = u. Then: wait until
 * all members have published u; combine; read = u. So nobody overwrites what a slower rank still reads, and no rank waits
 * for one that is not in its group.
 *
 * A large all-reduce is done by chunks: member k reduces chunk k of all inputs into its own slot (only it reads that
 * chunk of it), sets `reduced`, and all members copy the chunks out. All inputs are combined in member order, so that all ranks
 * get the same bits either way.
 *
 * Members of a reduce write their inputs to the first one's slot, one behind the other; it alone reads them. For a broadcast, the
 * first one's input is the only one.
 *
 * For an all-to-all of filled and empty rows, members find the slices for them one behind the other, each packed
 * where that makes it shorter (filled-rows.ts).
 *
 * Between stages tensors travel as messages, for a sender must not wait for its receiver.
 */
import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import { reduceElementwise } from '../program/reduce.js';
import { byteLength } from '../program/values.js';
import { combine, sliceFor } from './combine.js';
import type { Control } from './control.js';
import { packRows, unpackRows } from './filled-rows.js';
import { bytesSent, type CollectiveCall, gives, type TransferCall, type Transport, takes } from './transport.js';

/** The memory that the ranks of one stage share. Ranks of the stage are `firstRank`, `firstRank` + 1, … */
export interface SharedRegions {
  readonly firstRank: number;
  readonly counters: SharedArrayBuffer;
  /** One per rank. */
  readonly regions: readonly SharedArrayBuffer[];
  /** By rank: where each slot begins in its region, in bytes. */
  readonly offsets: readonly (readonly number[])[];
}

/** The line to one rank of another stage. */
export interface PeerLine {
  readonly peer: number;
  readonly port: MessagePort;
  /** Messages sent to the peer and by the peer so far: one Int32 each. */
  readonly sent: SharedArrayBuffer;
  readonly received: SharedArrayBuffer;
}

/** @param capacities by rank: bytes of each slot; all ranks have as many */
export function makeRegions(firstRank: number, capacities: readonly (readonly number[])[]): SharedRegions {
  const placed = capacities.map((own) => {
    let size = 0;
    const offsets = own.map((capacity) => {
      const offset = size;
      size += Math.ceil(capacity / ALIGNMENT) * ALIGNMENT;
      return offset;
    });
    return { size, offsets };
  });
  const slots = capacities.reduce((sum, own) => sum + own.length, 0);
  return {
    firstRank,
    counters: new SharedArrayBuffer(Math.max(1, slots) * LINE * Int32Array.BYTES_PER_ELEMENT),
    regions: placed.map(({ size }) => new SharedArrayBuffer(size)),
    offsets: placed.map(({ offsets }) => offsets),
  };
}

/** The transport of one rank. */
export class SharedMemoryTransport implements Transport {
  private readonly counters: Int32Array;
  /** Per slot: how often it was used, and by which group last. */
  private readonly slots: number;
  private readonly uses: number[];
  private readonly readers: (readonly number[])[];
  private readonly lines: ReadonlyMap<number, Line>;
  private milliseconds = 0;

  constructor(
    private readonly shared: SharedRegions,
    private readonly rank: number,
    private readonly control: Control,
    lines: readonly PeerLine[] = [],
  ) {
    this.counters = new Int32Array(shared.counters);
    this.slots = shared.offsets[0]?.length ?? 0;
    this.uses = Array.from({ length: this.slots }, () => 0);
    this.readers = this.uses.map(() => []);
    this.lines = new Map(
      lines.map(({ peer, port, sent, received }) => [
        peer,
        { port, sent: new Int32Array(sent), received: new Int32Array(received), taken: 0, waiting: new Map() },
      ]),
    );
  }

  start(call: CollectiveCall, input: Uint8Array): number {
    const { slot } = call;
    const use = (this.uses[slot] ?? 0) + 1;
    for (const reader of this.readers[slot] ?? []) this.await(reader, slot, READ, use - 1);
    const sent = this.hand(call, input);
    this.uses[slot] = use;
    this.readers[slot] = readersOf(call);
    this.advance(slot, PUBLISHED, use);
    return sent;
  }

  /** Copies this rank's input into its slot; gives the bytes that it sends. */
  private hand(call: CollectiveCall, input: Uint8Array): number {
    if (!gives(call)) return bytesSent(call);
    const own = this.inputOf(call, call.member);
    const { collective, dtype, members, member, slot } = call;
    if (collective.kind !== 'all-to-all' || !collective.filled || members.length > MOST_PACKED) {
      own.set(input);
      return bytesSent(call);
    }
    const width = byteLength(dtype, collective.filled);
    const bytes = input.byteLength / members.length;
    let [sent, packed] = [0, 0];
    for (const other of members.keys()) {
      const slice = sliceFor(collective, dtype, input, members.length, other);
      const place = own.subarray(other * bytes, (other + 1) * bytes);
      const fewer = other === member ? null : packRows(slice, width, place);
      if (fewer === null) place.set(slice);
      else packed |= 1 << other;
      if (other !== member) sent += fewer ?? bytes;
    }
    Atomics.store(this.counters, this.index(this.rank, slot, PACKED), packed);
    return sent;
  }

  /** The slices that members have for this rank, where they may have been packed. */
  private slices({ collective, dtype, members, member, slot }: CollectiveCall, inputs: readonly Uint8Array[]) {
    if (collective.kind !== 'all-to-all' || !collective.filled || members.length > MOST_PACKED) return undefined;
    const width = byteLength(dtype, collective.filled);
    return inputs.map((input, index) => {
      const bytes = input.byteLength / members.length;
      const slice = input.subarray(member * bytes, (member + 1) * bytes);
      const packed = Atomics.load(this.counters, this.index(members[index] ?? -1, slot, PACKED));
      return ((packed >> member) & 1) === 1 ? unpackRows(slice, width, bytes) : slice;
    });
  }

  wait(call: CollectiveCall, result: Uint8Array): void {
    const { slot } = call;
    const use = this.uses[slot] ?? 0;
    if (!takes(call)) {
      this.advance(slot, READ, use);
      return;
    }
    const givers = call.collective.kind === 'broadcast' ? call.members.slice(0, 1) : call.members;
    for (const member of givers) this.await(member, slot, PUBLISHED, use);
    const inputs = givers.map((_, member) => this.inputOf(call, member));
    if (call.collective.kind === 'all-reduce' && call.inputBytes >= CHUNKED_BYTES) {
      this.reduceByChunks(call, call.collective.reduction, inputs, use, result);
    } else {
      combine(call.collective, call.dtype, inputs, call.member, result, this.slices(call, inputs));
    }
    this.advance(slot, READ, use);
  }

  send({ label, peer }: TransferCall, tensor: Uint8Array): void {
    const line = this.line(peer);
    const bytes = tensor.slice();
    line.port.postMessage({ label, bytes } satisfies Parcel, [bytes.buffer as ArrayBuffer]);
    Atomics.add(line.sent, 0, 1);
    Atomics.notify(line.sent, 0);
  }

  receive({ label, peer }: TransferCall): Uint8Array {
    const line = this.line(peer);
    for (;;) {
      const bytes = line.waiting.get(label)?.shift();
      if (bytes) return bytes;
      this.milliseconds += this.control.blockUntil(this.rank, line.received, 0, line.taken + 1);
      const parcel = receiveMessageOnPort(line.port)?.message as Parcel | undefined;
      if (!parcel) throw new Error(`rank ${peer} announced a message that did not arrive`);
      line.taken++;
      const queue = line.waiting.get(parcel.label) ?? [];
      queue.push(parcel.bytes);
      line.waiting.set(parcel.label, queue);
    }
  }

  blocked(): number {
    return this.milliseconds;
  }

  private reduceByChunks(
    call: CollectiveCall,
    reduction: 'sum' | 'max' | 'min',
    inputs: readonly Uint8Array[],
    use: number,
    result: Uint8Array,
  ): void {
    const { members, member, dtype, slot } = call;
    const size = byteLength(dtype, 1);
    const elements = call.inputBytes / size;
    const chunk = (index: number, input: Uint8Array) =>
      input.subarray(
        boundary(elements, members.length, index) * size,
        boundary(elements, members.length, index + 1) * size,
      );
    reduceElementwise(
      dtype,
      reduction,
      inputs.map((input) => chunk(member, input)),
      chunk(member, result),
    );
    chunk(member, inputs[member] as Uint8Array).set(chunk(member, result));
    this.advance(slot, REDUCED, use);
    for (const [index, other] of members.entries()) {
      if (index === member) continue;
      this.await(other, slot, REDUCED, use);
      chunk(index, result).set(chunk(index, inputs[index] as Uint8Array));
    }
  }

  /** Where a member's input is. */
  private inputOf({ collective, members, slot, inputBytes }: CollectiveCall, member: number): Uint8Array {
    const isReduce = collective.kind === 'reduce';
    const rank = members[isReduce ? 0 : member] ?? -1;
    const { firstRank, regions, offsets } = this.shared;
    const region = regions[rank - firstRank];
    if (!region) throw new Error(`rank ${rank} is not in this stage`);
    const offset = (offsets[rank - firstRank]?.[slot] ?? 0) + (isReduce ? member * inputBytes : 0);
    return new Uint8Array(region, offset, inputBytes);
  }

  private index(rank: number, slot: number, counter: number): number {
    return ((rank - this.shared.firstRank) * this.slots + slot) * LINE + counter;
  }

  private await(rank: number, slot: number, counter: number, use: number): void {
    if (rank === this.rank && counter === PUBLISHED) return;
    this.milliseconds += this.control.blockUntil(this.rank, this.counters, this.index(rank, slot, counter), use);
  }

  private advance(slot: number, counter: number, use: number): void {
    const index = this.index(this.rank, slot, counter);
    Atomics.store(this.counters, index, use);
    Atomics.notify(this.counters, index);
  }

  private line(peer: number): Line {
    const line = this.lines.get(peer);
    if (!line) throw new Error(`there is no channel from rank ${this.rank} to rank ${peer}`);
    return line;
  }
}

interface Line {
  readonly port: MessagePort;
  readonly sent: Int32Array;
  readonly received: Int32Array;
  /** Messages taken from the port so far. */
  taken: number;
  /** Taken, but not received by the rank yet. */
  readonly waiting: Map<string, Uint8Array[]>;
}

interface Parcel {
  readonly label: string;
  readonly bytes: Uint8Array;
}

/** A cache line of Int32 per counter group, so that ranks do not slow each other down by writing near one another. */
const LINE = 16;
const PUBLISHED = 0;
const REDUCED = 1;
const READ = 2;
/** By member, a bit: the rows for it are packed. */
const PACKED = 3;
/** Members that have a bit each. */
const MOST_PACKED = 31;
const ALIGNMENT = 64;

/** From here on an all-reduce is shared among the members; below, every rank reduces all, which saves one meeting. */
const CHUNKED_BYTES = 1 << 16;

/** Element at which chunk `index` of `count` begins. */
function boundary(elements: number, count: number, index: number): number {
  return Math.floor((elements * index) / count);
}

/** The members that read this rank's input: for a reduce the first member alone. */
function readersOf({ collective, members }: CollectiveCall): readonly number[] {
  return collective.kind === 'reduce' ? members.slice(0, 1) : members;
}
