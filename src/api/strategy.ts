/**
 * @file strategy: converts checkpoints between their forms. autopar's plan.json is complete. MindSpore's protobuf and JSON and
 * ONNX's multi-device annotations hold parts of it; notes list what a form cannot express (docs/checkpoints.md).
 */
import path from 'node:path';
import { AutoparError, badOption } from '../ir/error.js';
import type { Graph } from '../ir/graph.js';
import { withoutUndefined } from '../ir/without-undefined.js';
import { checkPlace, stableJson, writeFileAtomic } from '../program/atomic.js';
import type { AnnotationRecord } from '../sharding-propagation/annotations/annotation.js';
import { type Mesh, makeMesh, STAGE_AXIS } from '../sharding-propagation/mesh.js';
import { innerMesh } from '../sharding-propagation/roles.js';
import { meshesOf } from '../strategy/assignment-of.js';
import { diffDocuments, diffPlans, hasMoves, type StrategyDifference, sameLayers } from '../strategy/diff.js';
import { checkCheckpoint } from '../strategy/fingerprint.js';
import { likelyDegrees } from '../strategy/mindspore/device-matrix.js';
import type { MindSporeStrategy } from '../strategy/mindspore/document.js';
import { type ExportedStrategy, mindSporeStrategy } from '../strategy/mindspore/export.js';
import { mindSporePins, namesParameters } from '../strategy/mindspore/import.js';
import { strategyToJson } from '../strategy/mindspore/json.js';
import { mergeStages } from '../strategy/mindspore/merge.js';
import { rankListForTransform, type ShardedCheckpoint } from '../strategy/mindspore/rank-list.js';
import { encodeStrategy } from '../strategy/mindspore/schema.js';
import { CONFIGURATION } from '../strategy/onnx/annotate.js';
import { annotationPins, editedNodes } from '../strategy/onnx/read-annotations.js';
import { pinsToJson, pinsToYaml } from '../strategy/pin-document.js';
import { placePlan } from '../strategy/placed-operators.js';
import type { Plan } from '../strategy/plan.js';
import { planToJson } from '../strategy/plan-json.js';
import { planPins } from '../strategy/plan-pins.js';
import { tpPlan } from '../strategy/tp-plan.js';
import { trainerChoices } from '../strategy/trainers/choices.js';
import { megatronFlags } from '../strategy/trainers/megatron.js';
import { torchtitanJob } from '../strategy/trainers/torchtitan.js';
import { importModel } from './models/import.js';
import { sharedBy } from './models/training-form.js';
import {
  checkArguments,
  flag,
  having,
  integerFrom,
  objects,
  oneOf,
  options as optionsOf,
  orNull,
  text,
  texts,
} from './options/kinds.js';
import type { ProposedOption } from './planning/proposals.js';
import { LOCATING, type ModelOptions, STRATEGY_FORMS, type StrategyForm } from './strategies/forms.js';
import {
  formOf,
  inTrainingForm,
  modelOfPlan,
  namedModel,
  proposedIn,
  readStrategy,
  type StrategyFile,
  trainingOfPlan,
} from './strategies/strategy-files.js';
import { annotatedCopy, checkNoModel } from './strategies/strategy-onnx.js';

export interface ConvertOptions extends ModelOptions {
  readonly from: string;
  readonly output: string;
  /** The form to write; by default that of the output name's ending. */
  readonly to?: StrategyForm;
  /** Write only this pipeline stage, for MindSpore's forms. */
  readonly stage?: number;
  /** Degrees of the mesh for the pins; by default those of the checkpoint, or the ones that fit it best. */
  readonly degrees?: { readonly dp?: number; readonly sp?: number; readonly tp?: number };
  /** Number of available devices: a checkpoint for another number is refused. */
  readonly devices?: number;
  /** The configuration of an ONNX model to read, if it has several. */
  readonly configuration?: string;
  /** Read the annotations of an ONNX model even if it contains a plan. */
  readonly pinsOnly?: boolean;
}

const locating = optionsOf<ModelOptions>(LOCATING);
const SHOWING = optionsOf<Pick<ConvertOptions, 'configuration'>>({ configuration: text });
const pinning = {
  ...LOCATING,
  from: text,
  stage: integerFrom(0),
  degrees: optionsOf<NonNullable<ConvertOptions['degrees']>>({
    dp: integerFrom(1),
    sp: integerFrom(1),
    tp: integerFrom(1),
  }),
  devices: integerFrom(1),
  configuration: text,
  pinsOnly: flag,
};
const PINNING = having(optionsOf<Omit<ConvertOptions, 'output' | 'to'>>(pinning), 'from');
const CONVERTING = having(
  optionsOf<ConvertOptions>({ ...pinning, output: text, to: oneOf(...STRATEGY_FORMS) }),
  'from',
  'output',
);

