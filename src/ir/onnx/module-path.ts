/**
 * @file The place of a node in the module hierarchy, from exporter metadata.
 *
 *     ['', 'm', 'm.model', 'm.model.layers.0', 'linear_5']   (name_scopes)   → m / model / layers.0
 *     : W2/m: Llama/m.model: LlamaModel/linear: aten.linear  (namespace)     → m / model
 *     /b.0/qkv/MatMul                                        (TorchScript)   → b.0 / qkv
 */

/** The path of a node, outermost module first; empty where neither metadata nor name gives it. */
export function modulePath(name: string, metadata: ReadonlyMap<string, string>): readonly string[] {
  const scopes = metadata.get('pkg.torch.onnx.name_scopes');
  if (scopes !== undefined) return relative(pythonList(scopes).slice(0, -1));
  const namespace = metadata.get('namespace');
  if (namespace !== undefined)
    return relative(
      namespace
        .split('/')
        .map((part) => part.split(':')[0] ?? '')
        .slice(0, -1),
    );
  if (name.startsWith('/')) return name.split('/').slice(1, -1);
  return [];
}

/** The module that dotted parameter names have in common: ['h.0.ln.weight', 'h.0.qkv.bias'] → ['h.0']; [] where none. */
export function commonModule(names: readonly string[]): readonly string[] {
  const paths = names.filter((name) => /^[A-Za-z_]\w*(\.\w+)+$/.test(name)).map((name) => name.split('.').slice(0, -1));
  return indexed(commonPath(paths));
}

/** The steps that paths have in common. */
export function commonPath(paths: readonly (readonly string[])[]): readonly string[] {
  const [first = []] = paths;
  const end = first.findIndex((step, index) => paths.some((path) => path[index] !== step));
  return end < 0 ? first : first.slice(0, end);
}

/**
 * A path in one text. TorchScript repeats a container's name in its children's (n / n.0): it is written once. Iterations are
 * numbered as layers are.
 */
export function moduleText(path: readonly string[]): string {
  const steps = path.map((step) => step.replace(ITERATION, '.$1'));
  return steps.reduce((text, step, index) => {
    const parent = steps[index - 1];
    if (parent === undefined) return step;
    return `${text}.${step.startsWith(`${parent}.`) ? step.slice(parent.length + 1) : step}`;
  }, '');
}

/** The step of the path that an iteration of an unrolled loop is: loop, 3 → loop#3. */
export function iterationStep(loop: string, iteration: number): string {
  return `${loop}#${iteration}`;
}

/** The path without its iterations, each of which calls the modules of the loop's body once more. */
export function withoutIterations(path: readonly string[]): readonly string[] {
  return path.map((step) => step.replace(ITERATION, ''));
}

/** The part of the path that is outside of its iterations. */
export function outsideOfIterations(path: readonly string[]): readonly string[] {
  const first = path.findIndex((step) => ITERATION.test(step));
  return first < 0 ? path : path.slice(0, first);
}

/** Whether the text is that of a part of the path that ends in an iteration. */
export function endsInIteration(path: readonly string[], text: string): boolean {
  return path.some((step, index) => ITERATION.test(step) && moduleText(path.slice(0, index + 1)) === text);
}

const ITERATION = /#(\d+)$/;

/** Joins an index to the name before it: h, 0, attn → h.0, attn. */
function indexed(parts: readonly string[]): readonly string[] {
  const steps: string[] = [];
  for (const part of parts) {
    const last = steps.length - 1;
    if (/^\d+$/.test(part) && last >= 0) steps[last] = `${steps[last]}.${part}`;
    else steps.push(part);
  }
  return steps;
}

/** Turns cumulative scopes into steps: m, m.model, m.model.layers.0 → m, model, layers.0. */
function relative(scopes: readonly string[]): readonly string[] {
  const steps: string[] = [];
  let parent = '';
  for (const scope of scopes) {
    if (scope === '' || scope === parent) continue;
    steps.push(parent !== '' && scope.startsWith(`${parent}.`) ? scope.slice(parent.length + 1) : scope);
    parent = scope;
  }
  return steps;
}

function pythonList(text: string): readonly string[] {
  return [...text.matchAll(/'([^']*)'|"([^"]*)"/g)].map((match) => match[1] ?? match[2] ?? '');
}
