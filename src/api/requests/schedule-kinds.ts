/**
 * @file The names of pipeline schedules: of programs, and those of them that training steps are priced and searched with.
 */
export { PIPELINE_SCHEDULES } from '../../cost-model/step/configuration.js';
export { SCHEDULE_KINDS, type ScheduleKind } from '../../schedule/schedule.js';
