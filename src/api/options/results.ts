/** @file Kinds of results that other functions take as arguments: objects that have the keys which are read first. */
import { having, object } from './kinds.js';

export const IMPORTED = having(object, 'graph', 'file');
export const PLANNED = having(object, 'imported', 'plan', 'found', 'cluster');
export const EXPLAINABLE = having(object, 'graph', 'cluster', 'assignment', 'pins');
export const TRAINING = having(object, 'loss', 'optimizer');
export const CONFIGURATION = having(object, 'given', 'modelParallel', 'remarks');
export const LOWERED = having(object, 'lowered', 'schedule');
export const CLUSTER = having(object, 'device');
export const GRAPH = having(object, 'nodes', 'tensors');
export const OPERATOR = having(object, 'stage', 'strategy');
export const MESHES = having(object, 'mesh');
export const PAGE = having(object, 'title', 'facts', 'sections');
