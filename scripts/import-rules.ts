/**
 * @file The import column of docs/architecture.md as data: which folder may import which.
 */

export interface FolderRule {
  readonly folder: string;
  /** Folders it may import from, besides itself. */
  readonly may: readonly string[];
  /** Single files that it may import too, though their folder is not in `may`. */
  readonly files?: readonly string[];
  /** Single files that it may import types from. */
  readonly types?: readonly string[];
  /** Single files that it may import types from, and load when it needs them: `await import(…)`. */
  readonly lazy?: readonly string[];
}

const IR = 'src/ir';
const SHARDING = 'src/sharding-propagation';
const PARTITION = 'src/partition';
const SCHEDULE = 'src/schedule';
const SOLVER = 'src/solver';
const COST = 'src/cost-model';
const STRATEGY = 'src/strategy';
const SEARCH = 'src/search';
const PROGRAM = 'src/program';
const CODEGEN = 'src/codegen';
const DATA = 'src/data';
const RUNTIME = 'src/runtime';
const PICTURES = 'src/pictures';
const API = 'src/api';

/** The solver as others see it: its entry, problems and answers, and the user's time. */
const SOLVER_ENTRY = ['solve', 'problem', 'deadline'].map((name) => `${SOLVER}/${name}.ts`);

/** In the order in which data flows. */
export const IMPORT_RULES: readonly FolderRule[] = [
  { folder: IR, may: [] },
  { folder: SHARDING, may: [IR] },
  { folder: PARTITION, may: [IR, SHARDING, SCHEDULE] },
  { folder: SCHEDULE, may: [], files: ['src/ir/error.ts'] },
  { folder: COST, may: [IR, SHARDING, PARTITION, SCHEDULE], types: ['src/strategy/plan.ts'] },
  { folder: STRATEGY, may: [IR, SHARDING, PARTITION, SCHEDULE] },
  { folder: SOLVER, may: [], files: ['src/ir/error.ts', 'src/ir/interruption.ts'] },
  { folder: SEARCH, may: [IR, SHARDING, PARTITION, SCHEDULE, COST, STRATEGY], files: SOLVER_ENTRY },
  { folder: PROGRAM, may: [IR], files: ['src/sharding-propagation/collective-rule.ts'] },
  { folder: CODEGEN, may: [IR, SHARDING, PARTITION, SCHEDULE, STRATEGY, PROGRAM] },
  { folder: DATA, may: [IR, PROGRAM] },
  { folder: RUNTIME, may: [PROGRAM] },
  { folder: PICTURES, may: [], types: ['src/cost-model/step-spans.ts'] },
  {
    folder: API,
    may: [
      IR,
      SHARDING,
      PARTITION,
      SCHEDULE,
      COST,
      STRATEGY,
      SEARCH,
      PROGRAM,
      CODEGEN,
      DATA,
      RUNTIME,
      PICTURES,
      'models',
    ],
    files: SOLVER_ENTRY,
  },
  // index.ts is the whole interface; the other two load no station, and so a command can load them at once.
  { folder: 'src/cli', may: [], files: [`${API}/verbs.ts`, `${API}/words.ts`], lazy: [`${API}/index.ts`] },
  { folder: 'models', may: [IR] },
];