export interface Converted {
  readonly from: StrategyForm;
  readonly to: StrategyForm;
  readonly output: string;
  /** Notes on what the new form cannot express or the model has no counterpart for, one line each. */
  readonly notes: readonly string[];
}

/**
 * Writes a checkpoint in another form.
 * @throws AutoparError for a checkpoint that cannot be read, is of another model, version or device count, or cannot be
 *   brought into the form (`cannot-convert`)
 */
export async function convertStrategy(options: ConvertOptions): Promise<Converted> {
  checkArguments('convertStrategy', { options: [options, CONVERTING] });
  return (await prepared(options)).write();
}

/**
 * Writes checkpoints in other forms, and nothing where one of them cannot be.
 * @throws AutoparError as `convertStrategy`; `bad-option` (usage) for two of one file
 */
export async function convertStrategies(conversions: readonly ConvertOptions[]): Promise<readonly Converted[]> {
  checkArguments('convertStrategies', { conversions: [conversions, objects] });
  for (const options of conversions) checkArguments('convertStrategies', { options: [options, CONVERTING] });
  const files = conversions.map(({ output }) => path.resolve(output));
  const twice = files.findIndex((file, index) => files.indexOf(file) < index);
  if (twice >= 0)
    throw badOption(`two forms are to be written to ${conversions[twice]?.output}`, 'give each form a file of its own');
  const all: Awaited<ReturnType<typeof prepared>>[] = [];
  for (const options of conversions) all.push(await prepared(options));
  for (const { output } of conversions) await checkPlace(output);
  const converted: Converted[] = [];
  for (const { write } of all) converted.push(await write());
  return converted;
}

/** A conversion of which all is done but writing the file. */
async function prepared(options: ConvertOptions): Promise<{ readonly write: () => Promise<Converted> }> {
  const { output } = options;
  const read = await readStrategy(options.from);
  const to = options.to ?? formOf(output);
  if (to !== 'onnx') await checkNoModel(output);
  const save = await inForm(read, to, options);
  return { write: async () => ({ from: read.form, to, output, notes: await save() }) };
}

/** The pins that `convertStrategy` writes as annotations. @throws AutoparError as it does */
export async function strategyPins(options: Omit<ConvertOptions, 'output' | 'to'>): Promise<AnnotationRecord> {
  checkArguments('strategyPins', { options: [options, PINNING] });
  return (await pinsOf(await readStrategy(options.from), options)).pins;
}

/**
 * Merges the files of a pipeline's stages into one, protobuf or JSON according to its name's ending.
 * @throws AutoparError `strategy-conflict`, `strategy-mismatch` (input) with the contradiction between the files
 */
export async function mergeStrategies(files: readonly string[], output: string): Promise<Converted> {
  checkArguments('mergeStrategies', { files: [files, texts], output: [output, text] });
  const stages = await Promise.all(
    files.map(async (file) => ({ file, document: documentOf(await readStrategy(file), 'be merged as stages') })),
  );
  const merged = mergeStages(stages);
  const to = formOf(output);
  await checkNoModel(output);
  return { from: 'mindspore', to, output, notes: await documentIn({ document: merged, notes: [] }, to, output)() };
}

export interface Compared extends StrategyDifference {
  /** The form in which the two were compared. */
  readonly form: 'plan' | 'mindspore';
}

/** Compares two checkpoints; a plan and a MindSpore checkpoint are compared in MindSpore's form. */
export async function diffStrategies(before: string, after: string, options: ModelOptions = {}): Promise<Compared> {
  checkArguments('diffStrategies', {
    before: [before, text],
    after: [after, text],
    options: [options, locating],
  });
  const [a, b] = [await readStrategy(before), await readStrategy(after)];
  const [planA, planB] = [planOfFile(a), planOfFile(b)];
  if (planA && planB) {
    const isOneModel = planA.model.fingerprint === planB.model.fingerprint;
    const isNeeded = isOneModel && !sameLayers(planA, planB);
    const isOfUse = isNeeded || (isOneModel && hasMoves(planA, planB));
    const model = isOfUse ? modelOfPlan(a, planA, options) : undefined;
    // With the model the difference can state which operators belong to a layer.
    const imported = await (isNeeded ? model : model?.catch(() => undefined));
    return { form: 'plan', ...diffPlans(planA, planB, imported?.graph) };
  }
  const [one, other] = [await asDocument(a, options), await asDocument(b, options)];
  return { form: 'mindspore', ...diffDocuments(one, other) };
}

