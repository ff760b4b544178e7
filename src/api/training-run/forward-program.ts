/**
 * @file The forward pass of a trained program, as a separate program on the same number of ranks: the model as it is exported
 * (running statistics, no Dropout), with its loss as two sums or with its outputs. Trained weights are state that no step
 * changes; the values of the training ranks are written to it.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { emitProgram } from '../../codegen/emit.js';
import { withLoss } from '../../ir/autodiff/training-graph.js';
import { batchDimensions } from '../../ir/batch.js';
import { byteLength } from '../../ir/dtype.js';
import { fingerprint } from '../../ir/fingerprint.js';
import { elementCount, type Graph, type Node, type StatePair, type Weight } from '../../ir/graph.js';
import { needed } from '../../ir/needed.js';
import { findLayers } from '../../ir/passes/find-layers.js';
import { plainNode } from '../../ir/plain-node.js';
import { unusedName } from '../../ir/unused-name.js';
import { rankCount } from '../../program/mesh.js';
import { openSession, type Session, type SessionOptions, type UnshardedTensors } from '../../runtime/session.js';
import { importerOf } from '../models/compiled-model.js';
import type { ImportedModel } from '../models/import.js';
import { withRandomWeights } from '../models/random-weights.js';
import { trainingForm } from '../models/training-form.js';
import type { CompiledParts } from '../output/folder.js';
import { plan } from '../plan.js';
import { programOfPlan } from '../planning/lower-plan.js';
import type { Training } from '../requests/training-request.js';

export interface ForwardProgram {
  readonly session: Session;
  /** The model that it computes. */
  readonly imported: ImportedModel;
  /**
   * Outputs whose quotient is the mean loss; for a loss that is not a quotient, only the loss. Null if the program returns the
   * model's outputs.
   */
  readonly loss: { readonly numerator: string; readonly denominator: string | null } | null;
  /** Writes trained weights and running statistics, by name. */
  readonly write: (state: UnshardedTensors) => Promise<void>;
  /** Stops its ranks and removes its files. */
  readonly close: () => Promise<void>;
}

export interface ForwardOptions {
  readonly directory: string;
  readonly parts: CompiledParts;
  readonly training: Training;
  readonly model?: string | undefined;
  /** Samples of a step; null for the batch of the compiled model. */
  readonly batch: number | null;
  readonly gives: 'loss' | 'outputs';
  readonly session: SessionOptions;
}

/** @throws AutoparError as import, planning and `openSession` */
export async function openForward(options: ForwardOptions): Promise<ForwardProgram> {
  const { parts, session: running } = options;
  const { imported, loss } = await forwardModel(options);
  const planned = await plan(imported, { devices: rankCount(parts.program.mesh) });
  const { found, cluster } = planned;
  const folder = await mkdtemp(path.join(tmpdir(), 'autopar-forward-'));
  const remove = () => rm(folder, { recursive: true, force: true });
  try {
    await mkdir(path.join(folder, 'program'));
    const generated = programOfPlan({ lowered: found.lowered, schedule: null }, planned.plan, cluster);
    await emitProgram(path.join(folder, 'program'), generated, found.lowered, running.signal);
    const session = await openSession(folder, running);
    const kept = new Set((session.program.state ?? []).map(({ to }) => to));
    return {
      ...{ session, imported, loss },
      write: (state) => session.write(Object.fromEntries(Object.entries(state).filter(([name]) => kept.has(name)))),
      close: async () => {
        await session.close();
        await remove();
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

async function forwardModel({
  directory,
  parts: { source, plan, program },
  training,
  model,
  batch,
  gives,
}: ForwardOptions): Promise<Pick<ForwardProgram, 'imported' | 'loss'>> {
  const asExported = { ...training, trainMode: 'as-exported' } as const;
  const { at } = await importerOf(directory, source, plan, model, asExported);
  const read = await at(batch ?? source.globalBatch);
  const given = source.randomWeights === null ? read : await withRandomWeights(read, source.randomWeights);
  const form = trainingForm(given, asExported).graph;
  const scored = gives === 'loss' ? withLoss(form, training.loss, true) : null;
  const kept = new Set((program.state ?? []).map(({ to }) => to));
  const names = [...form.weights.keys()].filter((name) => kept.has(name));
  const loss = scored
    ? { numerator: scored.ratio?.numerator ?? scored.loss, denominator: scored.ratio?.denominator ?? null }
    : null;
  const outputs = loss ? [loss.numerator, ...(loss.denominator === null ? [] : [loss.denominator])] : form.outputs;
  const forward = leadingToOutputs({ ...(scored?.graph ?? form), outputs });
  // State becomes an input later and has no batch dimension, so batch dimensions are determined first.
  const whole: Graph = { ...forward, batch: batchDimensions(forward) };
  const held = names.filter((name) => whole.weights.has(name));
  const graph = findLayers(withFixedWeights(whole, held));
  return { imported: { ...given, graph, fingerprint: fingerprint(graph) }, loss };
}

/** The graph without nodes and tensors that no output depends on. */
function leadingToOutputs(graph: Graph): Graph {
  const nodes = needed(
    graph.nodes,
    graph.outputs,
    (node) => node.inputs,
    (node) => node.outputs,
  );
  const named = new Set([
    ...graph.inputs,
    ...graph.outputs,
    ...nodes.flatMap(({ inputs, outputs }) => [...inputs, ...outputs]),
  ]);
  const only = <Value>(values: ReadonlyMap<string, Value>) => new Map([...values].filter(([name]) => named.has(name)));
  return { ...graph, nodes, tensors: only(graph.tensors), weights: only(graph.weights) };
}

/** The graph with weights as state that no step changes. Their values are written later. */
function withFixedWeights(graph: Graph, names: readonly string[]): Graph {
  const kept = new Set(names);
  const zero = (weight: Weight): Weight => ({
    ...weight,
    source: { kind: 'zero', length: byteLength(weight.dtype, elementCount(weight.shape)) },
  });
  const moved = [...graph.weights].filter(([name]) => kept.has(name));
  const tensors = new Map(graph.tensors);
  const copies = moved.map(([name, { dtype, shape }]): Node => {
    const copy = unusedName(tensors, `${name}/kept`);
    tensors.set(copy, { dtype, shape });
    return plainNode({ name: copy, op: 'Identity', inputs: [name], outputs: [copy] });
  });
  const outputs = copies.map(({ name }) => name);
  return {
    ...graph,
    ...{ tensors, nodes: [...graph.nodes, ...copies], outputs: [...graph.outputs, ...outputs] },
    weights: new Map([...graph.weights].filter(([name]) => !kept.has(name))),
    initial: new Map(moved.map(([name, weight]) => [name, zero(weight)])),
    inputs: [...graph.inputs, ...moved.map(([name]) => name)],
    state: [...graph.state, ...moved.map(([input], index): StatePair => ({ input, output: outputs[index] ?? '' }))],
  };
}
