/**
 * @file Integer programs for a solver: HiGHS (package `highs`), or GLPK (package `glpk.js`, GPL-3.0, which a user
 * installs beside autopar if wanted). Both are WebAssembly, and run to their end once started: call them off the main thread.
 */
import type { Highs } from 'highs';
import { AutoparError } from '../../ir/error.js';
import type { IntegerProgram } from './integer-program.js';

export interface SolverLimits {
  readonly seconds: number;
  /** Nodes of branch and bound. */
  readonly nodes: number;
  /** Simplex iterations, at all nodes together: cuts and trials at the first node may take tens of thousands. */
  readonly iterations: number;
}

export interface IntegerAnswer {
  /** The best columns found; null if none. */
  readonly columns: Float64Array | null;
  /** A lower bound on the cost of any solution, offset included; Infinity where there is no solution. */
  readonly bound: number;
  readonly isOptimal: boolean;
}

export interface IntegerSolver {
  readonly name: 'highs' | 'glpk';
  /** @param start columns of a solution to begin from */
  solve(program: IntegerProgram, limits: SolverLimits, start?: Float64Array): IntegerAnswer;
}

/**
 * Loads a solver.
 * @param load imports a package that the compiler need not find: the user's to install
 * @throws AutoparError (backendAbsent) where `glpk.js` is requested and not installed
 */
export async function loadSolver(
  name: IntegerSolver['name'],
  load: (module: string) => Promise<unknown> = (module) => import(module),
): Promise<IntegerSolver> {
  if (name === 'glpk') return loadGlpk(load);
  // Its types describe the CommonJS build, whose module object is the loader.
  const { default: start } = (await import('highs')) as unknown as { readonly default: () => Promise<Highs> };
  return new HighsSolver(await start());
}

class HighsSolver implements IntegerSolver {
  readonly name = 'highs';

  constructor(private readonly highs: Highs) {}

  solve(program: IntegerProgram, limits: SolverLimits, start?: Float64Array): IntegerAnswer {
    const { highs } = this;
    const count = program.costs.length;
    const integrality = new Int32Array(count);
    integrality.fill(1, 0, program.integers);
    const infinite = (bound: number) => (Math.abs(bound) === Infinity ? Math.sign(bound) * highs.infinity : bound);
    return highs.withModel(
      {
        numCols: count,
        numRows: program.lower.length,
        offset: program.offset,
        colCost: program.costs,
        colLower: new Float64Array(count),
        colUpper: new Float64Array(count).fill(1),
        rowLower: program.lower.map(infinite),
        rowUpper: program.upper.map(infinite),
        integrality,
        matrix: {
          format: 'csr',
          numRows: program.lower.length,
          numCols: count,
          starts: program.starts,
          indices: program.columns,
          values: program.values,
        },
      },
      (model) => {
        model.options.set({
          output_flag: false,
          mip_rel_gap: 0,
          mip_abs_gap: 0.5 / program.scale,
          time_limit: Math.min(1e9, Math.max(0.05, limits.seconds)),
          mip_max_nodes: Math.max(1, Math.min(limits.nodes, 2 ** 31 - 1)),
        });
        if (start) model.setSolution({ colValue: start });
        // HiGHS asks at moments of its search, not of the clock: equal programs end after equal iterations.
        model.run({
          [highs.constants.callbackType.mipInterrupt]: (event) => {
            if (Number(event.data.mip_total_lp_iterations ?? 0) > limits.iterations) event.interrupt();
          },
        });
        const status = model.getModelStatus();
        const { optimal, infeasible, unboundedOrInfeasible } = highs.constants.modelStatus;
        if (status === infeasible || status === unboundedOrInfeasible) {
          return { columns: null, bound: Infinity, isOptimal: true };
        }
        const objective = model.getObjectiveValue();
        const columns = Math.abs(objective) < highs.infinity ? model.getSolution().colValue : null;
        // Without integers HiGHS solves a linear program, which has no bound of its own.
        const dual = program.integers > 0 ? Number(model.info.get('mip_dual_bound')) : objective;
        const isOptimal = status === optimal;
        return { columns, bound: isOptimal && program.integers === 0 ? objective : dual, isOptimal };
      },
    );
  }
}

/** The parts of glpk.js that are used. */
interface Glpk {
  readonly GLP_MIN: number;
  readonly GLP_FX: number;
  readonly GLP_UP: number;
  readonly GLP_OPT: number;
  readonly GLP_DB: number;
  readonly GLP_MSG_OFF: number;
  readonly GLP_NOFEAS: number;
  solve(
    program: unknown,
    options: unknown,
  ): {
    readonly result: { readonly status: number; readonly z: number; readonly vars: Readonly<Record<string, number>> };
  };
}

async function loadGlpk(load: (module: string) => Promise<unknown>): Promise<IntegerSolver> {
  let make: () => Glpk | Promise<Glpk>;
  try {
    ({ default: make } = (await load('glpk.js/node')) as { default: typeof make });
  } catch {
    throw new AutoparError(
      'solver-absent',
      'backendAbsent',
      'the package glpk.js is not installed',
      {},
      'npm install glpk.js (its licence is GPL-3.0), or use --solver highs',
    );
  }
  return new GlpkSolver(await make());
}

class GlpkSolver implements IntegerSolver {
  readonly name = 'glpk';

  constructor(private readonly glpk: Glpk) {}

  /** GLPK reports no bound while it searches: only an optimum proves one. It takes no start, and no limit but the time. */
  solve(program: IntegerProgram, limits: SolverLimits): IntegerAnswer {
    const { glpk } = this;
    const name = (column: number) => `x${column}`;
    const subjectTo = Array.from(program.lower, (lower, row) => ({
      name: `r${row}`,
      vars: Array.from(
        { length: (program.starts[row + 1] as number) - (program.starts[row] as number) },
        (_, index) => {
          const at = (program.starts[row] as number) + index;
          return { name: name(program.columns[at] as number), coef: program.values[at] as number };
        },
      ),
      bnds: {
        type: lower === program.upper[row] ? glpk.GLP_FX : glpk.GLP_UP,
        lb: Number.isFinite(lower) ? lower : 0,
        ub: program.upper[row] as number,
      },
    }));
    const { result } = glpk.solve(
      {
        name: 'core',
        objective: {
          direction: glpk.GLP_MIN,
          name: 'cost',
          vars: Array.from(program.costs, (coef, column) => ({ name: name(column), coef })),
        },
        subjectTo,
        bounds: Array.from(program.costs, (_, column) => ({ name: name(column), type: glpk.GLP_DB, lb: 0, ub: 1 })),
        binaries: Array.from({ length: program.integers }, (_, column) => name(column)),
      },
      { msglev: glpk.GLP_MSG_OFF, tmlim: Math.max(1, Math.min(1e6, Math.round(limits.seconds))), presol: true },
    );
    const isOptimal = result.status === glpk.GLP_OPT;
    if (result.status === glpk.GLP_NOFEAS) return { columns: null, bound: Infinity, isOptimal: true };
    const columns = isOptimal ? Float64Array.from(program.costs, (_, column) => result.vars[name(column)] ?? 0) : null;
    return { columns, bound: isOptimal ? result.z + program.offset : -Infinity, isOptimal };
  }
}