/**
 * The ranks whose files a rank needs to reshard weights, as in MindSpore's rank_list_for_transform; a null checkpoint
 * means unsharded weights.
 */
export async function ranksForTransform(
  from: string | null,
  to: string | null,
  rank: number,
  options: ModelOptions = {},
): Promise<readonly number[]> {
  checkArguments('ranksForTransform', {
    from: [from, orNull(text)],
    to: [to, orNull(text)],
    rank: [rank, integerFrom(0)],
    options: [options, locating],
  });
  const sharded = async (file: string | null): Promise<ShardedCheckpoint> =>
    file === null ? null : { file, document: await asDocument(await readStrategy(file), options, true) };
  return rankListForTransform(await sharded(from), await sharded(to), rank);
}

/** A checkpoint in the form that `show` prints. */
export type Shown =
  | {
      readonly form: 'plan' | 'onnx';
      readonly file: string;
      readonly plan: Plan;
      /** Options that a search over training steps decided, as the folder states; none where none did or there is no folder. */
      readonly proposed: readonly ProposedOption[];
    }
  | { readonly form: 'mindspore' | 'mindspore-json'; readonly file: string; readonly document: MindSporeStrategy }
  | {
      readonly form: 'onnx';
      readonly file: string;
      readonly pins: AnnotationRecord;
      readonly notes: readonly string[];
    };

/** Reads a checkpoint of any form for showing it. */
export async function showStrategy(file: string, options: Pick<ConvertOptions, 'configuration'> = {}): Promise<Shown> {
  checkArguments('showStrategy', { file: [file, text], options: [options, SHOWING] });
  const read = await readStrategy(file);
  if (read.form === 'plan') return { form: 'plan', file: read.file, plan: read.plan, proposed: await proposedIn(read) };
  if (read.form !== 'onnx') return read;
  if (read.plan && options.configuration === undefined)
    return { form: 'onnx', file: read.file, plan: read.plan, proposed: [] };
  const { graph } = await importModel(file, read.plan ? { dims: read.plan.model.dims } : {});
  const { pins, notes } = annotationPins(read.model, graph, {
    ...options,
    ...ownMesh(read.plan, options.configuration, undefined),
    file,
  });
  return { form: 'onnx', file: read.file, pins, notes };
}

/** Whether a checkpoint is a plan, or contains one. */
export async function holdsPlan(file: string): Promise<boolean> {
  checkArguments('holdsPlan', { file: [file, text] });
  return planOfFile(await readStrategy(file)) !== null;
}

/** Writes a file, and returns notes on what its form cannot express. */
type Save = () => Promise<readonly string[]>;

function saved(output: string, contents: string | Uint8Array, notes: readonly string[] = []): Save {
  return async () => {
    await writeFileAtomic(output, contents);
    return notes;
  };
}

async function inForm(read: StrategyFile, to: StrategyForm, options: ConvertOptions): Promise<Save> {
  if (to === 'annotations') {
    const { pins, notes } = await pinsOf(read, options);
    return saved(options.output, await annotationsText(pins, read.file, options.output), notes);
  }
  const plan = options.pinsOnly ? null : planOfFile(read);
  if (plan) return planIn(read, plan, to, options);
  if (read.form === 'onnx') throw cannotConvert(read.file, to, 'the model holds no autopar plan');
  if (read.form === 'plan') throw new Error('a plan was read without one');
  if (to === 'mindspore' || to === 'mindspore-json')
    return documentIn({ document: read.document, notes: [] }, to, options.output);
  throw cannotConvert(read.file, to, 'a MindSpore checkpoint holds only a part of a plan');
}

async function planIn(read: StrategyFile, plan: Plan, to: StrategyForm, options: ConvertOptions): Promise<Save> {
  const { output, devices } = options;
  checkCheckpoint(plan, plan.model, devices, read.file);
  if (to === 'plan' && read.form === 'plan' && options.model === undefined) return saved(output, planToJson(plan));
  if (to === 'megatron' || to === 'torchtitan') {
    const { placed } = await placedIn(read, plan, options);
    const { text, lost } = WRITERS[to](trainerChoices(plan, placed, await trainingOfPlan(read)), titleOf(plan));
    const notes = lost.map((what) => `not transferred: ${what}`);
    return saved(output, text, notes);
  }
  const { imported, placed } = await placedIn(read, plan, options);
  if (to === 'plan') return saved(output, planToJson(plan));
  if (to === 'tp-plan') {
    const { styles, notes } = tpPlan(placed);
    const lost = notes.map((note) => `not expressed: ${note}`);
    return saved(output, stableJson(styles), lost);
  }
  if (to === 'onnx') {
    const save = await annotatedCopy(imported.file, output, plan, placed, await trainingOfPlan(read));
    return async () => [...(await save()), ...lostInOnnx(plan, placed.chunks)];
  }
  return documentIn(mindSporeStrategy(imported.graph, placed, checkedStage(plan, options.stage)), to, output);
}

function lostInOnnx({ sequence }: Plan, chunks: number): readonly string[] {
  const lost: string[] = [];
  if (chunks > 1) lost.push(`stages have ${chunks} chunks each`);
  if (sequence?.order === 'zigzag') lost.push('the sequence is sharded in zig-zag order');
  return lost.map((what) => `${what}, which ONNX annotations cannot express; the embedded plan does`);
}

const WRITERS = { megatron: megatronFlags, torchtitan: torchtitanJob };

/** `llama on 2 x 8 h100-sxm-80: autopar predicts 0.17 s a step and 12.2 GB of memory in bf16`. */
function titleOf({ model, cluster, predicted }: Plan): string {
  const { stepSeconds, peakBytes, precision = 'the format of the model' } = predicted;
  const figures = `${stepSeconds.toPrecision(3)} s a step and ${(Math.max(...peakBytes) / 1e9).toPrecision(3)} GB of memory`;
  const devices = `${cluster.nodes} x ${cluster.perNode} ${cluster.device}`;
  return `${model.name} on ${devices}: autopar predicts ${figures} in ${precision}`;
}

/** The model of a plan, and the plan on its operators. It throws if they do not match. */
async function placedIn(read: StrategyFile, plan: Plan, options: Omit<ConvertOptions, 'output'>) {
  const imported = await modelOfPlan(read, plan, options);
  checkCheckpoint(plan, imported, options.devices, read.file);
  const placed = placePlan(plan, imported.graph);
  if (read.form === 'onnx') checkNotEdited(editedNodes(read.model, placed), read.file);
  return { imported, placed };
}

/** The contents of a checkpoint as pins, and notes on entries that have no counterpart in the model. */
async function pinsOf(
  read: StrategyFile,
  options: Omit<ConvertOptions, 'output'>,
): Promise<{ readonly pins: AnnotationRecord; readonly notes: readonly string[] }> {
  const { configuration, degrees, devices } = options;
  const plan = options.pinsOnly ? null : planOfFile(read);
  if (plan) {
    checkCheckpoint(plan, plan.model, devices, read.file);
    const { placed } = await placedIn(read, plan, options);
    return { pins: planPins(placed), notes: besidePins(plan) };
  }
  if (read.form === 'onnx') {
    const own = ownMesh(read.plan, configuration, degrees);
    const sp = own.mesh?.axes.find(({ name }) => name === 'sp')?.size;
    const named = { ...options, model: options.model ?? read.file };
    const { graph } = await namedModel(read.file, named, sharedBy(withoutUndefined({ sp })));
    const { pins, notes } = annotationPins(read.model, graph, {
      file: read.file,
      ...withoutUndefined({ configuration, devices }),
      ...own,
    });
    return { pins, notes: read.plan && own.mesh && !degrees ? [...notes, ...besidePins(read.plan)] : notes };
  }
  if (read.form === 'plan') throw new Error('a plan was read without one');
  const likely = likelyDegrees(read.document, devices, degrees);
  const mesh = innerMesh(likely);
  const imported = await namedModel(read.file, options, sharedBy(likely));
  const pinsOn = (graph: Graph) => mindSporePins(read.document, graph, { mesh, file: read.file, devices });
  if (namesParameters(read.document, imported.graph)) return pinsOn(imported.graph);
  const trained = await inTrainingForm(imported, options, sharedBy(likely));
  if (!trained || !namesParameters(read.document, trained)) return pinsOn(imported.graph);
  const { pins, notes } = pinsOn(trained);
  return { pins, notes: [...notes, TRAINED] };
}

const TRAINED =
  "parameters of the checkpoint are those of the model's training step: compile with --train; its loss is not pinned";

async function annotationsText(pins: AnnotationRecord, from: string, output: string): Promise<string> {
  const name = from.split(/[\\/]/).at(-1) ?? from;
  return /\.json$/i.test(output) ? pinsToJson(pins) : pinsToYaml(pins, `from ${name}, by autopar strategy`);
}

function documentIn(
  { document, notes }: Pick<ExportedStrategy, 'document' | 'notes'>,
  to: StrategyForm,
  output: string,
): Save {
  if (to === 'mindspore') return saved(output, encodeStrategy(document), notes);
  if (to !== 'mindspore-json') throw cannotConvert(output, to, 'a MindSpore checkpoint holds only a part of a plan');
  const { text, leftOut } = strategyToJson(document);
  const lost = leftOut.map(
    (name) => `parameter ${name} has two axes on one dimension, which MindSpore’s JSON cannot express; it is omitted`,
  );
  return saved(output, text, [...notes, ...lost]);
}

/** Options that pins on a plan's axes need beside them, which annotations cannot express. */
function besidePins({ sequence, meshes }: Plan): readonly string[] {
  const ring =
    sequence?.order === 'zigzag'
      ? ['the sequence is in zig-zag order, which annotations cannot express: compile them with --sp-method ring']
      : [];
  if (!meshes) return ring;
  const sizes = meshes.map((axes) => axes.map(({ axis, size }) => `${axis}${size}`).join(' '));
  const given = `--meshes "${sizes.join(' | ')}"`;
  return [...ring, `stages have meshes of their own, which annotations cannot express: compile them with ${given}`];
}

/** The mesh of the given degrees, or that of the plan to which the annotations belong. */
function ownMesh(
  plan: Plan | null,
  configuration: string | undefined,
  degrees: ConvertOptions['degrees'],
): { readonly mesh?: Mesh } {
  if (degrees) return { mesh: innerMesh(degrees) };
  if (!plan || (configuration !== undefined && configuration !== CONFIGURATION)) return {};
  const { mesh } = plan;
  const meshes = meshesOf(plan);
  if (meshes) return { mesh: meshes.common };
  return { mesh: makeMesh(mesh.flatMap(({ axis, size }) => (axis === STAGE_AXIS ? [] : [[axis, size] as const]))) };
}

function planOfFile(read: StrategyFile): Plan | null {
  return read.form === 'plan' || read.form === 'onnx' ? read.plan : null;
}

function documentOf(read: StrategyFile, purpose: string): MindSporeStrategy {
  if (read.form === 'mindspore' || read.form === 'mindspore-json') return read.document;
  throw new AutoparError(
    'cannot-convert',
    'usage',
    `only MindSpore’s strategy checkpoints can ${purpose}`,
    { file: read.file },
    'autopar strategy export PLAN --mindspore OUT.ckpt writes one; a model annotated by others is imported as pins',
  );
}

/** @param complete refuse a plan if MindSpore's form cannot express all its parameters */
async function asDocument(read: StrategyFile, options: ModelOptions, complete = false): Promise<MindSporeStrategy> {
  const plan = planOfFile(read);
  if (!plan) return documentOf(read, 'be compared with plans or with each other');
  const { graph } = await modelOfPlan(read, plan, options);
  const { document, leftOut } = mindSporeStrategy(graph, placePlan(plan, graph));
  const [first] = leftOut;
  if (!complete || first === undefined) return document;
  throw cannotConvert(read.file, 'mindspore', `parameter ${first} is sharded in pieces or padded`);
}

function checkedStage(plan: Plan, stage: number | undefined): number | undefined {
  if (stage === undefined || stage < plan.stages.length) return stage;
  throw badOption(
    `--stage ${stage}: the plan has ${plan.stages.length} ${plan.stages.length === 1 ? 'stage' : 'stages'}, counted from 0`,
  );
}

function checkNotEdited(nodes: readonly string[], file: string): void {
  if (nodes.length === 0) return;
  const shown = nodes.slice(0, 5).join(', ');
  throw new AutoparError(
    'plan-contradicts-itself',
    'input',
    `the annotations of ${nodes.length} nodes were changed after the plan was written into the model: ` +
      `${shown}${nodes.length > 5 ? ', …' : ''}`,
    { file, node: nodes[0] ?? '' },
    'read the annotations as pins, without the plan: autopar strategy import --pins-only',
  );
}

function cannotConvert(file: string, to: StrategyForm, why: string): AutoparError {
  return new AutoparError(
    'cannot-convert',
    'usage',
    `the checkpoint cannot be written as ${NAMES[to]}: ${why}`,
    { file },
    'import it as annotations, and compile the model with them: autopar compile MODEL --annotations FILE',
  );
}

const NAMES: Readonly<Record<StrategyForm, string>> = {
  plan: 'plan.json',
  mindspore: 'a MindSpore checkpoint',
  'mindspore-json': 'a MindSpore checkpoint in JSON',
  onnx: 'an annotated ONNX model',
  annotations: 'annotations',
  megatron: 'flags of Megatron-LM',
  torchtitan: 'a job configuration of torchtitan',
  'tp-plan': 'a tp_plan of Hugging Face',
};
